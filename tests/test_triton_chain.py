"""The whole chain on real speech: HTTP, decoding, gRPC, a real Triton, the recogniser, and back."""

from __future__ import annotations

import asyncio
import io
import re
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import torch
from tritonclient import grpc
from tritonclient.grpc import InferInput, aio
from tritonclient.utils import InferenceServerException

from conftest import RunningService
from parakeet_mps.checkpoint import ROOT
from parakeet_mps.contract import ASR_MODEL, AUDIO_INPUT, BAD_UTTERANCE, RECOGNITION_OUTPUT, Recognition
from parakeet_mps.settings import Settings
from recordings import encoded, speech

MODEL = "parakeet-tdt"
SENTENCE = "the patient presents with cough and loss of appetite"
FORMATS = ("json", "text", "srt", "verbose_json", "vtt")

pytestmark = pytest.mark.anyio


@pytest.fixture
async def triton(service: RunningService) -> AsyncIterator[aio.InferenceServerClient]:
    async with aio.InferenceServerClient(service.triton_url) as client:
        yield client


@pytest.fixture
async def http(service: RunningService) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
        yield client


@pytest.fixture
def client(service: RunningService) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def only_the_demo_understands(checkpoint: Path) -> None:
    if checkpoint != ROOT / Settings().model:
        pytest.skip("these words are asked of the demo recogniser")


async def recognize(triton: aio.InferenceServerClient, audio: torch.Tensor) -> Recognition:
    tensor = InferInput(AUDIO_INPUT, [1, audio.numel()], "FP32")
    tensor.set_data_from_numpy(audio.numpy()[None])
    answer = await triton.infer(ASR_MODEL, [tensor])
    return Recognition.from_json(answer.as_numpy(RECOGNITION_OUTPUT).tobytes())


def batch_sizes(service: RunningService) -> dict[int, int]:
    """Return how often Triton has run a batch of each size."""
    with grpc.InferenceServerClient(service.triton_url) as client:
        statistics = client.get_inference_statistics(ASR_MODEL).model_stats[0]
    return {batch.batch_size: batch.compute_infer.count for batch in statistics.batch_stats}


async def upload(http: httpx.AsyncClient, data: bytes, **fields: str) -> tuple[httpx.Response, float]:
    """Return the answer to an upload, and the seconds it took."""
    begin = time.monotonic()
    files = {"file": ("recording", data)}
    answer = await http.post("/v1/audio/transcriptions", files=files, data={"model": MODEL, **fields})
    return answer, time.monotonic() - begin


async def test_concurrent_requests_of_different_lengths_share_batches_and_get_their_own_text(
    service: RunningService, triton: aio.InferenceServerClient, clips: list[torch.Tensor]
) -> None:
    utterances = [torch.cat(clips[index : index + 1 + index % 3]) for index in range(32)]
    assert len({utterance.numel() for utterance in utterances}) > 20
    alone = [await recognize(triton, utterance) for utterance in utterances]
    before = batch_sizes(service)
    together = await asyncio.gather(*(recognize(triton, utterance) for utterance in utterances))
    assert [result.text for result in together] == [result.text for result in alone]
    assert [result.duration for result in together] == [result.duration for result in alone]
    after = batch_sizes(service)
    assert any(size > 1 and count > before.get(size, 0) for size, count in after.items())


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (torch.full((16_000,), float("nan")), "not finite"),
        (torch.zeros(10), "too short"),
        (torch.zeros(61 * 16_000), "too long"),
    ],
    ids=["NaN", "too short", "too long"],
)
async def test_a_bad_request_in_a_batch_gets_its_own_error(
    bad: torch.Tensor, reason: str, triton: aio.InferenceServerClient, clips: list[torch.Tensor]
) -> None:
    good = [recognize(triton, clip) for clip in clips[:7]]
    answers = await asyncio.gather(*good[:3], recognize(triton, bad), *good[3:], return_exceptions=True)
    error = answers.pop(3)
    assert isinstance(error, InferenceServerException)
    assert BAD_UTTERANCE in error.message()
    assert reason in error.message()
    assert all(isinstance(answer, Recognition) for answer in answers)


@pytest.mark.usefixtures("only_the_demo_understands")
async def test_the_words_of_a_fresh_sentence_come_back(http: httpx.AsyncClient) -> None:
    answer, _ = await upload(http, speech(SENTENCE))
    assert answer.json()["text"] == SENTENCE


