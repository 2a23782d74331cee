"""Recordings longer than one piece: through the gateway's pieces, and through the whole chain."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import httpx
import pytest
import torch
from jiwer import process_words

from conftest import RunningService
from parakeet_mps.contract import SAMPLE_RATE_HZ, Recognition, Word
from parakeet_mps.errors import AudioError, DeadlineError, UnavailableError
from parakeet_mps.gateway.deadline import AUDIO_S_PER_S, Deadline
from parakeet_mps.gateway.recognition import recognise
from parakeet_mps.pieces import Part, merge
from recordings import samples_wav

pytestmark = pytest.mark.anyio

PIECE_S = 6.0
BLOCK = 10 * SAMPLE_RATE_HZ
SOUND = torch.full((BLOCK,), 0.1)
SILENCE = torch.zeros(BLOCK)


class Blocks:
    """A decoded recording: counts the blocks that were taken; may end with an error."""

    def __init__(self, *blocks: torch.Tensor, error: Exception | None = None) -> None:
        self._blocks = blocks
        self._error = error
        self.taken = 0

    async def __aiter__(self) -> AsyncIterator[torch.Tensor]:
        for block in self._blocks:
            self.taken += 1
            yield block
        if self._error is not None:
            raise self._error


class HeldRecogniser:
    """Recognises a piece when it is told to, as one word that names it by number."""

    def __init__(self, held: bool = False) -> None:
        self.released: dict[int, asyncio.Event] = {}
        self.timeouts_s: list[float] = []
        self.running: set[int] = set()
        self.most_running = 0
        self.error_of: dict[int, Exception] = {}
        self._held = held
        self.changed = asyncio.Condition()

    async def __call__(self, waveform: torch.Tensor, timeout_s: float, hotwords: Sequence[str]) -> Recognition:
        number = len(self.released)
        self.released[number] = asyncio.Event()
        self.timeouts_s.append(timeout_s)
        self.running.add(number)
        self.most_running = max(self.most_running, len(self.running))
        async with self.changed:
            self.changed.notify_all()
        try:
            await asyncio.sleep(0)
            if self._held:
                await self.released[number].wait()
            if number in self.error_of:
                raise self.error_of[number]
            return Recognition(f"w{number}", waveform.numel() / SAMPLE_RATE_HZ, (), (Word(f"w{number}", 1, 2, 0.9),))
        finally:
            self.running.discard(number)

    def release(self) -> None:
        """Finish all pieces, and those to come at once."""
        self._held = False
        for event in self.released.values():
            event.set()

    async def started(self, count: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.released) >= count)


def deadline(timeout_s: float = 30) -> Deadline:
    return Deadline(timeout_s)


async def parts(blocks: Blocks, recogniser: HeldRecogniser, cap: int = 2, limit: Deadline | None = None) -> list[Part]:
    async with aclosing(recognise(blocks, recogniser, limit or deadline(), (), cap, PIECE_S)) as recognised:
        return [part async for part in recognised]


async def idle() -> None:
    """Let everything run that can run without the recogniser."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_parts_cover_the_recording_in_order() -> None:
    recognised = await parts(Blocks(*[SOUND] * 5), HeldRecogniser(), cap=3)
    ends = [start_s + part.duration for start_s, part in recognised]
    assert recognised[0][0] == 0
    assert [start_s for start_s, _ in recognised[1:]] == pytest.approx(ends[:-1])
    assert ends[-1] == pytest.approx(50)
    assert merge(recognised).duration == pytest.approx(50)


async def test_pieces_that_finish_out_of_order_leave_in_order() -> None:
    recogniser = HeldRecogniser(held=True)
    task = asyncio.create_task(parts(Blocks(SOUND, SILENCE, SOUND), recogniser, cap=4))
    await recogniser.started(4)
    for event in reversed(list(recogniser.released.values())):
        event.set()
        await idle()
    recogniser.release()
    words = merge(await task).text.split()  # one may fall to no piece at a cut inside sound
    assert len(words) >= 4
    assert words == sorted(words)


@pytest.mark.parametrize("cap", [1, 2, 5])
async def test_no_more_pieces_than_the_cap_are_recognised_at_once(cap: int) -> None:
    recogniser = HeldRecogniser(held=True)
    task = asyncio.create_task(parts(Blocks(*[SOUND] * 6), recogniser, cap))
    await recogniser.started(cap)
    await idle()
    assert recogniser.most_running == cap
    recogniser.release()
    await task
    assert recogniser.most_running == cap


async def test_a_recording_is_not_decoded_far_ahead_of_the_recogniser() -> None:
    blocks, recogniser = Blocks(*[SOUND] * 1000), HeldRecogniser(held=True)
    task = asyncio.create_task(parts(blocks, recogniser))
    await recogniser.started(2)
    await idle()
    assert blocks.taken <= 3
    task.cancel()
    await asyncio.wait([task])


async def test_nothing_is_recognised_ahead_of_a_slow_reader() -> None:
    blocks, recogniser = Blocks(*[SOUND] * 1000), HeldRecogniser()
    async with aclosing(recognise(blocks, recogniser, deadline(), (), 2, PIECE_S)) as recognised:
        await anext(recognised)
        await idle()
        assert len(recogniser.released) <= 8


