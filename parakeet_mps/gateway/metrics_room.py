"""Room on the disk for the memory-mapped files that a worker counts in, taken before it counts anything.

Writing to a mapped hole of a full disk ends a process with SIGBUS: no count is worth a worker and its requests. Nothing
of `prometheus_client` is imported, since that decides when it is imported where it counts.
"""

from __future__ import annotations

import os
from pathlib import Path

BYTES = {"counter": 128 << 10, "gauge_livesum": 16 << 10, "histogram": 512 << 10, "summary": 16 << 10}
"""Kinds of metrics, each in a file of its own, and more than all series of each can take.

The library itself makes files of 64 KiB without blocks, and doubles those that are full.
"""


def take_room(file: Path, size_bytes: int) -> None:
    """Make `file`, of zeros that have their blocks. Raises `OSError`, and then there is none.

    One that is there is of an earlier worker with this process's id, and is counted on.
    """
    if file.exists():
        return
    partial = file.with_suffix(".new")
    with partial.open("wb") as opened:
        os.posix_fallocate(opened.fileno(), 0, size_bytes)
    partial.rename(file)  # nobody reads a file that is not whole


def take_counts_room(folder: Path) -> None:
    """Take the room for this process's counts in `folder`, which is made if it is missing. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, size_bytes in BYTES.items():
        take_room(folder / f"{kind}_{os.getpid()}.db", size_bytes)
