"""The whole service in one container: `make images` runs these tests after it built the images."""

from __future__ import annotations

import json
import threading
import wave
from pathlib import Path
from typing import Any

import httpx
import pytest

from containers import (
    READ_ONLY,
    SAMPLE,
    SAMPLE_TEXT,
    UNPRIVILEGED,
    WORKERS,
    Container,
    docker,
    health,
    transcribe,
    wait_until,
)

SENTINEL = "/tmp/parakeet_wedged"

RECOGNISER = "triton_python_backend_stub"
TRITON = "/tritonserver --model-repository"
GATEWAY_WORKER = "spawn_main"


def test_without_a_gpu_it_transcribes_on_the_cpu_and_says_so(service: Container) -> None:
    assert transcribe(service.url) == SAMPLE_TEXT
    assert "auto_config: device = cpu: no NVIDIA GPU is visible" in service.logs()


def test_docker_sees_its_health(service: Container) -> None:
    wait_until(lambda: service.inspect("State.Health.Status") == "healthy", "Docker's health check", 60)


def test_nothing_in_it_runs_as_root(service: Container) -> None:
    owners = service.execute("bash", "-c", "stat -c %u /proc/[0-9]*").split()
    assert "0" not in owners


def test_nothing_of_it_can_be_changed_by_the_service(service: Container) -> None:
    assert service.execute("bash", "-c", "find /app /opt/venv -writable -not -type l | head -n 1") == ""


@pytest.mark.parametrize("victim", [RECOGNISER, TRITON, GATEWAY_WORKER])
def test_a_killed_process_is_replaced_and_the_container_goes_on(service: Container, victim: str) -> None:
    started_at = service.inspect("State.StartedAt")
    old = service.processes(victim)
    service.execute("bash", "-c", f"kill -KILL {old[0]}")
    wait_until(lambda: len(set(service.processes(victim)) - {old[0]}) == len(old), f"another {victim}")
    service.wait_healthy()
    assert transcribe(service.url) == SAMPLE_TEXT
    assert service.inspect("State.StartedAt") == started_at


def test_process_1_collects_every_process_that_ends(service: Container) -> None:
    service.execute("bash", "-c", "setsid --fork sleep 0.1; (sleep 0.1 &)")
    wait_until(lambda: not service.processes("^sleep"), "both ended", 30)
    wait_until(lambda: not service.zombies(), "no zombies", 30)


class Stream(threading.Thread):
    """A request for the transcript of a minute of speech, event by event; `heard` is set at the first."""

    def __init__(self, url: str, recording: Path) -> None:
        super().__init__()
        self.url, self.recording = url, recording
        self.heard = threading.Event()
        self.events: list[dict[str, Any]] = []

    def run(self) -> None:
        form = {"model": "parakeet-tdt", "stream": "true"}
        url = f"{self.url}/v1/audio/transcriptions"
        with (
            self.recording.open("rb") as file,
            httpx.stream("POST", url, data=form, files={"file": file}, timeout=120) as answer,
        ):
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    self.events.append(json.loads(line.removeprefix("data: ")))
                    self.heard.set()


@pytest.fixture
def minute(tmp_path: Path) -> Path:
    """A recording of a minute: the sample ten times."""
    with wave.open(str(SAMPLE)) as sample, wave.open(str(tmp_path / "minute.wav"), "wb") as recording:
        recording.setparams(sample.getparams())
        samples = sample.readframes(sample.getnframes())
        for _ in range(10):
            recording.writeframes(samples)
    return tmp_path / "minute.wav"


def test_a_stop_lets_the_request_in_flight_finish(service: Container, minute: Path) -> None:
    request = Stream(service.url, minute)
    request.start()
    assert request.heard.wait(60)
    docker("stop", "--time", "60", service.identity)
    request.join(60)
    assert request.events[-1]["type"] == "transcript.text.done"
    assert request.events[-1]["text"].split().count("morning") == 10
    assert service.inspect("State.ExitCode") == 0
    assert "tritonserver stopped in" in service.logs()


def test_a_sentinel_left_behind_does_not_keep_the_next_start_unhealthy(service: Container) -> None:
    service.execute("touch", SENTINEL)
    wait_until(lambda: health(service.url).get("failing_check") == "wedge_sentinel", "the sentinel is heeded", 30)
    docker("kill", service.identity)
    service.start()
    service.wait_healthy()
    assert service.execute("bash", "-c", f"ls {SENTINEL} 2>/dev/null || echo gone") == "gone"
    assert transcribe(service.url) == SAMPLE_TEXT


def test_any_user_and_a_read_only_file_system_will_do() -> None:
    container = Container.run("parakeet-mps:latest", "--shm-size=2g", *READ_ONLY, *UNPRIVILEGED, *WORKERS)
    try:
        container.wait_healthy()
        assert transcribe(container.url) == SAMPLE_TEXT
    finally:
        container.remove()


def test_local_attention_is_baked_in_and_hears_the_same() -> None:
    container = Container.run("parakeet-mps:local-attention", "--shm-size=2g", *WORKERS)
    try:
        config = container.execute("tar", "-xOf", "models/model.nemo", "./model_config.yaml")
        assert "self_attention_model: rel_pos_local_attn" in config
        container.wait_healthy()
        assert transcribe(container.url) == SAMPLE_TEXT
    finally:
        container.remove()
