"""One CUDA MPS control daemon, with its own pipe and log folders, started, verified and stopped. Standard library only.

CUDA falls back to time slicing in silence when a client cannot reach the daemon, so reaching it is verified here.
https://docs.nvidia.com/deploy/mps/index.html
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

CONTROL = "nvidia-cuda-mps-control"
COMMAND_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0
_POLL_S = 0.05

MOST_PIPE_PATH = 90
"""A Unix socket's path holds 107 bytes; CUDA adds file names such as `/control_privileged` to the folder."""


class MpsError(RuntimeError):
    """The MPS daemon could not be started, reached or stopped."""


class MpsDaemon:
    """The daemon of the GPU with UUID `gpu`, in `folder`; as a context manager it runs for the length of the block."""

    def __init__(
        self,
        folder: Path,
        gpu: str,
        environ: Mapping[str, str] = os.environ,
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> None:
        self._pipe, self._log = folder / "pipe", folder / "log"
        self._gpu = gpu
        self._stop_timeout_s = stop_timeout_s
        self._environ = {**environ, **self.client_environ()}

    def client_environ(self) -> dict[str, str]:
        """Variables that a client must have to reach this daemon. A UUID means the same GPU to daemon and clients."""
        return {
            "CUDA_MPS_PIPE_DIRECTORY": str(self._pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self._log),
            "CUDA_VISIBLE_DEVICES": self._gpu,
        }

    @property
    def pid(self) -> int | None:
        """Process id of the running daemon."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self._pipe / f"{CONTROL}.pid").read_text())
            if _runs(pid) and _is_daemon(pid):
                return pid
        return None

    def start(self) -> None:
        """Start and verify the daemon; one left over in this folder is stopped first. Raises `MpsError`."""
        if len(str(self._pipe).encode()) > MOST_PIPE_PATH:
            raise MpsError(f"RUN_DIR is too long for CUDA MPS: {self._pipe} has more than {MOST_PIPE_PATH} bytes")
        self.stop()
        for folder in (self._pipe, self._log):
            folder.mkdir(parents=True, exist_ok=True)
        self._run([CONTROL, "-d"])
        self.verify()

    def verify(self) -> None:
        """Ask the daemon for its servers. Raises `MpsError` when it does not answer."""
        self.command("get_server_list")

    def command(self, line: str) -> str:
        """Send one control command, such as `get_server_list`, and return the answer. Raises `MpsError`."""
        return self._run([CONTROL], line + "\n")

    def stop(self) -> None:
        """Stop the daemon by `quit`; when that does not end it, kill it."""
        pid = self.pid
        if pid is None:
            return
        with contextlib.suppress(MpsError):
            self.command("quit")
        if not _wait_gone(pid, self._stop_timeout_s):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            _wait_gone(pid, self._stop_timeout_s)

    def log_tail(self) -> str:
        """Return the last lines of the daemon's log."""
        with contextlib.suppress(OSError):
            return "\n".join((self._log / "control.log").read_text(errors="replace").splitlines()[-20:])
        return ""

    def __enter__(self) -> MpsDaemon:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self, command: list[str], text: str = "") -> str:
        try:
            # The daemon keeps what it inherits: with a pipe as its output, waiting for the end of it would not end.
            with (self._log / "commands.log").open("a+b") as output:
                begin = output.seek(0, os.SEEK_END)
                done = subprocess.run(
                    command,
                    input=text.encode(),
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self._environ,
                    timeout=COMMAND_TIMEOUT_S,
                )
                output.seek(begin)
                answer = output.read().decode(errors="replace").strip()
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MpsError(f"{' '.join(command)} failed: {error}") from error
        if done.returncode != 0:
            raise MpsError(f"{' '.join(command)} {text.strip()} ended with status {done.returncode}: {answer[:300]}")
        return answer


def _runs(pid: int) -> bool:
    """Tell whether the process runs; one that ended and waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _is_daemon(pid: int) -> bool:
    """Tell a daemon from a process that got the number of one that is gone: the file outlives restarts and reboots."""
    command = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
    return any(Path(word).name == CONTROL for word in command)


def _wait_gone(pid: int, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while _runs(pid):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True
