"""A `.nemo` archive -> the folder of its files, from which several recognisers can load."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nemo.utils.tar_utils import is_safe_tar_member

from parakeet_mps.file_lock import turn


@contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """Unpack for the length of the block. Raises `OSError` and `tarfile.TarError`."""
    with tempfile.TemporaryDirectory() as folder:
        _extract(archive, Path(folder))
        yield Path(folder)


def unpack_once(archive: Path, folder: Path) -> Path:
    """Unpack in `folder`, unless another process has; who comes meanwhile waits. Returns where the files are.

    Raises `OSError` and `tarfile.TarError`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = archive.stat()
    files, partial = folder / f"{state.st_size}-{state.st_mtime_ns}", folder / "partial"
    with turn(folder / "lock"):
        if not files.exists():
            shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
            partial.mkdir()
            _extract(archive, partial)
            partial.rename(files)
    return files


def _extract(archive: Path, folder: Path) -> None:
    # NeMo unpacks with `tarfile`'s filters, which came with Python 3.11.4; Debian 12 has 3.11.2.
    place = os.path.realpath(folder)
    with tarfile.open(archive) as opened:
        opened.extractall(place, [member for member in opened if is_safe_tar_member(member, place)])  # noqa: S202
