"""One recogniser loads at a time, across processes and models: loading peaks in memory and must not overlap."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def loading_turn(path: str | Path) -> Iterator[None]:
    """Wait for, hold and release the exclusive lock on the file `path`. The kernel frees it when its holder dies."""
    with Path(path).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