async def test_closing_ends_all_work() -> None:
    before = asyncio.all_tasks()
    blocks, recogniser = Blocks(*[SOUND] * 1000), HeldRecogniser(held=True)
    recognised = recognise(blocks, recogniser, deadline(), (), 3, PIECE_S)
    first = asyncio.ensure_future(anext(recognised))
    await recogniser.started(3)
    first.cancel()
    await asyncio.wait([first])
    await recognised.aclose()
    assert not recogniser.running
    assert asyncio.all_tasks() == before


async def test_silence_is_not_sent_to_the_recogniser() -> None:
    recogniser = HeldRecogniser()
    recognised = merge(await parts(Blocks(*[SILENCE] * 6, SOUND, *[SILENCE] * 6), recogniser))
    assert recognised.duration == pytest.approx(130)
    assert 1 <= len(recogniser.released) <= 4


async def test_the_first_failure_ends_everything_at_once() -> None:
    recogniser = HeldRecogniser(held=True)
    recogniser.error_of[1] = UnavailableError("the recogniser is gone")
    task = asyncio.create_task(parts(Blocks(*[SOUND] * 6), recogniser, cap=3))
    await recogniser.started(3)
    recogniser.released[1].set()
    with pytest.raises(UnavailableError, match="gone"):
        await task
    assert not recogniser.running


async def test_audio_that_cannot_be_decoded_further_is_an_error() -> None:
    with pytest.raises(AudioError, match="damaged"):
        await parts(Blocks(SOUND, error=AudioError("damaged")), HeldRecogniser())


async def test_a_recogniser_that_hangs_is_given_up_in_time() -> None:
    recogniser = HeldRecogniser(held=True)
    with pytest.raises(DeadlineError):
        await parts(Blocks(*[SOUND] * 100), recogniser, limit=deadline(0.1))
    assert not recogniser.running


def test_the_deadline_grows_with_the_audio_but_not_for_one_step() -> None:
    now = 100.0
    limit = Deadline(60, clock=lambda: now)
    limit.extend(3600)
    assert limit.left_s() == 60
    now += 3600 / AUDIO_S_PER_S + 59
    assert limit.left_s() == pytest.approx(1)
    now += 1
    with pytest.raises(DeadlineError):
        limit.left_s()


def joined(clips: Sequence[torch.Tensor], pause_s: float) -> tuple[torch.Tensor, list[float]]:
    """Return clips with a pause behind each, and when each begins (s)."""
    pause = torch.zeros(round(pause_s * SAMPLE_RATE_HZ))
    recording = torch.cat([part for clip in clips for part in (clip, pause)])
    lengths = [clip.numel() + pause.numel() for clip in clips]
    return recording, [begin / SAMPLE_RATE_HZ for begin in itertools.accumulate(lengths, initial=0)][:-1]


def onset_s(clip: torch.Tensor) -> float:
    """Return when the clip is first heard."""
    return float(torch.nonzero(clip.abs() > 0.02 * clip.abs().max())[0]) / SAMPLE_RATE_HZ


async def transcribed(url: str, waveform: torch.Tensor) -> dict[str, Any]:
    """Return the `verbose_json` of the waveform, sent as 16-bit WAV."""
    wav = samples_wav((waveform * 32767).to(torch.int16).numpy().tobytes())
    fields = {"model": "parakeet-tdt", "response_format": "verbose_json", "timestamp_granularities[]": "word"}
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        answer = await client.post("/v1/audio/transcriptions", files={"file": wav}, data=fields)
    return dict(answer.raise_for_status().json())


@pytest.mark.parametrize("pause_s", [0.3, 0.0], ids=["with pauses", "without pauses"])
async def test_a_long_recording_is_heard_as_well_and_timed_as_right_as_its_sentences(
    pause_s: float, service: RunningService, clips: list[torch.Tensor]
) -> None:
    clips = clips[:30]
    recording, begins = joined(clips, pause_s)
    alone = [(await transcribed(service.url, clip))["text"] for clip in clips]
    whole = await transcribed(service.url, recording)
    words = whole["words"]
    assert whole["duration"] == pytest.approx(recording.numel() / SAMPLE_RATE_HZ, abs=1e-3)
    assert whole["text"] == " ".join(word["word"] for word in words)
    assert all(before["end"] <= after["start"] for before, after in itertools.pairwise(words))
    heard = process_words(" ".join(alone), whole["text"])
    assert heard.wer <= 0.01
    first_words = itertools.accumulate((len(text.split()) for text in alone), initial=0)
    places = {
        chunk.ref_start_idx + offset: chunk.hyp_start_idx + offset
        for chunk in heard.alignments[0]
        if chunk.type == "equal"
        for offset in range(chunk.ref_end_idx - chunk.ref_start_idx)
    }
    errors_s = [
        words[places[number]]["start"] - begin - onset_s(clip)
        for number, begin, clip in zip(first_words, begins, clips, strict=False)
        if number in places
    ]
    assert len(errors_s) >= 25
    assert sum(abs(error) <= 0.1 for error in errors_s) >= 0.95 * len(errors_s)
