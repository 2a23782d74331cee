"""The whole service, started for a measurement, and the memory that its gateway takes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.sampling import sampled

ROOT = Path(__file__).parent.parent
START_LIMIT_S = 300

PARTS = {"tritonserver": "Triton", "triton_python_backend_stub": "recognisers"}
"""Processes by the names of their programs; all others are the gateway's."""

GATEWAY = "gateway"
SHARED = "shared memory"


class ServiceNotReadyError(RuntimeError):
    """The service ended while it started, or took too long."""


class Service:
    """A running service: `url` of its gateway, its folder `run`, and the process that supervises all others."""

    def __init__(self, url: str, run: Path, process: subprocess.Popen[bytes]) -> None:
        self.url, self.run = url, run
        self._process = psutil.Process(process.pid)

    def memory_mb(self) -> dict[str, float]:
        """Return the memory (MiB) of the service's parts: what its processes hold for themselves, and /dev/shm."""
        sizes = dict.fromkeys((*PARTS.values(), GATEWAY, SHARED), 0.0)
        for process in self._process.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, IndexError):  # it has ended, or is about to
                memory, program = process.memory_info(), Path(process.cmdline()[0]).name
                sizes[PARTS.get(program, GATEWAY)] += (memory.rss - memory.shared) / 2**20
        return sizes | {SHARED: psutil.disk_usage("/dev/shm").used / 2**20}

    def gateway_memory_mb(self) -> list[float]:
        """Return the resident memory of every gateway process now, the largest first; decoding processes included."""
        return sorted((size / 2**20 for size in map(_resident, self._gateway())), reverse=True)

    def watched_memory(self) -> contextlib.AbstractContextManager[list[list[float]]]:
        """Yield a list that fills with `gateway_memory_mb`, four times a second."""
        return sampled(self.gateway_memory_mb, 0.25)

    def _gateway(self) -> list[psutil.Process]:
        (gateway,) = (child for child in self._process.children() if "server.py" in " ".join(child.cmdline()))
        return [gateway, *gateway.children(recursive=True)]


@contextlib.contextmanager
def running_service(root: Path = ROOT, log: Path | None = None, **settings: str) -> Iterator[Service]:
    """Start the service on free ports with `settings` as environment variables; stop it in the end.

    `root` is the project's folder, `log` where its output goes instead of this process's.
    """
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        run = Path(folder) / "run"
        ports = dict(zip(("PORT", "TRITON_HTTP_PORT", "TRITON_METRICS_PORT", "GRPC"), _free_ports(4), strict=True))
        address = {"HOST": "127.0.0.1", "TRITON_URL": f"127.0.0.1:{ports.pop('GRPC')}", "RUN_DIR": str(run)}
        environ = os.environ | {name: str(port) for name, port in ports.items()} | address | settings
        output = stack.enter_context(log.open("wb")) if log else None
        command = [sys.executable, "-m", "parakeet_mps.service"]
        process = subprocess.Popen(command, cwd=root, env=environ, stdout=output, stderr=output)
        try:
            _wait_for(run / "ready", process)
            yield Service(f"http://127.0.0.1:{ports['PORT']}", run, process)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in servers]


def _wait_for(ready: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise ServiceNotReadyError("the service did not become ready; its log says why")
        time.sleep(0.1)


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
