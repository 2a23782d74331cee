"""Real Triton stubs that die, stop, hang and break, behind a real gateway; CUDA MPS is a stand-in."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy
import pytest
from tritonclient import grpc

import fake_mps
from parakeet_mps.choices import make_plan
from parakeet_mps.contract import ASR_MODEL, AUDIO_INPUT, HOTWORDS_INPUT, write_phrases
from parakeet_mps.hardware import Hardware
from parakeet_mps.heartbeat import Pulse, read_pulses
from parakeet_mps.model_config import Locations, recogniser_config
from parakeet_mps.mps import CONTROL
from parakeet_mps.plan import Choice, Plan
from parakeet_mps.run_folder import RunFolder
from parakeet_mps.settings import Settings
from parakeet_mps.supervisor import Restarts, Unit, supervise
from parakeet_mps.units import gateway_services, recogniser_services
from parakeet_mps.wedge import History, Journal, Sentinel, prepare
from processes import ROOT, free_port, runs

LIMIT_S = 90

MODEL = """
import json, os, sys, time
from pathlib import Path
import numpy
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        settings = {key: value["string_value"] for key, value in parameters.items()}
        sys.path.insert(0, settings["package_path"])
        from parakeet_mps import contract
        from parakeet_mps.heartbeat import Heartbeat
        self._contract = contract
        self._heartbeat = Heartbeat(Path(settings["heartbeats"]), args["model_instance_name"], period_s=0.2)
        while not Path(settings["model_path"]).exists():
            time.sleep(0.02)
        self._heartbeat.serve(lambda: None)

    def execute(self, requests):
        with self._heartbeat.busy():
            return [self._respond(request) for request in requests]

    def _respond(self, request):
        said = pb_utils.get_input_tensor_by_name(request, self._contract.HOTWORDS_INPUT)
        said = b"" if said is None else said.as_numpy().tobytes()
        if b"hang" in said:
            time.sleep(3600)
        if b"break" in said:
            self._heartbeat.fail("CUDA error: an illegal memory access was encountered")
        document = self._contract.Recognition(duration=1.0, text="", tokens=(), words=()).to_json()
        output = pb_utils.Tensor(self._contract.RECOGNITION_OUTPUT, numpy.frombuffer(document, numpy.uint8))
        return pb_utils.InferenceResponse([output])
