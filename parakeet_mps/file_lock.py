"""Files that a living process holds: the kernel lets go of them when it dies, however it dies.

https://man7.org/linux/man-pages/man2/flock.2.html. Standard library only.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


def hold(path: Path) -> int | None:
    """Open and lock the file and return its descriptor, with which the lock ends.

    None when another process holds the file, when it is gone, or somebody else's.
    """
    try:
        return _locked(os.open(path, _FLAGS))
    except OSError:
        return None


def make_held(path: Path) -> int | None:
    """Make the file for this user alone and hold it; None when another process was faster. Raises `OSError`."""
    return _locked(os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600))


def remove_unless_held(path: Path) -> None:
    """Unlink the file if no process holds it. Raises `OSError`."""
    file = hold(path)
    if file is not None:
        path.unlink(missing_ok=True)
        os.close(file)


@contextmanager
def turn(path: str | Path, waits: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the file `path` for the length of the block, making it if need be; `waits` is called if another one does.

    Raises `OSError`.
    """
    with Path(path).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _locked(file: int) -> int | None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file).st_nlink:  # not removed by its last holder meanwhile
            return file
    except BlockingIOError:
        pass
    os.close(file)
    return None
