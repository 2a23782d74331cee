"""What is left on disk when a recogniser fails: the sentinel while it recovers, and a line of history for each event.

The sentinel is for `/health` and for people, the history for metrics. Neither says anything about what was recognised.
Standard library only.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

LOG = logging.getLogger("supervisor")

MOST_HISTORY_BYTES = 256 * 1024
"""A history that grew beyond this keeps its newer half: more than a thousand events."""

_NO_FOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC
"""The folder may be open to all, as /tmp is: a link that somebody put there is not written through."""


@dataclass(frozen=True)
class Wedge:
    """When recovery began (ISO 8601, UTC), and who failed and how."""

    at: str
    who: str
    why: str


class Sentinel:
    """The file `path`: it is there, with a `Wedge` as JSON, for as long as recovery is under way."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self) -> None:
        """Raise `OSError` when no file can be written where this one is to be."""
        probe, file = _create_beside(self._path)
        os.close(file)
        probe.unlink()

    def mark(self, who: str, why: str) -> None:
        """Write the file at once or not at all: no reader sees half of it. Raises `OSError`."""
        _replace(self._path, json.dumps(asdict(Wedge(_now(), who, why))) + "\n")

    def read(self) -> Wedge | None:
        """Return what the file says; None without a file, and unknown names when somebody else wrote it."""
        try:
            values = json.loads(self._path.read_text(encoding="utf-8"))
            return Wedge(str(values["at"]), str(values["who"]), str(values["why"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            return Wedge("an unknown time", "a recogniser", "is wedged")

    def clear(self) -> None:
        """Remove the file, if it is there. Raises `OSError`."""
        self._path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Event:
    """What a line of the history says happened, the seconds it took, where it says so, and how often it happened."""

    kind: str
    seconds: float | None
    count: int = 1

    @classmethod
    def parse(cls, line: str) -> Event | None:
        """Read a line; None when it is no event, or not yet complete."""
        try:
            values = json.loads(line)
            seconds = values["seconds"]
            return cls(str(values["event"]), None if seconds is None else float(seconds), int(values.get("count", 1)))
        except (ValueError, KeyError, TypeError):
            return None


class History:
    """The events beside the sentinel at `sentinel`, oldest first: one JSON object a line, bounded in size.

    Keys: `at` (ISO 8601, UTC), `event`, `who`, `why`, and `seconds` from the first failure to this event (or null).
    A line with `count` stands for so many events that were dropped to bound it: what is counted never falls.
    Events: wedge and recovery of the recognisers, failure and restart of the gateway, give_up of either, and leftover.
    """

    def __init__(self, sentinel: Path, most_bytes: int = MOST_HISTORY_BYTES) -> None:
        self.path = sentinel.with_name(f"{sentinel.name}.history")
        self._most_bytes = most_bytes

    def record(self, event: str, who: str, why: str, seconds: float | None = None) -> None:
        """Append one event. Raises `OSError`."""
        rounded = None if seconds is None else round(seconds, 3)
        line = json.dumps({"at": _now(), "event": event, "who": who, "why": why, "seconds": rounded}) + "\n"
        file = self._open()
        try:
            os.write(file, line.encode())
            size = os.fstat(file).st_size
        finally:
            os.close(file)
        if size > self._most_bytes:
            self._shorten()

    def check(self) -> None:
        """Raise `OSError` when a file is there that takes no events, such as another user's."""
        if self.path.exists():
            os.close(self._open())

    def events(self) -> list[Event]:
        """Return the events that are told; none when there is no file that can be read."""
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        return [event for event in map(Event.parse, lines) if event]

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NO_FOLLOW, 0o644)

    def _shorten(self) -> None:
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        older, newer = lines[: len(lines) // 2], lines[len(lines) // 2 :]
        _replace(self.path, "".join([*_summed(older), *newer]))


def _summed(lines: Iterable[str]) -> Iterator[str]:
    """Yield one line for each kind of event in `lines`."""
    events = [event for event in map(Event.parse, lines) if event]
    for kind in sorted({event.kind for event in events}):
        same = [event for event in events if event.kind == kind]
        seconds = sum(event.seconds or 0.0 for event in same)
        count = sum(event.count for event in same)
        line = {"at": _now(), "event": kind, "who": "", "why": "earlier events", "seconds": seconds, "count": count}
        yield json.dumps(line) + "\n"


def prepare(path: Path) -> None:
    """Remove the sentinel at `path` that an earlier run left: what it tells of is gone with that run.

    Raises `OSError` when it cannot be removed, or a failure could not be told.
    """
    history, sentinel = History(path), Sentinel(path)
    left = sentinel.read()
    history.check()
    sentinel.check()
    sentinel.clear()
    if left:
        LOG.warning("an earlier run left the sentinel: %s %s, at %s; it was removed", left.who, left.why, left.at)
        history.record("leftover", left.who, left.why)


class Journal:
    """Notes what happens to one unit of recovery. `sentinel` is marked while it recovers; without one only `history`.

    A disk that takes no notes is logged and hinders no recovery.
    """

    def __init__(
        self, history: History, sentinel: Sentinel | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._history, self._sentinel, self._clock = history, sentinel, clock
        self._failure, self._recovery = ("wedge", "recovery") if sentinel else ("failure", "restart")
        self._first: tuple[float, str, str] | None = None

    def failed(self, who: str, why: str) -> None:
        """Note a failure, before anything is done about it."""
        self._first = self._first or (self._clock(), who, why)
        if self._sentinel:
            sentinel = self._sentinel
            self._note(lambda: sentinel.mark(who, why))
        self._note(lambda: self._history.record(self._failure, who, why))

    def recovered(self) -> float | None:
        """Note that the unit serves; return the seconds since its first failure, None when there was none."""
        if self._first is None:
            return None
        (began, who, why), self._first = self._first, None
        seconds = self._clock() - began
        self._note(lambda: self._history.record(self._recovery, who, why, seconds))
        if self._sentinel:
            self._note(self._sentinel.clear)
        return seconds

    def gave_up(self, who: str, why: str) -> None:
        """Note that nothing more will be tried; the sentinel stays."""
        seconds = self._clock() - self._first[0] if self._first else None
        self._note(lambda: self._history.record("give_up", who, why, seconds))

    def _note(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            LOG.error("the sentinel or its history cannot be written: %s", error)


def _replace(path: Path, text: str) -> None:
    partial, file = _create_beside(path)
    with open(file, "w", encoding="utf-8") as stream:  # noqa: PTH123  the descriptor is there already
        stream.write(text)
    partial.replace(path)


def _create_beside(path: Path) -> tuple[Path, int]:
    """Make this process's own new file in the same folder; return it and its descriptor."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)  # of an earlier process with this number
    return partial, os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW, 0o644)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