"""


class Running:
    """The whole service in this process, with two recognisers that load once the file `gate` is there."""

    def __init__(self, folder: Path, restarts: Restarts) -> None:
        self.run = RunFolder(folder / "run")
        self.gate = folder / "gate"
        self.gate.touch()
        self.sentinel = Sentinel(folder / "wedged")
        self.history = History(folder / "wedged")
        self.settings = Settings(
            host="127.0.0.1",
            port=free_port(),
            triton_url=f"127.0.0.1:{free_port()}",
            triton_http_port=free_port(),
            triton_metrics_port=free_port(),
        )
        environ = {
            **os.environ,
            **fake_mps.install(folder / "bin"),
            "RUN_DIR": str(self.run.root),
            "WEDGE_SENTINEL": str(folder / "wedged"),
            "PORT": str(self.settings.port),
            "HOST": "127.0.0.1",
            "TRITON_URL": self.settings.triton_url,
            "GATEWAY_WORKERS": "1",
        }
        plan = self._plan()
        self._write_model(plan)
        prepare(folder / "wedged")
        services = recogniser_services(self.settings, plan, self.run, environ)
        journal = Journal(self.history, self.sentinel)
        recognisers = Unit(services, journal, restarts, startup_timeout_s=LIMIT_S)
        gateway = gateway_services(self.settings, environ)
        self.triton, self.gateway = services[1], gateway[0]
        units = [
            recognisers,
            Unit(gateway, Journal(self.history), Restarts(), startup_timeout_s=LIMIT_S, needs=recognisers),
        ]
        self.ready = 0
        self.status: list[int] = []
        self._thread = threading.Thread(target=lambda: self.status.append(asyncio.run(self._supervise(units))))
        self._thread.start()

    async def _supervise(self, units: list[Unit]) -> int:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        return await supervise(units, self._stop, self._changed)

    def _changed(self, ready: bool) -> None:
        self.ready += ready

    def _plan(self) -> Plan:
        plan = make_plan(Settings(mps_instance_count=2, execute_limit_s=2), Hardware(2, 8192, 1024))
        return dataclasses.replace(plan, mps=Choice(True, "a stand-in"), gpu=Choice("GPU-1", "there is none"))

    def _write_model(self, plan: Plan) -> None:
        locations = Locations(str(self.gate), "", str(ROOT), "", str(self.run.heartbeats))
        version = self.run.model_repository / ASR_MODEL / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(MODEL)
        (version.parent / "config.pbtxt").write_text(recogniser_config(plan, locations).render())

    def until(self, holds: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not holds():
            assert time.monotonic() < deadline, f"{what} did not come in {LIMIT_S} s"
            time.sleep(0.01)

    def until_ready(self, times: int) -> None:
        self.until(lambda: self.ready >= times or self.status, "being ready")
        assert not self.status

    def pulses(self) -> list[Pulse]:
        return read_pulses(self.run.heartbeats)

    def send(self, phrase: str) -> None:
        """Send one request to Triton that tells the recogniser what to do, and wait for no answer."""
        audio = grpc.InferInput(AUDIO_INPUT, [1, 160], "FP32")
        audio.set_data_from_numpy(numpy.zeros((1, 160), numpy.float32))
        document = numpy.frombuffer(write_phrases([phrase]), numpy.uint8)[None]
        phrases = grpc.InferInput(HOTWORDS_INPUT, document.shape, "UINT8")
        phrases.set_data_from_numpy(document)
        client = grpc.InferenceServerClient(self.settings.triton_url)
        client.async_infer(ASR_MODEL, [audio, phrases], lambda result, error: None)

    def health(self) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self.settings.port}/health", timeout=30)

    def events(self) -> list[dict[str, Any]]:
        path = self.history.path
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def mps_daemon(self) -> int:
        return int((self.run.mps("GPU-1") / f"pipe/{CONTROL}.pid").read_text())

    def mps_commands(self) -> list[str]:
        return (self.run.mps("GPU-1") / "log/commands").read_text().splitlines()

    def close(self) -> None:
        if not self.status:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self.run.remove_shared_memory()  # as the whole service does in the end


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("recovery"), Restarts(most=100, first_delay_s=0))
    running.until_ready(1)
    yield running
    running.close()
    assert running.status == [0]


def kill_stub(service: Running) -> tuple[str, str]:
    victim = service.pulses()[1]
    os.kill(victim.pid, signal.SIGKILL)
    return f"parakeet_asr_0_1 (process {victim.pid})", "was ended by SIGKILL"


def stop_stub(service: Running) -> tuple[str, str]:
    victim = service.pulses()[0]
    os.kill(victim.pid, signal.SIGSTOP)
    return f"parakeet_asr_0_0 (process {victim.pid})", "was stopped by a signal"


def hang_stub(service: Running) -> tuple[str, str]:
    service.send("hang")
    return "parakeet_asr_0_", "has been busy with one batch for more than EXECUTE_LIMIT_S=2 s"


def break_stub(service: Running) -> tuple[str, str]:
    service.send("break")
    return "parakeet_asr_0_", "reports CUDA error: an illegal memory access was encountered"


def kill_triton(service: Running) -> tuple[str, str]:
    os.kill(service.triton.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    return "tritonserver", "was ended by SIGKILL"


def kill_mps(service: Running) -> tuple[str, str]:
    os.kill(service.mps_daemon(), signal.SIGKILL)
    return "mps", "ended"


@pytest.mark.parametrize("harm", [kill_stub, stop_stub, hang_stub, break_stub, kill_triton, kill_mps])
def test_what_fails_is_named_and_replaced_while_the_gateway_stays(
    harm: Callable[[Running], tuple[str, str]], service: Running
) -> None:
    gateway, stubs, before = service.gateway.pid, service.pulses(), len(service.events())  # type: ignore[attr-defined]
    ready, commands = service.ready, len(service.mps_commands())
    assert service.health().status_code == 200
    service.gate.unlink()
    try:
        who, why = harm(service)
        service.until(service.sentinel.read, "the sentinel")
        wedge = service.sentinel.read()
        assert wedge is not None
        assert wedge.who.startswith(who)
        assert wedge.why == why
        unhealthy = service.health()
        assert (unhealthy.status_code, unhealthy.json()["failing_check"]) == (503, "wedge_sentinel")
        assert f"{wedge.who} {why}" in unhealthy.json()["reason"]
    finally:
        service.gate.touch()
    service.until_ready(ready + 1)
    assert service.sentinel.read() is None
    service.until(lambda: service.health().status_code == 200, "health")
    assert service.gateway.pid == gateway  # type: ignore[attr-defined]
    assert not [stub.pid for stub in stubs if runs(stub.pid)]
    assert len(service.pulses()) == 2
    wedged, recovered = service.events()[before:]
    assert (wedged["event"], wedged["who"], wedged["why"]) == ("wedge", wedge.who, why)
    assert (recovered["event"], recovered["who"]) == ("recovery", wedge.who)
    assert recovered["seconds"] > 0
    if harm is not kill_mps:
        asked = service.mps_commands()[commands:]
        assert asked.index("terminate_client 4711 12") < asked.index("quit")


def test_a_run_folder_that_somebody_emptied_is_filled_again(service: Running) -> None:
    ready = service.ready
    for folder in (service.run.model_repository, service.run.triton, service.run.heartbeats):
        shutil.rmtree(folder)
    service.until_ready(ready + 1)
    assert len(service.pulses()) == 2
    service.until(lambda: service.health().status_code == 200, "health")


def test_a_gateway_that_fails_is_restarted_alone(service: Running) -> None:
    ready, before, stubs = service.ready, len(service.events()), service.pulses()
    os.kill(service.gateway.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    service.until_ready(ready + 1)
    assert [stub.pid for stub in service.pulses()] == [stub.pid for stub in stubs]
    assert [(event["event"], event["who"]) for event in service.events()[before:]] == [
        ("failure", "gateway"),
        ("restart", "gateway"),
    ]


def test_a_leftover_does_not_block_the_start_and_repeated_failures_end_the_service(tmp_path: Path) -> None:
    Sentinel(tmp_path / "wedged").mark("parakeet_asr_0_0", "was ended by SIGKILL")
    service = Running(tmp_path, Restarts(most=1, first_delay_s=0))
    try:
        for times in (1, 2):
            service.until_ready(times)
            kill_stub(service)
        service.until(lambda: service.status, "the end")
    finally:
        service.close()
    assert service.status == [1]
    assert [event["event"] for event in service.events()] == ["leftover", "wedge", "recovery", "wedge", "give_up"]
    assert service.sentinel.read() is not None
    assert not [pulse.pid for pulse in service.pulses() if runs(pulse.pid)]
