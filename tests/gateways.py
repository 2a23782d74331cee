"""A gateway in processes of its own, with a recogniser that can be held, and clients that misbehave."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from pathlib import Path

import httpx

from processes import ROOT, free_port
from recordings import speech

WAIT_S = 60.0
PATH = "/v1/audio/transcriptions"
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=x\r\n"


def form() -> bytes:
    """Return the body of a good request, for the boundary `x`."""
    return (
        b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nparakeet-tdt\r\n'
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="smith.wav"\r\n\r\n'
        + speech()
        + b"\r\n--x--\r\n"
    )


def wait_until(condition: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
    """Ask again and again until `condition` holds; fail when time is up."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


class HeldGateway:
    """Two running workers whose recogniser answers only while it is not held."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        settings = {"HOST": "127.0.0.1", "PORT": str(self.port), "GATEWAY_WORKERS": "2", "RUN_DIR": str(folder)}
        paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "WEDGE_SENTINEL": str(folder / "wedged")}
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(ROOT / "tests" / "held_gateway.py")],
                cwd=ROOT,
                env=os.environ | settings | paths | environ,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait_ready(self) -> None:
        """Return when both workers serve."""
        wait_until(lambda: len(self.workers()) == 2 and self._answers())

    def workers(self) -> set[int]:
        """Return the processes that have made their app."""
        return {int(path.stem.rpartition("_")[2]) for path in self.folder.glob("metrics/counter_*.db")}

    def hold(self) -> None:
        """Let no call of the recogniser return."""
        (self.folder / "hold").touch()

    def release(self) -> None:
        """Let the recogniser answer."""
        (self.folder / "hold").unlink(missing_ok=True)

    def count(self, what: str) -> int:
        """Return how many calls of the recogniser have `started`, were `answered` or `cancelled`."""
        return len(list(self.folder.glob(f"{what}.*")))

    def post(self, timeout_s: float = 60.0) -> httpx.Response:
        """Ask for a transcription, on a connection of its own."""
        return httpx.post(self.url + PATH, files={"file": speech()}, data={"model": "parakeet-tdt"}, timeout=timeout_s)

    def get(self, path: str) -> httpx.Response:
        """GET on a connection of its own."""
        return httpx.get(self.url + path, timeout=30)

    def connect(self) -> socket.socket:
        """Open a connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def send(self) -> socket.socket:
        """Send a whole good request and return its connection."""
        connection, body = self.connect(), form()
        connection.sendall(f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return connection

    def metrics(self) -> dict[str, float]:
        """Return every sample of /metrics by its name and labels."""
        found = re.findall(r"^(parakeet_\S+?(?:\{.*\})?) (\S+)$", self.get("/metrics").text, re.MULTILINE)
        return {name: float(value) for name, value in found}

    def in_flight(self) -> float:
        """Return the requests in flight, without the one that asks."""
        return self.metrics()["parakeet_requests_in_flight"] - 1

    def log(self) -> str:
        """Return what the gateway wrote so far."""
        return (self.folder / "log").read_text()

    def stop(self) -> None:
        """End it, by force when it must be."""
        self.release()
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        self.process.kill()
        self.process.wait()

    def _answers(self) -> bool:
        try:
            return self.get("/v1/models").status_code in (200, 401)
        except httpx.TransportError:
            return False


@contextlib.contextmanager
def held_gateway(folder: Path, **environ: str) -> Iterator[HeldGateway]:
    """A gateway that serves, and is stopped at the end."""
    gateway = HeldGateway(folder, **environ)
    try:
        gateway.wait_ready()
        yield gateway
    finally:
        gateway.stop()


def read_response(connection: socket.socket) -> tuple[int, str]:
    """Return the status and the head and body of a response."""
    response = HTTPResponse(connection)
    response.begin()
    return response.status, f"{response.headers}{response.read().decode()}".lower()


def outcomes(metrics: dict[str, float]) -> dict[str, float]:
    """Return how many requests have ended in which way, over all reasons."""
    counts = {"answered": 0.0, "refused": 0.0, "cancelled": 0.0}
    for name, value in metrics.items():
        if match := re.match(r'parakeet_outcomes_total\{outcome="(\w+)"', name):
            counts[match[1]] += value
    return counts
