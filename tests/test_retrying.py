"""Requests outlive the recogniser's absence and its crashes."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
import torch

from echo_triton import CRASH, EchoTriton, said
from fakes import HELLO, FakeTranscriber
from parakeet_mps.contract import Recognition
from parakeet_mps.errors import AudioError, DeadlineError, LostError, UnavailableError, UnreachableError
from parakeet_mps.gateway.app import create_app
from parakeet_mps.gateway.audio_transport import AudioTransport
from parakeet_mps.gateway.metrics import Metrics
from parakeet_mps.gateway.retrying import ARRIVAL_PATIENCE_S, RetryingTranscriber
from parakeet_mps.gateway.triton import TritonTranscriber
from parakeet_mps.settings import Settings
from recordings import speech

WAVEFORM = torch.zeros(16_000)
LOST, UNREACHABLE = LostError("lost"), UnreachableError("unreachable")

pytestmark = pytest.mark.anyio


class Recogniser(FakeTranscriber):
    """Answers its calls with `outcomes` in turn; is ready, after a failure, when asked the `ready_at`th time."""

    def __init__(self, *outcomes: Recognition | Exception, ready_at: int = 1) -> None:
        super().__init__()
        self.outcomes = list(outcomes)
        self.asked = 0
        self.timeouts: list[float] = []
        self._ready_at = ready_at

    async def transcribe(self, waveform: torch.Tensor, timeout_s: float, hotwords: Sequence[str] = ()) -> Recognition:
        self.timeouts.append(timeout_s)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def ready(self, timeout_s: float) -> bool:
        self.asked += 1
        return self.asked >= self._ready_at


@pytest.fixture
def retries() -> list[str]:
    return []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EchoTriton]:
    server = EchoTriton(tmp_path_factory.mktemp("triton"))
    yield server
    server.kill()


@pytest.fixture
def absent(server: EchoTriton) -> EchoTriton:
    """A server that does not run."""
    server.kill()
    return server


@pytest.fixture
def triton(server: EchoTriton) -> EchoTriton:
    """A server that is ready."""
    if server.pid is None:
        server.start()
    server.wait_ready()
    return server


def around(recogniser: FakeTranscriber, retries: list[str]) -> RetryingTranscriber:
    return RetryingTranscriber(recogniser, retried=lambda: retries.append("retried"), settles_s=0)


async def test_what_a_crash_took_is_sent_again_when_the_recogniser_is_back(retries: list[str]) -> None:
    recogniser = Recogniser(LOST, HELLO, ready_at=3)
    assert await around(recogniser, retries).transcribe(WAVEFORM, 60) == HELLO
    assert recogniser.asked == 3
    assert retries == ["retried"]
    assert recogniser.timeouts[1] < 60


async def test_it_is_sent_again_only_once(retries: list[str]) -> None:
    recogniser = Recogniser(LOST, LOST, HELLO)
    with pytest.raises(LostError):
        await around(recogniser, retries).transcribe(WAVEFORM, 60)
    assert recogniser.outcomes == [HELLO]


@pytest.mark.parametrize("timeout_s", [0.1, 0.8])
async def test_a_recogniser_that_does_not_come_back_is_a_503_within_the_deadline(
    timeout_s: float, retries: list[str]
) -> None:
    recogniser = Recogniser(LOST, ready_at=10**6)
    began_at = time.monotonic()
    with pytest.raises(LostError):
        await around(recogniser, retries).transcribe(WAVEFORM, timeout_s)
    assert time.monotonic() - began_at <= timeout_s
    assert retries == []


async def test_nothing_is_sent_again_while_a_recovery_is_under_way(retries: list[str]) -> None:
    looks = iter([True, True, False])
    recogniser = Recogniser(LOST, HELLO)
    retrying = RetryingTranscriber(recogniser, recovering=lambda: next(looks), settles_s=0)
    assert await retrying.transcribe(WAVEFORM, 60) == HELLO
    assert recogniser.asked == 1


@pytest.mark.parametrize("error", [UnavailableError("full"), DeadlineError("late"), AudioError("bad")])
async def test_other_failures_are_not_retried(error: Exception, retries: list[str]) -> None:
    recogniser = Recogniser(error, HELLO)
    with pytest.raises(type(error)):
        await around(recogniser, retries).transcribe(WAVEFORM, 60)
    assert (recogniser.outcomes, retries) == ([HELLO], [])


async def test_what_could_not_be_sent_waits_a_little_and_is_no_retry(retries: list[str]) -> None:
    recogniser = Recogniser(UNREACHABLE, HELLO, ready_at=2)
    assert await around(recogniser, retries).transcribe(WAVEFORM, 60) == HELLO
    assert retries == []


async def test_many_that_wait_ask_one_at_a_time(retries: list[str]) -> None:
    recogniser = Recogniser(*[LOST] * 20, *[HELLO] * 20, ready_at=3)
    retrying = around(recogniser, retries)
    answers = await asyncio.gather(*(retrying.transcribe(WAVEFORM, 60) for _ in range(20)))
    assert answers == [HELLO] * 20
    assert recogniser.asked == 2 + 20


async def test_without_a_server_the_answer_comes_soon(absent: EchoTriton, retries: list[str]) -> None:
    transcriber = around(TritonTranscriber(absent.url), retries)
    began_at = time.monotonic()
    with pytest.raises(UnavailableError):
        await transcriber.transcribe(WAVEFORM, timeout_s=60)
    assert ARRIVAL_PATIENCE_S <= time.monotonic() - began_at < 2 * ARRIVAL_PATIENCE_S
    await transcriber.close()


async def test_a_server_that_has_just_become_ready_is_reached(absent: EchoTriton, retries: list[str]) -> None:
    inner = TritonTranscriber(absent.url)
    transcriber = around(inner, retries)
    absent.start()
    ready = asyncio.create_task(asyncio.to_thread(absent.wait_ready))
    while not ready.done():  # as /health does, it finds nobody and puts the channel into its pause, to the last moment
        await inner.live(1)
        await asyncio.sleep(0.01)
    assert (await transcriber.transcribe(WAVEFORM, timeout_s=60)).text == said(WAVEFORM)
    assert retries == []
    await transcriber.close()


async def test_concurrent_requests_survive_a_server_that_is_killed_and_started_again(
    triton: EchoTriton, retries: list[str]
) -> None:
    transcriber = around(TritonTranscriber(triton.url), retries)
    waveforms = [torch.full((16_000 + number,), number / 50) for number in range(20)]
    slow = [asyncio.create_task(transcriber.transcribe(waveform, 60, ["0.1"])) for waveform in waveforms]
    await asyncio.wait(slow, return_when=asyncio.FIRST_COMPLETED)
    triton.kill()
    doomed = asyncio.create_task(transcriber.transcribe(WAVEFORM, 60))  # finds nothing running, and does not wait long
    triton.start()
    answers = await asyncio.gather(*slow)
    assert [answer.text for answer in answers] == [said(waveform) for waveform in waveforms]
    assert retries
    await asyncio.gather(doomed, return_exceptions=True)
    assert not doomed.exception() or isinstance(doomed.exception(), UnavailableError)
    await transcriber.close()


@pytest.mark.parametrize("audio_transport", ["shm", "grpc"])
async def test_over_http_a_killed_server_costs_no_request_more_than_a_503(
    audio_transport: str, triton: EchoTriton, tmp_path: Path
) -> None:
    settings = Settings(run_dir=str(tmp_path), audio_transport=audio_transport, wedge_sentinel=str(tmp_path / "wedged"))
    metrics = Metrics()
    inner = TritonTranscriber(triton.url, AudioTransport.of(settings, metrics.sent_audio))
    transport = httpx.ASGITransport(create_app(settings, inner, metrics))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=60) as client:
        expected = (await post(client)).text
        first = [asyncio.create_task(post(client)) for _ in range(8)]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        triton.kill()
        in_between = asyncio.create_task(post(client))
        triton.start()
        answers = await asyncio.gather(*first, in_between)
        for answer in answers:
            assert answer.text == expected if answer.status_code == 200 else "retry-after" in answer.headers
        assert {answer.status_code for answer in answers[:8]} == {200}
        assert answers[8].status_code in (200, 503)
        await asyncio.to_thread(triton.wait_ready)
        assert (await post(client)).text == expected
        retries = re.search(r"^parakeet_retries_total (\S+)", (await client.get("/metrics")).text, re.MULTILINE)
        assert retries
        assert float(retries[1]) > 0
    await inner.close()


async def post(client: httpx.AsyncClient) -> httpx.Response:
    files, slowly = {"file": ("x", speech())}, {"hotwords": "0.2"}
    return await client.post("/v1/audio/transcriptions", files=files, data={"model": "parakeet-tdt"} | slowly)


async def test_a_request_that_kills_its_recogniser_kills_two_and_no_more(tmp_path: Path, retries: list[str]) -> None:
    triton = EchoTriton(tmp_path, instances=3)
    inner = TritonTranscriber(triton.url)
    try:
        triton.start()
        await asyncio.to_thread(triton.wait_ready)
        with pytest.raises(LostError):
            await around(inner, retries).transcribe(WAVEFORM, 60, [CRASH])
        assert retries == ["retried"]
        one_by_one = [await outcome(inner) for _ in range(4)]
        assert said(WAVEFORM) in one_by_one
    finally:
        triton.kill()
        await inner.close()


async def outcome(transcriber: TritonTranscriber) -> str:
    try:
        return (await transcriber.transcribe(WAVEFORM, 60)).text
    except LostError as error:
        return error.message
