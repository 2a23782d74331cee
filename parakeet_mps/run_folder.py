"""The run folder: where everything a running service writes lies, and the lock that keeps a second service out."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO

from parakeet_mps.file_lock import remove_unless_held

LOG = logging.getLogger("supervisor")


class RunFolderError(RuntimeError):
    """The folder cannot be used; the message says why and what to set."""


class RunFolderInUseError(RunFolderError):
    """Another service runs from this folder."""


class RunFolder:
    """Names of the files and folders under `root`; nothing is made until a name's owner writes there."""

    def __init__(self, root: Path, shared_memory: Path = Path("/dev/shm")) -> None:  # noqa: S108  POSIX shared memory
        self.root = root
        self.model_repository = root / "model_repo"
        self.plan = root / "plan.json"
        self.unpacked = root / "checkpoint"
        self.load_lock = root / "load.lock"
        self.ready = root / "ready"
        self.triton = root / "tritonserver"
        self.heartbeats = root / "heartbeats"
        self._mps = root / "mps"
        self._shared_memory = shared_memory

    @property
    def shm_prefix(self) -> str:
        """Start of the name of every shared-memory region of this service: unlike any other service's on this machine.

        The mount namespace tells containers apart that share /dev/shm and run from the same path.
        """
        identity = f"{Path('/proc/self/ns/mnt').readlink()}:{self.root}"
        return f"parakeet_{hashlib.sha256(identity.encode()).hexdigest()[:12]}_"

    def mps(self, gpu: str) -> Path:
        """Folder of the MPS daemon of the GPU with this UUID; short, since sockets lie in it."""
        return self._mps / gpu.removeprefix("GPU-")[:8]

    @property
    def triton_shm_prefix(self) -> str:
        """Start of the names of Triton's own regions among them."""
        return f"{self.shm_prefix}triton_"

    @property
    def audio_prefix(self) -> str:
        """Start of the names of the regions in which the gateway lays audio down for Triton."""
        return f"{self.shm_prefix}audio_"

    def acquire(self) -> IO[str]:
        """Make the folder and lock it for as long as the returned file stays open. Raises `RunFolderInUseError`."""
        lock = self._open_lock()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise self._in_use() from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        return lock

    def check_not_others(self, service: int) -> None:
        """Make the folder. Raises `RunFolderInUseError` when another process than `service` runs a service from it."""
        with self._open_lock() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                if lock.read() != f"{service}\n":
                    raise self._in_use() from None

    def _open_lock(self) -> IO[str]:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            return (self.root / "service.lock").open("a+")
        except OSError as error:
            raise RunFolderError(f"RUN_DIR={self.root} cannot be written: {error.strerror}") from None

    def _in_use(self) -> RunFolderInUseError:
        return RunFolderInUseError(f"another service runs from {self.root}: stop it, or set RUN_DIR to another folder")

    def mark_ready(self, ready: bool) -> None:
        """Have the file `ready` there or not. A disk that takes no notes is logged and stops nothing."""
        try:
            if ready:
                self.ready.write_text(f"{os.getpid()}\n")
            else:
                self.ready.unlink(missing_ok=True)
        except OSError as error:
            LOG.error("%s cannot be written: %s", self.ready, error)

    def remembered(self) -> Callable[[], None]:
        """Return what writes the plan and the model repository once more, as they are now, where they were removed."""
        paths = (self.plan, *self.model_repository.rglob("*"))
        files = {path: path.read_bytes() for path in paths if path.is_file()}

        def restore() -> None:
            for path, content in files.items():
                if not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)

        return restore

    def remove_unpacked(self) -> None:
        """Remove the files of the checkpoint, which nobody needs who has loaded it."""
        old = self.unpacked.with_suffix(".old")
        with contextlib.suppress(FileNotFoundError):
            self.unpacked.rename(old)  # first, so that what is half removed is not taken for whole
        shutil.rmtree(old, ignore_errors=True)

    def remove_triton_memory(self) -> None:
        """Unlink Triton's shared-memory regions; its Python backend leaves them when it is killed."""
        self._remove(self.triton_shm_prefix)

    def remove_shared_memory(self) -> None:
        """Unlink this service's regions, but for those that a living gateway holds.

        Triton's Python backend leaves its regions when it is killed.
        """
        self._remove(self.shm_prefix)

    def remove_audio_memory(self) -> None:
        """Unlink the regions that gateway workers left when they were killed."""
        self._remove(self.audio_prefix)

    def _remove(self, prefix: str) -> None:
        for region in self._shared_memory.glob(f"{prefix}*"):
            remove_unless_held(region)
