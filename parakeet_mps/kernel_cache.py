"""Where compiled kernels are kept: with the downloaded models, on the volume that outlives a container.

Standard library only.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def kernel_cache_environ(models: Path) -> dict[str, str]:
    """Return what makes Triton's compiler keep its kernels in `models`/kernels; nothing where that would not do.

    A kernel is code that is executed: the folder must be this user's own, and no mount may forbid to execute its files.
    https://github.com/triton-lang/triton/blob/main/python/triton/knobs.py
    """
    folder = models / "kernels"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return {"TRITON_CACHE_DIR": str(folder)} if _is_usable(folder) else {}
    except OSError:  # a volume that may only be read, or has no room: the compiler's own folder is there
        return {}


def _is_usable(folder: Path) -> bool:
    found = folder.lstat()
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return own and os.access(folder, os.W_OK) and not os.statvfs(folder).f_flag & os.ST_NOEXEC
