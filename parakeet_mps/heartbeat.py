"""One recogniser's signs of life: a small memory-mapped file that its process writes and the supervisor reads.

Writing costs no system call, so it goes on while the disk is slow; reading needs nothing of the process, so it works
when that is dead, stopped or stuck. Times are seconds of CLOCK_MONOTONIC, which all processes of a machine share.
Standard library only.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import mmap
import os
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

LOG = logging.getLogger(__name__)

PERIOD_S = 1.0
"""Pause between two beats."""

STACK_SIGNAL = signal.SIGUSR1
"""Makes a recogniser write the stacks of its threads to its log, whatever it is stuck in."""

_SUFFIX = ".beat"
_TEXT_BYTES = 256
_FIELDS = struct.Struct(f"<qqdd{_TEXT_BYTES}s{_TEXT_BYTES}s")  # pid, serving, beat, busy since, fault, phases
_SERVING, _BEAT, _BUSY, _FAULT = 8, 16, 24, 32
_PHASES = _FAULT + _TEXT_BYTES


@dataclass(frozen=True)
class Pulse:
    """What a recogniser last said of itself: `beat` and `busy_since` in seconds, `busy_since` None while it is idle.

    `phases` are those of its loading that have ended, and how long each took.
    """

    name: str
    pid: int
    serving: bool
    beat: float
    busy_since: float | None
    fault: str
    phases: str


class Heartbeat:
    """The writer, in the recogniser's process: loading until `serve`, then beating for as long as its probe succeeds.

    Makes the file `folder`/`name`.beat. Raises `OSError` when the disk is full.
    """

    def __init__(self, folder: Path, name: str, period_s: float = PERIOD_S) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._name, self._period_s = name, period_s
        self._record = _map(folder / f"{name}{_SUFFIX}", _FIELDS.pack(os.getpid(), 0, time.monotonic(), 0.0, b"", b""))
        self._at_work: list[float] = []
        self._changing = threading.Lock()
        self._phases: list[str] = []
        self._phase_began_at = time.monotonic()
        self._probe: Callable[[], object] = lambda: None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        # From C and without Python's lock, so that it also shows where a call hangs that does not give the lock back.
        faulthandler.register(STACK_SIGNAL, all_threads=True)
        faulthandler.enable()  # a crash of native code tells where it was, too

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Report and log the error that ends the block; the server tells of it only when all have loaded or failed."""
        try:
            yield
        except Exception as error:
            LOG.exception("loading failed")
            self.fail(_fault(error))
            raise

    def passed(self, phase: str) -> None:
        """Show that a phase of loading has ended, and how long it took."""
        now = time.monotonic()
        self._phases.append(f"{phase} {now - self._phase_began_at:.1f} s")
        self._phase_began_at = now
        self._write(_PHASES, ", ".join(self._phases))

    def serve(self, probe: Callable[[], object]) -> None:
        """Begin to beat: `probe`, called about once a second from a thread of its own, raises when something is broken.

        Call it when everything is loaded: a probe of the GPU would spoil the capture of a CUDA graph.
        """
        self._probe = probe
        self.check()
        struct.pack_into("<q", self._record, _SERVING, 1)
        self._thread.start()

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Show that the process is at work for the length of the block; of several works at once, since the oldest."""
        began = time.monotonic()
        self._show_work(self._at_work.append, began)
        try:
            yield
        finally:
            self._show_work(self._at_work.remove, began)

    @property
    def healthy(self) -> bool:
        """Whether no probe has failed yet."""
        return self._record[_FAULT] == 0

    def check(self) -> bool:
        """Probe now and return whether all is well.

        Call it after any unforeseen error: what was the request's fault passes. What was the device's is found at once,
        since CUDA's sticky errors fail every later call, too.
        """
        try:
            self._probe()
        except Exception as error:  # noqa: BLE001  whatever stops the probe stops the recogniser
            self.fail(_fault(error))
        else:
            struct.pack_into("<d", self._record, _BEAT, time.monotonic())
        return self.healthy

    def fail(self, fault: str) -> None:
        """Ask for recovery, because of `fault`; there is no way back."""
        self._write(_FAULT, fault)

    def stop(self) -> None:
        """End the beating."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(self._period_s)

    def _show_work(self, change: Callable[[float], None], began: float) -> None:
        with self._changing:
            change(began)
            struct.pack_into("<d", self._record, _BUSY, min(self._at_work, default=0.0))

    def _write(self, place: int, text: str) -> None:
        encoded = text.encode(errors="replace")[: _TEXT_BYTES - 1]
        self._record[place : place + len(encoded)] = encoded

    def _beat(self) -> None:
        while not self._ended.wait(self._period_s):
            self.check()


def read_pulses(folder: Path) -> list[Pulse]:
    """Return the pulses of all recognisers that write to `folder`, in order of their names."""
    pulses = (_read(file) for file in sorted(folder.glob(f"*{_SUFFIX}")))
    return [pulse for pulse in pulses if pulse]


def remove_pulses(folder: Path) -> None:
    """Forget the recognisers of an earlier start."""
    for file in folder.glob(f"*{_SUFFIX}"):
        file.unlink(missing_ok=True)


def _fault(error: Exception) -> str:
    first_line = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first_line}"


def _read(file: Path) -> Pulse | None:
    try:
        pid, serving, beat, busy, *texts = _FIELDS.unpack(file.read_bytes())
    except (OSError, struct.error):  # removed, or not yet written
        return None
    fault, phases = (text.partition(b"\0")[0].decode(errors="replace") for text in texts)
    return Pulse(file.name.removesuffix(_SUFFIX), pid, bool(serving), beat, busy or None, fault, phases)


def _map(path: Path, record: bytes) -> mmap.mmap:
    partial = path.with_suffix(".new")
    with partial.open("w+b", buffering=0) as file:
        file.write(record)  # in full: writing to a mapped hole of a full disk would end the process
        mapped = mmap.mmap(file.fileno(), len(record))
    partial.replace(path)
    return mapped
