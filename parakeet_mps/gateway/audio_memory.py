"""The shared memory in which one gateway worker lays audio down for a Triton on the same machine.

It is one file in /dev/shm, divided into slots of the longest piece. The worker holds a lock on it, so that files of
workers that died are told from files in use: the next worker takes such a file over instead of making one, and the
name stays the one that Triton knows. No two files ever have the same name, so that Triton never takes one for another.

A slot is lent for as long as its request is under way on this side. When that ends early, because the client left or
time is up, Triton may still read the slot while the next request fills it. That is harmless: nobody hears the answer to
the request that was given up, and the next request's audio is complete before that request is sent and is not touched
until it has ended. A request that is sent again after a crash fills a slot again. Triton copies audio before it is
recognised, so a recogniser that hangs never reads it from here.
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from parakeet_mps.contract import MAX_PIECE_S, SAMPLE_RATE_HZ
from parakeet_mps.file_lock import hold, make_held

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  where POSIX shared memory is

MOST_SLOTS = 32
"""Slots of a worker where there is room. They take no memory before they are used."""

SHARE_OF_FREE = 1 / 4
"""Part of the free shared memory that all workers together may take: the rest is for Triton's own regions."""

SLOT_BYTES = -(-MAX_PIECE_S * SAMPLE_RATE_HZ * 4 // mmap.PAGESIZE) * mmap.PAGESIZE
_SAMPLE_BYTES = 4


class AudioMemory:
    """The slots of this process, in the locked file `path`, whose name is `name`; `descriptor` becomes its own."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.name = path.name
        self.size_bytes = os.fstat(descriptor).st_size
        self._path, self._descriptor = path, descriptor
        self._map = mmap.mmap(descriptor, self.size_bytes)
        self._wipe()
        self._free = list(reversed(range(self.size_bytes // SLOT_BYTES)))
        self._reserved = [0] * len(self._free)

    @classmethod
    def claim(cls, prefix: str, workers: int, folder: Path = SHARED_MEMORY) -> AudioMemory:
        """Take over a file whose process died, or make one for one of `workers` processes.

        Raises `OSError`, also when there is no room for a single slot.
        """
        for path in sorted(folder.glob(f"{prefix}*")):
            file = hold(path)
            if file is not None and _is_fit(file):
                return cls(path, file)
            if file is not None:
                os.close(file)
        return cls._made(prefix, affordable_slots(_free_bytes(folder), workers), folder)

    @classmethod
    def _made(cls, prefix: str, slots: int, folder: Path) -> AudioMemory:
        if slots == 0:
            raise OSError(errno.ENOSPC, f"too little room in {folder}")
        while True:
            path = folder / f"{prefix}{secrets.token_hex(8)}"
            file = make_held(path)
            if file is not None:  # nobody came between
                os.ftruncate(file, slots * SLOT_BYTES)
                return cls(path, file)

    @contextmanager
    def lend(self, waveform: torch.Tensor) -> Iterator[int | None]:
        """Lay float32 [samples] down for the length of the block, and yield where it begins (bytes).

        None when all slots are taken, the waveform is longer than a slot, or the machine has no memory left.
        """
        size = waveform.numel() * _SAMPLE_BYTES
        if not self._free or size > SLOT_BYTES:
            yield None
            return
        slot = self._free.pop()  # the one that was used last: its memory is there already
        try:
            yield self._write(slot, waveform) if self._reserve(slot, size) else None
        finally:
            self._free.append(slot)

    @property
    def idle(self) -> bool:
        """Whether no slot is lent."""
        return len(self._free) == len(self._reserved)

    def close(self) -> None:
        """Free the memory, whoever has it mapped, and remove the file."""
        self._wipe()
        self._map.close()
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def _write(self, slot: int, waveform: torch.Tensor) -> int:
        offset = slot * SLOT_BYTES
        np.frombuffer(self._map, np.float32, waveform.numel(), offset)[:] = waveform.numpy()
        return offset

    def _reserve(self, slot: int, size: int) -> bool:
        """Make sure that the memory is there: writing to a page that the machine cannot give would kill the process."""
        if size > self._reserved[slot]:
            try:
                os.posix_fallocate(self._descriptor, slot * SLOT_BYTES, size)
            except OSError:
                return False
            self._reserved[slot] = size
        return True

    def _wipe(self) -> None:
        """Give all pages back to the system. Whoever still reads them reads zeros."""
        self._map.madvise(mmap.MADV_REMOVE)


def affordable_slots(free_bytes: int, workers: int) -> int:
    """Return how many slots each of `workers` processes may have."""
    return min(MOST_SLOTS, int(free_bytes * SHARE_OF_FREE) // (workers * SLOT_BYTES))


def _is_fit(file: int) -> bool:
    """Whether a dead worker left this file, with its size set: in /dev/shm others might lay one out to read it."""
    status = os.fstat(file)
    return status.st_size >= SLOT_BYTES and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _free_bytes(folder: Path) -> int:
    system = os.statvfs(folder)
    return system.f_bavail * system.f_frsize
