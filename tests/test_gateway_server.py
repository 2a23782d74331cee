"""The gateway as it is started: `python server.py`, two worker processes, here with no Triton behind them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from processes import ROOT, free_port
from recordings import speech

START_TIMEOUT_S = 90.0
DESCRIBED = 'parakeet_requests_total{endpoint="/v1/models/{model:path}",status="200"}'


class Gateway:
    """A running `server.py`."""

    def __init__(self, run_dir: Path) -> None:
        self.port = free_port()
        self.environ = os.environ | {
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            "GATEWAY_WORKERS": "2",
            "TRITON_URL": f"127.0.0.1:{free_port()}",
            "RUN_DIR": str(run_dir),
            "WEDGE_SENTINEL": str(run_dir / "wedged"),
        }
        self._log = run_dir / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen([sys.executable, "server.py"], cwd=ROOT, env=self.environ, stderr=log)

    def log(self) -> str:
        """Return what it has logged."""
        return self._log.read_text()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Ask again and again until `condition` holds; fail when the process ends or time is up."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline
            try:
                self.process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            pytest.fail("the gateway ended")

    def workers(self) -> list[psutil.Process]:
        """Return the processes that write metrics: those that have made their app."""
        pids = {
            int(path.stem.rpartition("_")[2]) for path in Path(self.environ["RUN_DIR"]).glob("metrics/counter_*.db")
        }
        return [child for child in psutil.Process(self.process.pid).children() if child.pid in pids]

    def ready(self) -> bool:
        """Say whether both workers answer."""
        return len(self.workers()) == 2 and self.get("/v1/models").status_code == 200

    def get(self, path: str) -> httpx.Response:
        """GET on a connection of its own, so that any worker may answer."""
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=10)
        except httpx.TransportError:
            return httpx.Response(0)

    def post(self, audio: bytes) -> httpx.Response:
        """Ask for a transcription."""
        url = f"http://127.0.0.1:{self.port}/v1/audio/transcriptions"
        return httpx.post(url, files={"file": ("x", audio)}, data={"model": "parakeet-tdt"}, timeout=10)

    def metric(self, line_start: str) -> float:
        """Return one sample of /metrics, 0 when it is absent."""
        found = re.search(rf"^{re.escape(line_start)} (\S+)$", self.get("/metrics").text, re.MULTILINE)
        return float(found[1]) if found else 0.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path_factory.mktemp("run"))
    try:
        gateway.wait_until(gateway.ready)
        yield gateway
    finally:
        gateway.process.terminate()
        gateway.process.wait(30)


def test_health_names_what_is_missing(gateway: Gateway) -> None:
    response = gateway.get("/health")
    assert (response.status_code, response.json()["failing_check"]) == (503, "triton_live")


def test_a_bad_upload_is_refused_even_without_a_recogniser(gateway: Gateway) -> None:
    began_at = time.monotonic()
    assert gateway.post(b"Dear doctor").status_code == 400
    assert time.monotonic() - began_at < 1.0


def test_a_good_upload_is_told_to_come_back(gateway: Gateway) -> None:
    response = gateway.post(speech())
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) > 0


def test_metrics_are_summed_over_the_workers(gateway: Gateway) -> None:
    before = gateway.metric(DESCRIBED)
    for _ in range(30):
        assert gateway.get("/v1/models/parakeet-tdt").status_code == 200
    assert {gateway.metric(DESCRIBED) for _ in range(5)} == {before + 30.0}
    assert gateway.metric("parakeet_requests_in_flight") == 1.0


def test_a_declared_upload_too_large_is_refused_before_it_is_sent(gateway: Gateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as connection:
        head = "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n\r\n"
        connection.sendall(head.encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))  # until the server closes
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"upload_too_large" in answer


def test_killed_workers_come_back_and_leave_no_requests_in_flight(gateway: Gateway) -> None:
    assert gateway.get("/v1/models/parakeet-tdt").status_code == 200
    counted = gateway.metric(DESCRIBED)
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as unfinished:
        head = "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n"
        unfinished.sendall(f"{head}Content-Type: multipart/form-data; boundary=x\r\n\r\n".encode())
        gateway.wait_until(lambda: gateway.metric("parakeet_requests_in_flight") == 2.0)
        killed = gateway.workers()
        for worker in killed:
            worker.send_signal(signal.SIGKILL)
        gateway.wait_until(lambda: gateway.ready() and not {*killed} & {*gateway.workers()})
    assert gateway.metric("parakeet_requests_in_flight") == 1.0
    assert gateway.metric(DESCRIBED) == counted
    for worker in killed:
        assert f"gateway worker {worker.pid} was ended by SIGKILL, with the requests that it had" in gateway.log()


def test_a_stop_signal_ends_every_process(gateway: Gateway) -> None:
    processes = [psutil.Process(gateway.process.pid), *gateway.workers()]
    gateway.process.terminate()
    gateway.process.wait(30)
    assert not psutil.wait_procs(processes, timeout=5)[1]


def test_a_bad_setting_stops_the_start_at_once() -> None:
    started = subprocess.run(
        [sys.executable, "-c", "import server"],
        cwd=ROOT,
        env=os.environ | {"PORT": "http"},
        capture_output=True,
        text=True,
    )
    assert started.returncode != 0
    assert "PORT='http' is not allowed" in started.stderr
