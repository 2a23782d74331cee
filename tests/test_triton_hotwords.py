"""Phrases to boost through the whole chain: the form, gRPC, a real Triton's batches, and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from tritonclient.grpc import InferInput, aio
from tritonclient.utils import InferenceServerException

from conftest import RunningService
from parakeet_mps.audio import decode
from parakeet_mps.checkpoint import ROOT
from parakeet_mps.contract import (
    ASR_MODEL,
    AUDIO_INPUT,
    BAD_UTTERANCE,
    HOTWORDS_FAULT,
    HOTWORDS_INPUT,
    RECOGNITION_OUTPUT,
    Recognition,
    write_phrases,
)
from parakeet_mps.settings import Settings
from recordings import speech

RARE = "no known allergies to advil"

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def only_the_demo_misses_these_words(checkpoint: Path) -> None:
    if checkpoint != ROOT / Settings().model:
        pytest.skip("these words are strange to the demo recogniser")


@pytest.fixture
async def http(service: RunningService) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
        yield client


@pytest.fixture
async def triton(service: RunningService) -> AsyncIterator[aio.InferenceServerClient]:
    async with aio.InferenceServerClient(service.triton_url) as client:
        yield client


@pytest.fixture(scope="module")
def rare() -> torch.Tensor:
    return decode(speech(RARE), max_audio_s=60)


async def upload(http: httpx.AsyncClient, **fields: str | list[str]) -> httpx.Response:
    files = {"file": ("recording", speech(RARE))}
    return await http.post("/v1/audio/transcriptions", files=files, data={"model": "parakeet-tdt", **fields})


async def recognize(triton: aio.InferenceServerClient, audio: torch.Tensor, *phrases: str) -> Recognition:
    document = np.frombuffer(write_phrases(phrases), dtype=np.uint8)
    inputs = [tensor(AUDIO_INPUT, audio.numpy(), "FP32"), tensor(HOTWORDS_INPUT, document, "UINT8")]
    answer = await triton.infer(ASR_MODEL, inputs)
    return Recognition.from_json(answer.as_numpy(RECOGNITION_OUTPUT).tobytes())


def tensor(name: str, values: Any, data_type: str) -> InferInput:
    made = InferInput(name, [1, values.size], data_type)
    made.set_data_from_numpy(values[None])
    return made


async def batches(triton: aio.InferenceServerClient) -> int:
    """Return how many batches Triton has run."""
    statistics = await triton.get_inference_statistics(ASR_MODEL)
    return int(statistics.model_stats[0].execution_count)


@pytest.mark.parametrize(
    "fields",
    [
        {"hotwords": "Advil"},
        {"hotwords": "tramadol, advil\nxarelto"},
        {"hotwords": ["tramadol", "advil"]},
        {"prompt": "Notes on pain killers such as Advil."},
    ],
    ids=["one", "several in a field", "several fields", "prompt"],
)
async def test_a_rare_word_comes_out_only_when_boosted(
    fields: dict[str, str | list[str]], http: httpx.AsyncClient
) -> None:
    plain, boosted = await asyncio.gather(upload(http), upload(http, **fields))
    assert "advil" not in plain.json()["text"]
    assert boosted.json()["text"] == RARE
    assert "x-ignored-parameters" not in boosted.headers


async def test_requests_with_and_without_phrases_share_a_batch_and_keep_their_own_text(
    triton: aio.InferenceServerClient, rare: torch.Tensor, clips: list[torch.Tensor]
) -> None:
    alone = [await recognize(triton, clip) for clip in clips[:8]]
    before = await batches(triton)
    # In turn: a batch that had to be of one kind would end at each request.
    phrases = [("advil",), ("sepsis",)] * 4
    work = [
        ask
        for own, clip in zip(phrases, clips, strict=False)
        for ask in (recognize(triton, rare, *own), recognize(triton, clip))
    ]
    together = await asyncio.gather(*work)
    assert await batches(triton) - before < len(work) / 2
    assert [answer.text == RARE for answer in together[::2]] == [True, False] * 4
    assert [answer.text for answer in together[1::2]] == [answer.text for answer in alone]


@pytest.mark.parametrize(
    ("phrases", "reason"),
    [(("x" * 101,), "has 101 characters"), (("\u60a3\u8005",), "does not write")],
    ids=["too long", "foreign letters"],
)
async def test_bad_phrases_in_a_batch_are_that_request_s_error_alone(
    phrases: tuple[str, ...], reason: str, triton: aio.InferenceServerClient, rare: torch.Tensor
) -> None:
    good = [recognize(triton, rare, "advil") for _ in range(3)]
    error, *answers = await asyncio.gather(recognize(triton, rare, *phrases), *good, return_exceptions=True)
    assert isinstance(error, InferenceServerException)
    assert f"{BAD_UTTERANCE}{HOTWORDS_FAULT}" in error.message()
    assert reason in error.message()
    assert [answer.text for answer in answers if isinstance(answer, Recognition)] == [RARE] * 3


@pytest.mark.parametrize(
    "hotwords",
    [",".join(f"word{number}" for number in range(101)), "x" * 101, "advil :9", "\u60a3\u8005"],
    ids=["too many", "too long", "too heavy", "foreign letters"],
)
async def test_bad_phrases_are_refused_naming_the_field(hotwords: str, http: httpx.AsyncClient) -> None:
    answer = await upload(http, hotwords=hotwords)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "hotwords"
    assert answer.json()["error"]["message"].startswith(HOTWORDS_FAULT)
