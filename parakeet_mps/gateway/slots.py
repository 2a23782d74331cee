"""A bounded number of slots, shared by all worker processes.

Each slot is one byte of a file, taken by locking it. The kernel frees the locks of a process that dies, however it
dies, so no slot is ever lost. https://man7.org/linux/man-pages/man2/fcntl.2.html (advisory record locking)
"""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path


class Slots:
    """`most` slots over all processes that name the same `path`; without one, over this process alone.

    A process must not open the file twice: closing either copy would free all its slots.
    """

    def __init__(self, most: int, path: Path | None = None) -> None:
        self._most = most
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600) if path else os.memfd_create("slots")
        self.close = weakref.finalize(self, os.close, self._fd)
        """Free all slots of this process."""
        self._mine: set[int] = set()
        self._next = os.getpid() % most

    def take(self) -> int | None:
        """Take a free slot and return its number; None when all are taken."""
        for step in range(self._most):
            slot = (self._next + step) % self._most
            if slot not in self._mine and self._lock(slot):
                self._mine.add(slot)
                self._next = slot + 1
                return slot
        return None

    def give_back(self, slot: int) -> None:
        """Free a slot that `take` returned."""
        self._mine.discard(slot)
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, slot)

    def _lock(self, slot: int) -> bool:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
        except BlockingIOError:
            return False
        return True
