"""GET /health is 200 only when a transcription would succeed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from fakes import FakeTranscriber
from parakeet_mps.errors import DeadlineError, UnavailableError
from parakeet_mps.gateway.app import create_app
from parakeet_mps.gateway.draining import Drain
from parakeet_mps.gateway.health import Health
from parakeet_mps.settings import Settings
from parakeet_mps.wedge import Sentinel

pytestmark = pytest.mark.anyio


@pytest.fixture
def transcriber() -> FakeTranscriber:
    return FakeTranscriber()


@pytest.fixture
def sentinel(tmp_path: Path) -> Path:
    return tmp_path / "wedged"


@pytest.fixture
async def client(transcriber: FakeTranscriber, sentinel: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings(wedge_sentinel=str(sentinel)), transcriber)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        yield client


async def test_all_checks_pass(client: httpx.AsyncClient, transcriber: FakeTranscriber) -> None:
    response = await client.get("/health")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
    assert transcriber.audio_s == 0.5


async def failing_check(client: httpx.AsyncClient) -> str:
    response = await client.get("/health")
    assert response.status_code == 503
    assert response.json()["reason"]
    return str(response.json()["failing_check"])


async def test_a_dead_triton_is_named(client: httpx.AsyncClient, transcriber: FakeTranscriber) -> None:
    transcriber.is_live = False
    assert await failing_check(client) == "triton_live"


async def test_an_unloaded_model_is_named(client: httpx.AsyncClient, transcriber: FakeTranscriber) -> None:
    transcriber.is_ready = False
    assert await failing_check(client) == "model_ready"


@pytest.mark.parametrize("raised", [UnavailableError("full"), DeadlineError("slow"), ValueError("no document")])
async def test_a_failing_canary_is_named(
    client: httpx.AsyncClient, transcriber: FakeTranscriber, raised: Exception
) -> None:
    transcriber.error = raised
    assert await failing_check(client) == "canary"


async def test_the_sentinel_is_seen_at_once_and_forgotten_at_once(client: httpx.AsyncClient, sentinel: Path) -> None:
    assert (await client.get("/health")).status_code == 200
    sentinel.touch()
    assert await failing_check(client) == "wedge_sentinel"
    sentinel.unlink()
    assert (await client.get("/health")).status_code == 200


async def test_the_sentinel_tells_who_failed_and_why(client: httpx.AsyncClient, sentinel: Path) -> None:
    Sentinel(sentinel).mark("recogniser 2 (process 41)", "was ended by SIGKILL")
    reason = (await client.get("/health")).json()["reason"]
    assert reason.startswith("recogniser 2 (process 41) was ended by SIGKILL; recovery is under way since 2")


async def test_many_probes_share_one_canary(client: httpx.AsyncClient, transcriber: FakeTranscriber) -> None:
    transcriber.gate.clear()
    probes = [asyncio.create_task(client.get("/health")) for _ in range(20)]
    while not transcriber.waveforms:
        await asyncio.sleep(0)
    transcriber.gate.set()
    assert {response.status_code for response in await asyncio.gather(*probes)} == {200}
    assert len(transcriber.waveforms) == 1


async def test_a_canary_stuck_behind_traffic_that_succeeds_is_no_failure(
    transcriber: FakeTranscriber, sentinel: Path
) -> None:
    health = Health(transcriber, sentinel, Drain(limit_s=1))
    transcriber.error = DeadlineError("slow")
    transcriber.gate.clear()
    verdict = asyncio.create_task(health.verdict())
    while not transcriber.waveforms:
        await asyncio.sleep(0)
    health.proved()
    transcriber.gate.set()
    assert (await verdict).healthy