@pytest.mark.usefixtures("only_the_demo_understands")
async def test_silence_says_nothing(http: httpx.AsyncClient) -> None:
    answer, _ = await upload(http, encoded(speech(SENTENCE), "wav", "-af", "volume=0"), response_format="text")
    assert answer.text.strip() == ""


async def test_every_response_format_carries_the_same_text(http: httpx.AsyncClient) -> None:
    answers = {name: (await upload(http, speech(SENTENCE), response_format=name))[0] for name in FORMATS}
    assert {answer.status_code for answer in answers.values()} == {200}
    text = answers["json"].json()["text"]
    assert answers["verbose_json"].json()["text"] == text
    assert answers["text"].text.strip() == text
    assert answers["vtt"].text.startswith("WEBVTT")
    for name in ("srt", "vtt"):
        assert " --> " in answers[name].text
        assert text.split()[0] in answers[name].text


CODECS: dict[str, tuple[str, ...]] = {
    "wav": (),
    "flac": (),
    "mp3": ("-b:a", "128k"),
    "m4a": ("-b:a", "128k"),
    "webm": ("-c:a", "libopus", "-b:a", "96k"),
}


@pytest.mark.parametrize("suffix", CODECS)
async def test_the_openai_client_transcribes_what_ffmpeg_encodes(
    suffix: str, client: openai.OpenAI, checkpoint: Path
) -> None:
    file = io.BytesIO(encoded(speech(SENTENCE), suffix, *CODECS[suffix]))
    answer = await asyncio.to_thread(
        client.audio.transcriptions.create, model=MODEL, file=(f"recording.{suffix}", file), temperature=0.0
    )
    assert answer.text
    if checkpoint == ROOT / Settings().model:
        assert answer.text == SENTENCE


async def test_the_openai_client_reads_word_times(client: openai.OpenAI) -> None:
    answer: Any = await asyncio.to_thread(
        client.audio.transcriptions.create,
        model=MODEL,
        file=("recording.wav", speech(SENTENCE)),
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    assert [word.word for word in answer.words] == answer.text.split()
    assert all(0 <= word.start < word.end <= answer.duration for word in answer.words)
    assert answer.segments


async def test_damaged_uploads_among_good_ones_are_refused_fast_and_hurt_nobody(http: httpx.AsyncClient) -> None:
    wav = speech(SENTENCE)
    (alone, _) = await upload(http, wav)
    bad = [b"this is a text file, not a recording\n" * 40, b"", wav[:45]]  # the header, and half a sample
    good = [upload(http, wav) for _ in range(4)]
    answers = await asyncio.gather(*(upload(http, data) for data in bad), *good)
    for answer, elapsed in answers[: len(bad)]:
        assert answer.status_code == 400
        assert answer.json()["error"]["type"] == "invalid_request_error"
        assert elapsed < 1
    assert [answer.json()["text"] for answer, _ in answers[len(bad) :]] == [alone.json()["text"]] * 4


async def test_neither_what_was_said_nor_the_name_of_a_file_reaches_the_log(
    service: RunningService, http: httpx.AsyncClient
) -> None:
    files = {"file": ("smith-jones.wav", speech(SENTENCE))}
    answer = await http.post("/v1/audio/transcriptions", files=files, data={"model": MODEL})
    deadline = time.monotonic() + 10
    while answer.headers["x-request-id"] not in (log := service.log.read_text()):
        assert time.monotonic() < deadline, "the request is not logged"
        await asyncio.sleep(0.05)
    assert "smith" not in log
    assert answer.json()["text"] not in log


async def test_audio_reaches_the_triton_of_this_machine_through_shared_memory(http: httpx.AsyncClient) -> None:
    await upload(http, speech(SENTENCE))
    exposition = (await http.get("/metrics")).text
    (sent,) = re.findall(r'^parakeet_audio_sent_bytes_total\{transport="shm"\} (\S+)', exposition, re.MULTILINE)
    assert float(sent) > 0


async def test_the_service_is_healthy_and_lists_its_model(http: httpx.AsyncClient) -> None:
    assert (await http.get("/health")).status_code == 200
    assert MODEL in [model["id"] for model in (await http.get("/v1/models")).json()["data"]]


def test_nothing_is_left_of_the_unpacked_checkpoint(service: RunningService) -> None:
    assert not (service.log.parent / "run" / "checkpoint").exists()
