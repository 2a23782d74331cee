"""The place of one object in the cache: a folder for each version, a lock, and the file of a download under way.

A running service keeps the version that it started with while another start fetches a new one: the two versions that
were used last stay.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parakeet_mps.file_lock import turn

_log = logging.getLogger("checkpoint")

MIB = 1 << 20


class Shelf:
    """The files under `folder`. All methods raise `OSError`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def copy(self, version: str, name: str) -> Path:
        """Where the version's file is, or would be."""
        return self._folder / version / name

    def last(self) -> Path | None:
        """The file that was used last."""
        return next(iter(self._copies()), None)

    def use(self, copy: Path) -> None:
        """Note that the file is used now."""
        with contextlib.suppress(OSError):  # a volume that was filled elsewhere may be read-only here
            os.utime(copy)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until no other start downloads this object. The kernel frees the lock when its holder dies."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with turn(
            self._folder / "lock", lambda: _log.info("another start is downloading the checkpoint: waiting for it")
        ):
            yield

    def make_room(self, size: int) -> None:
        """Remove all but the version used last; raises with `ENOSPC` when `size` bytes do not fit all the same."""
        self._partial.unlink(missing_ok=True)
        for copy in self._copies()[1:]:
            shutil.rmtree(copy.parent)
        free = shutil.disk_usage(self._folder).free
        if free < size:
            raise OSError(errno.ENOSPC, f"{size // MIB + 1} MiB are needed and {free // MIB} free")

    @contextmanager
    def partial(self) -> Iterator[Path]:
        """A file to download to, gone in the end unless it was put; what a killed start left is overwritten."""
        try:
            yield self._partial
        finally:
            self._partial.unlink(missing_ok=True)

    def put(self, partial: Path, copy: Path) -> None:
        """Give the complete file its name: it is there as a whole, or not at all."""
        copy.parent.mkdir(exist_ok=True)
        partial.rename(copy)

    @property
    def _partial(self) -> Path:
        return self._folder / "partial"

    def _copies(self) -> list[Path]:
        return sorted(self._folder.glob("*/*.nemo"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
