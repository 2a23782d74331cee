"""What has become of a process that this one need not have started, as the kernel tells it in /proc."""

from __future__ import annotations

import os
import signal
from pathlib import Path

_STATE, _EXIT_STATUS = 0, 49
"""Places of the fields `state` (3) and `exit_code` (52) of proc_pid_stat(5) behind the command's name."""


def describe_exit(code: int) -> str:
    """Return how a process ended, from the exit code that `subprocess` gives: negative for a signal."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


def find_end(pid: int) -> str | None:
    """Return how the process ended; None while it runs. One that ended and waits to be collected has ended."""
    fields = _stat(pid)
    if not fields:
        return "is gone"
    if fields[_STATE] not in ("Z", "X"):
        return None
    return describe_exit(os.waitstatus_to_exitcode(int(fields[_EXIT_STATUS])))


def is_stopped(pid: int) -> bool:
    """Tell whether the process was stopped, as by SIGSTOP."""
    return _stat(pid)[:1] == ["T"]


def waits_for_collection(pid: int) -> bool:
    """Tell whether the process has ended and its parent does not know it yet: a zombie."""
    return _stat(pid)[:1] == ["Z"]


def _stat(pid: int) -> list[str]:
    try:
        # The name in parentheses may hold spaces and parentheses itself.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
