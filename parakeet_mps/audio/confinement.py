"""Taking from a process what decoding does not need, so that a hostile file gains nothing by taking it over.

`confine` is for the process that forks the others, `confine_further` for each that meets a file. Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import tempfile
from pathlib import Path

from parakeet_mps.audio import landlock

_libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38

_CLONE_NEWNS = 0x0002_0000
_CLONE_NEWIPC = 0x0800_0000
_CLONE_NEWUSER = 0x1000_0000
_CLONE_NEWNET = 0x4000_0000

_NOBODY = 65534


def confine() -> None:
    """Leave the network, the file system and the user's rights, as far as this machine lets a process do so.

    Everything that is still to be imported must be imported before.
    """
    is_root = os.geteuid() == 0
    _leave_namespaces(is_root)
    with contextlib.suppress(OSError):  # not permitted, or no disk to make it on; Landlock and the limits hold anyway
        _enter_empty_folder()
    if is_root:
        with contextlib.suppress(PermissionError):
            _become_nobody()
    forbid_new_rights()
    landlock.restrict()
    _prctl(_PR_SET_DUMPABLE, 0)
    die_with_parent()  # once more: the kernel forgets it when the user changes


def confine_further(memory_bytes: int, cpu_s: int) -> None:
    """Allow `memory_bytes` of address space, `cpu_s` of CPU time, and no new file, socket, process or byte on disk."""
    die_with_parent()
    limits = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_NOFILE: 0,  # what is open stays open
    }
    for name, limit in limits.items():
        _, most = resource.getrlimit(name)
        allowed = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(name, (allowed, allowed))


def forbid_new_rights() -> None:
    """Let no program that this process runs gain rights."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def die_with_parent() -> None:
    """Let the kernel kill this process when the one that started it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def address_space_bytes() -> int:
    """Return the address space that this process has. Reads /proc, so not after `confine`."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _leave_namespaces(is_root: bool) -> None:
    """Enter a network, a message space and mounts of one's own. Containers may forbid it; the limits hold anyway."""
    flags = _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWNS
    _libc.unshare(flags if is_root else flags | _CLONE_NEWUSER)


def _enter_empty_folder() -> None:
    folder = Path(tempfile.mkdtemp(prefix="decoding-"))
    parent = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.chroot(folder)
        os.chdir("/")
    finally:
        os.rmdir(folder.name, dir_fd=parent)  # the process stays in it, and nothing can be written there any more
        os.close(parent)


def _become_nobody() -> None:
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
