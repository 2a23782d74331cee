"""The two halves as docker-compose.yml starts them, with two gateways."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator

import pytest

from containers import SAMPLE_TEXT, Container, command, docker, health, transcribe, wait_until

PROJECT = "parakeet-mps-test"


def compose(*arguments: str, timeout_s: float = 300) -> str:
    """Run Compose, the plugin or the older program, with two free ports for the gateways."""
    client = os.environ.get("DOCKER") or "docker"
    plugin = subprocess.run([client, "compose", "version"], capture_output=True).returncode == 0
    program = [client, "compose"] if plugin else ["docker-compose"]
    return command(
        [*program, "--project-name", PROJECT, *arguments], timeout_s, GATEWAY_WORKERS="1", GATEWAY_PORTS=PORTS
    )


def free_pair() -> str:
    """Return two neighbouring ports that nothing listens on, as Compose writes a range."""
    for port in range(18100, 18900, 2):
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("0.0.0.0", port))
                second.bind(("0.0.0.0", port + 1))
            except OSError:
                continue
            return f"{port}-{port + 1}"
    raise AssertionError("no free ports")


PORTS = free_pair()


@pytest.fixture(scope="module")
def gateways() -> Iterator[list[Container]]:
    """Two gateways in front of one Triton, started by one command."""
    try:
        compose("up", "--detach", "--no-build", "--scale", "gateway=2")
        containers = [Container(identity) for identity in compose("ps", "--quiet", "gateway").split()]
        yield containers
    finally:
        compose("down", "--volumes", "--timeout", "40")


@pytest.fixture
def triton(gateways: list[Container]) -> Container:
    return Container(compose("ps", "--quiet", "triton"))


def test_one_command_starts_triton_then_gateways_that_transcribe(gateways: list[Container]) -> None:
    assert len(gateways) == 2
    for gateway in gateways:
        gateway.wait_healthy()
        assert transcribe(gateway.url) == SAMPLE_TEXT


def test_every_gateway_heeds_the_sentinel_and_a_restart_of_triton_mends_it(
    gateways: list[Container], triton: Container
) -> None:
    triton.execute("touch", "/run/parakeet-mps/wedged")
    for gateway in gateways:
        wait_until(lambda g=gateway: health(g.url).get("failing_check") == "wedge_sentinel", "the sentinel", 30)
    docker("restart", "--time", "40", triton.identity)
    for gateway in gateways:
        gateway.wait_healthy()
        assert transcribe(gateway.url) == SAMPLE_TEXT


def test_the_halves_ship_what_the_whole_ships() -> None:
    digest = "cd /app && find parakeet_mps -type f -not -path '*/__pycache__/*' | sort | xargs cat | sha256sum"
    images = ("parakeet-mps:latest", "parakeet-mps-triton:latest", "parakeet-mps-gateway:latest")
    assert len({docker("run", "--rm", "--entrypoint", "sh", image, "-c", digest) for image in images}) == 1
