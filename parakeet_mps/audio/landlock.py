"""Landlock: the kernel's fence that any process may put around itself, also where namespaces are forbidden.

https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import ctypes
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)

# The same numbers on every architecture.
_CREATE_RULESET = 444
_RESTRICT_SELF = 446

_VERSION = 1
_ALL_OF_FILES = (1 << 13) - 1
_ALL_OF_TCP = 0b11
_SIGNALS_AND_ABSTRACT_SOCKETS = 0b11
_FIELDS_OF_VERSION = {1: 1, 4: 2, 6: 3}


def restrict() -> bool:
    """Forbid this process files, TCP, and signals to and inspection of others; say whether the kernel does so.

    Needs `no_new_privs`. An older kernel forbids what it knows of.
    """
    version = _libc.syscall(_CREATE_RULESET, None, 0, _VERSION)
    if version < 1:
        return False
    fields = max(count for since, count in _FIELDS_OF_VERSION.items() if since <= version)
    rights = (_ALL_OF_FILES, _ALL_OF_TCP, _SIGNALS_AND_ABSTRACT_SOCKETS)[:fields]
    attributes = struct.pack(f"={fields}Q", *rights)
    ruleset = _libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return False
    try:
        return int(_libc.syscall(_RESTRICT_SELF, ruleset, 0)) == 0
    finally:
        os.close(ruleset)
