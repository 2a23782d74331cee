"""One CUDA MPS control daemon, with its own pipe and log folders, started, verified and stopped. Standard library only.

CUDA falls back to time slicing in silence when a client cannot reach the daemon, so reaching it is verified here.
https://docs.nvidia.com/deploy/mps/index.html
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from parakeet_mps.process_state import find_end

LOG = logging.getLogger("supervisor")

CONTROL = "nvidia-cuda-mps-control"
SERVER = "nvidia-cuda-mps-server"
COMMAND_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0
TERMINATE_TIMEOUT_S = 2.0
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
            if find_end(pid) is None and _program(pid) == CONTROL:
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

    def command(self, line: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Send one control command, such as `get_server_list`, and return the answer. Raises `MpsError`."""
        return self._run([CONTROL], line + "\n", timeout_s)

    def terminate_clients(self) -> None:
        """Have the servers let go of all their clients, before those are killed: a client that is killed while it
        holds work can hang the others. What does not go is logged.

        https://docs.nvidia.com/deploy/mps/index.html#terminate-client
        """
        try:
            for server in self._ask("get_server_list"):
                for client in self._ask(f"get_client_list {server}"):
                    self._terminate(server, client)
        except MpsError as error:
            LOG.warning("CUDA MPS does not tell of its clients: %s", error)

    def stop(self) -> None:
        """Stop the daemon by `quit`; when that does not end it, kill it. No server of it is left."""
        pid = self.pid
        if pid is not None:
            with contextlib.suppress(MpsError):
                self.command("quit", self._stop_timeout_s)
            self._end(pid, self._stop_timeout_s)
        for server in self._servers():
            self._end(server, 0)

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

    def _terminate(self, server: int, client: int) -> None:
        try:
            self.command(f"terminate_client {server} {client}", TERMINATE_TIMEOUT_S)
        except MpsError as error:  # the others must still go
            LOG.warning("CUDA MPS does not let go of client %d: %s", client, error)

    def _ask(self, command: str) -> list[int]:
        return [int(word) for word in self.command(command, TERMINATE_TIMEOUT_S).split() if word.isdigit()]

    def _servers(self) -> list[int]:
        """Server processes of this daemon: they outlive one that was killed, and hold the GPU."""
        own = f"CUDA_MPS_PIPE_DIRECTORY={self._pipe}".encode()
        pids = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
        return [pid for pid in pids if _program(pid) == SERVER and own in _read(pid, "environ").split(b"\0")]

    def _end(self, pid: int, patience_s: float) -> None:
        if not _wait_gone(pid, patience_s):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            if not _wait_gone(pid, self._stop_timeout_s):
                LOG.error("CUDA MPS process %d does not end, %g s after SIGKILL", pid, self._stop_timeout_s)

    def _run(self, command: list[str], text: str = "", timeout_s: float = COMMAND_TIMEOUT_S) -> str:
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
                    timeout=timeout_s,
                )
                output.seek(begin)
                answer = output.read().decode(errors="replace").strip()
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MpsError(f"{' '.join(command)} failed: {error}") from error
        if done.returncode != 0:
            raise MpsError(f"{' '.join(command)} {text.strip()} ended with status {done.returncode}: {answer[:300]}")
        return answer


def _program(pid: int) -> str | None:
    """Name of the MPS program that the process runs: a pid file outlives restarts and reboots, numbers are reused."""
    names = {Path(os.fsdecode(word)).name for word in _read(pid, "cmdline").split(b"\0")}
    return next(iter(names & {CONTROL, SERVER}), None)


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _wait_gone(pid: int, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while find_end(pid) is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True
