"""Words are timed where their sound is, against speech whose timing is known: short, long and streamed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
import torch

from conftest import RunningService
from parakeet_mps.checkpoint import ROOT
from parakeet_mps.contract import SAMPLE_RATE_HZ, Recognition, Word
from parakeet_mps.engine.edges import Emission, Span, find_edges
from parakeet_mps.engine.loudness import Loudness, quantiles
from parakeet_mps.engine.words import Words, emissions, place_tokens
from parakeet_mps.settings import Settings
from recordings import samples_wav
from spoken_words import VOICES, Shift, Spoken, join, say, sentences, shifts

if TYPE_CHECKING:
    from pathlib import Path

    from parakeet_mps.engine.recognizer import Recognizer

TOLERANCE_S = 0.1
PAUSES_S = (0.12, 0.4)
NONE_S = (0.0, 0.0)
FRAME_S = 0.08


@pytest.fixture(autouse=True)
def _only_the_demo_understands(request: pytest.FixtureRequest) -> None:
    if {"recognizer", "service"} & set(request.fixturenames):
        checkpoint: Path = request.getfixturevalue("checkpoint")
        if checkpoint != ROOT / Settings().model:
            pytest.skip("the words are asked of the demo recogniser")


def heard(recognizer: Recognizer, recording: Spoken) -> Recognition:
    (result,) = recognizer.recognize([recording.waveform])
    assert isinstance(result, Recognition)
    return result


def all_shifts(recognizer: Recognizer, gap_s: tuple[float, float]) -> list[Shift]:
    recordings = [
        say(text, voice, gap_s, seed) for seed, voice in enumerate(VOICES) for text in sentences(5, seed=20 + seed)
    ]
    found = [list(shifts(said.words, heard(recognizer, said).words)) for said in recordings]
    assert sum(map(len, found)) >= 0.8 * sum(len(said.words) for said in recordings)
    return [shift for word_shifts in found for shift in word_shifts]


def test_words_between_pauses_are_timed_to_a_tenth_of_a_second(recognizer: Recognizer) -> None:
    for found in np.array(all_shifts(recognizer, PAUSES_S)).T:
        assert np.mean(np.abs(found) <= TOLERANCE_S) >= 0.98
        assert abs(np.median(found)) <= 0.02


def test_most_words_of_connected_speech_are_timed_to_a_tenth_of_a_second_without_bias(recognizer: Recognizer) -> None:
    for found in np.array(all_shifts(recognizer, NONE_S)).T:
        assert np.mean(np.abs(found) <= TOLERANCE_S) >= 0.9
        assert abs(np.median(found)) <= 0.03


@pytest.fixture(scope="module")
def long_recording() -> Spoken:
    """About a minute and a half: many pieces."""
    return join([say(text, VOICES[seed % 4], PAUSES_S, seed) for seed, text in enumerate(sentences(18, seed=7))])


def ask(service: RunningService, recording: Spoken, **fields: Any) -> httpx.Response:
    samples = (recording.waveform.clamp(-1, 1) * (2**15 - 1)).to(torch.int16).numpy().tobytes()
    fields |= {"model": "parakeet-tdt", "response_format": "verbose_json", "timestamp_granularities[]": "word"}
    url = f"{service.url}/v1/audio/transcriptions"
    return httpx.post(url, files={"file": ("x.wav", samples_wav(samples))}, data=fields, timeout=120)


def assert_timed(recording: Spoken, words: list[dict[str, Any]]) -> None:
    found = [Word(word["word"], word["start"], word["end"], word["confidence"]) for word in words]
    times = [time for word in found for time in (word.start, word.end)]
    assert times == sorted(times)
    assert all(word.start < word.end for word in found)
    assert times[-1] <= recording.waveform.numel() / SAMPLE_RATE_HZ
    late = np.abs(np.array(list(shifts(recording.words, found))))
    assert len(late) >= 0.75 * len(recording.words)  # the recogniser knows no speech of single words
    assert np.mean(late <= TOLERANCE_S) >= 0.98


def test_words_of_a_long_recording_are_timed_as_well(service: RunningService, long_recording: Spoken) -> None:
    assert_timed(long_recording, ask(service, long_recording).json()["words"])


def test_words_of_a_streamed_recording_are_timed_as_well(service: RunningService, long_recording: Spoken) -> None:
    answer = ask(service, long_recording, stream="true")
    events = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: ")]
    told = [word for event in events[:-1] for word in event["words"]]
    assert len(events) > 3
    assert told == events[-1]["words"]
    assert_timed(long_recording, told)


def tone(*spans: tuple[float, float], duration: float = 2.0) -> Loudness:
    """A hum that sounds within the spans (s) only."""
    audio = torch.zeros(int(duration * SAMPLE_RATE_HZ))
    for begin, end in spans:
        audio[int(begin * SAMPLE_RATE_HZ) : int(end * SAMPLE_RATE_HZ)] = 0.3
    return Loudness(audio)


def test_a_first_token_emitted_in_silence_waits_for_the_sound() -> None:
    sound = tone((0.5, 0.9), (1.2, 1.6))
    words = [Emission(0.0, 0.64, 0.64), Emission(1.28, None, 1.28)]
    assert find_edges(words, sound, FRAME_S) == [Span(50, 90), Span(120, 160)]


def test_a_consonants_closure_ends_no_word() -> None:
    sound = tone((0.2, 0.6), (0.65, 0.9))
    assert find_edges([Emission(0.24, 0.4, 0.4)], sound, FRAME_S) == [Span(20, 90)]


def test_words_that_touch_meet_where_the_voice_is_weakest() -> None:
    audio = torch.full((SAMPLE_RATE_HZ,), 0.3)
    audio[7_200:7_520] = 0.1
    first, second = find_edges([Emission(0.0, 0.48, 0.32), Emission(0.48, None, 0.64)], Loudness(audio), FRAME_S)
    assert first.end == second.begin
    assert 45 <= second.begin <= 47


def test_silence_has_no_words_and_no_edges() -> None:
    assert find_edges([], Loudness(torch.zeros(1600)), FRAME_S) == []


def test_words_crowded_at_the_end_of_the_audio_stay_inside_it_and_last() -> None:
    starts = [0.08] * 6
    words = Words(tokens=list(range(6)), bounds=list(range(7)), voiced=list(range(1, 7)))
    spans = find_edges(emissions(starts, words), Loudness(torch.zeros(1600)), FRAME_S)
    begins, ends = place_tokens(starts, words, spans, 0.1)
    times = [time for pair in zip(begins, ends, strict=True) for time in pair]
    assert times == sorted(times)
    assert all(begin < end for begin, end in zip(begins, ends, strict=True))
    assert times[-1] <= 0.1


def test_the_tokens_of_a_word_share_its_span_in_order() -> None:
    words = Words(tokens=[0, 1, 2], bounds=[0, 3], voiced=[2])  # the last one is punctuation
    begins, ends = place_tokens([0.0, 0.64, 1.2], words, [Span(50, 90)], 2.0)
    assert (begins[0], ends[0], begins[1]) == (0.5, 0.64, 0.64)
    assert ends[1] == begins[2] == pytest.approx(0.9, abs=0.002)
    assert ends[2] == 0.9


def test_quantiles_are_those_that_sorting_gives() -> None:
    generator = torch.Generator().manual_seed(1)
    parts = torch.tensor([0.05, 0.95])
    for count in (1, 2, 3, 20, 21, 500, 4501):
        levels = torch.randn(count, generator=generator).mul(20).round(decimals=1)
        assert torch.equal(quantiles(levels, parts), torch.quantile(levels, parts))
