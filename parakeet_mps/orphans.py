"""Processes whose own parent ended: adopted and collected, as process 1 does, so that none stays behind as a zombie."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from pathlib import Path

from parakeet_mps.process_state import waits_for_collection

COLLECTED_WITHIN_S = 2.0
"""Whoever started a process collects it well within this time after its end."""

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent ends, as process 1 is in a container."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans() -> None:
    """Collect ended processes that this one adopted; call it on SIGCHLD, from the event loop.

    An adopted process belongs to a session that one of this process's children leads. The children themselves, and
    commands that share this session, are collected by whoever started them and must keep their exit status. One that
    leads a session and is not collected soon is nobody's child: a daemon whose parent ended.
    """
    session = os.getsid(0)
    for pid in _children():
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            if os.getsid(pid) not in (session, pid):
                os.waitpid(pid, os.WNOHANG)
            elif os.getsid(pid) == pid and waits_for_collection(pid):
                asyncio.get_running_loop().call_later(COLLECTED_WITHIN_S, _reap, pid)


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        if waits_for_collection(pid):
            os.waitpid(pid, os.WNOHANG)


def _children() -> list[int]:
    """Children of all threads of this process; a thread may end while it is looked at."""
    pids: list[int] = []
    for listing in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            pids += map(int, listing.read_text().split())
    return pids
