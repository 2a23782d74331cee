"""The gateway's image alone, as any user and on a read-only file system, with no Triton within reach."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest

from containers import READ_ONLY, SAMPLE, UNPRIVILEGED, WORKERS, Container, docker, health, wait_until

IMAGE = "parakeet-mps-gateway:latest"
WATCHED = ("--health-start-period", "1ms", "--health-interval", "1s", "--health-retries", "2")
"""Docker looks at once and often; how it looks is the image's."""
GRACE_S = 10

ABSENT_FILES = (
    "libcuda*",
    "libcudart*",
    "libcudnn*",
    "libcublas*",
    "libnvrtc*",
    "libnccl*",
    "libtorch_cuda*",
    "tritonserver",
)
ABSENT_PACKAGES = ("nemo", "pytriton", "triton", "nvidia", "lightning")


@pytest.fixture(scope="module")
def gateway() -> Iterator[Container]:
    container = Container.run(IMAGE, *READ_ONLY, *UNPRIVILEGED, *WATCHED, *WORKERS)
    try:
        wait_until(lambda: health(container.url)["status_code"], "its port", 60)
        yield container
    finally:
        container.remove()


def upload(gateway: Container, audio: bytes) -> httpx.Response:
    url = f"{gateway.url}/v1/audio/transcriptions"
    return httpx.post(url, data={"model": "parakeet-tdt"}, files={"file": audio}, timeout=30)


def test_its_health_names_the_triton_that_is_missing(gateway: Container) -> None:
    found = health(gateway.url)
    assert (found["status_code"], found["failing_check"], found["reason"]) == (
        503,
        "triton_live",
        "Triton does not answer",
    )


def test_docker_sees_that_it_is_unhealthy(gateway: Container) -> None:
    wait_until(lambda: gateway.inspect("State.Health.Status") == "unhealthy", "Docker's health check", 60)
    assert gateway.inspect("State.Running")


def test_it_serves_its_page_and_its_metrics(gateway: Container) -> None:
    page = httpx.get(gateway.url, headers={"accept": "text/html"})
    assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (200, "text/html")
    metrics = httpx.get(f"{gateway.url}/metrics")
    assert metrics.status_code == 200
    assert "parakeet_triton_up 0.0" in metrics.text.splitlines()


def test_it_refuses_an_upload_that_is_no_audio_and_puts_off_one_that_is(gateway: Container) -> None:
    broken = upload(gateway, b"Dear doctor")
    assert (broken.status_code, broken.json()["error"]["code"]) == (400, "invalid_audio")
    good = upload(gateway, SAMPLE.read_bytes())
    assert (good.status_code, good.json()["error"]["code"]) == (503, "service_unavailable")
    assert int(good.headers["retry-after"]) > 0


def test_nothing_in_it_runs_as_root(gateway: Container) -> None:
    assert set(gateway.execute("bash", "-c", "stat -c %u /proc/[0-9]*").split()) == {"12345"}


def test_it_has_no_nemo_no_cuda_and_no_triton(gateway: Container) -> None:
    names = " -o ".join(f"-name '{name}'" for name in ABSENT_FILES)
    assert gateway.execute("bash", "-c", rf"find / -xdev \( {names} \) 2>/dev/null || true") == ""
    look = "import importlib.util, sys; print([name for name in sys.argv[1:] if importlib.util.find_spec(name)])"
    assert gateway.execute("python3", "-c", look, *ABSENT_PACKAGES) == "[]"
    assert gateway.execute("python3", "-c", "import torch; print(torch.version.cuda)") == "None"


def test_a_stop_ends_it_in_order_and_in_time(gateway: Container) -> None:
    began_at = time.monotonic()
    docker("stop", "--time", str(GRACE_S), gateway.identity)
    assert time.monotonic() - began_at < GRACE_S
    assert gateway.inspect("State.ExitCode") == 0
    assert "gateway stopped in" in gateway.logs()
