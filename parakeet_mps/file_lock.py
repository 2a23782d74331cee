"""Files that a living process holds: the kernel lets go of them when it dies, however it dies.

https://man7.org/linux/man-pages/man2/flock.2.html. Standard library only.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def hold(path: Path, flags: int = 0) -> int | None:
    """Open and lock the file and return its descriptor, with which the lock ends.

    None when another process holds the file, or it is gone. `flags` are added to those of `os.open`, files are made
    for this user alone. Raises `OSError`.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file).st_nlink:  # not removed by its last holder meanwhile
            return file
    except BlockingIOError:
        pass
    os.close(file)
    return None


def remove_unless_held(path: Path) -> None:
    """Unlink the file if no process holds it. Raises `OSError`."""
    file = hold(path)
    if file is not None:
        path.unlink(missing_ok=True)
        os.close(file)
