"""Sentences spoken word by word, so that it is known when each word sounds."""

from __future__ import annotations

import functools
import io
import random
import subprocess
import wave
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np
import soxr
import torch

from parakeet_mps.contract import SAMPLE_RATE_HZ, Word
from sentences import consultation, draw

VOICES = ("en-us", "en-gb", "en-us+f2", "en-gb+m3")
_AUDIBLE = 0.01  # of the word's peak, 40 dB below it
_NOISE = 1e-3


class Spoken(NamedTuple):
    """A recording, float32 [samples], and its words with the seconds at which each begins and ends."""

    waveform: torch.Tensor
    words: list[Word]

    @property
    def text(self) -> str:
        """The words as text."""
        return " ".join(word.text for word in self.words)


class Shift(NamedTuple):
    """How far a recognised word is from where it was spoken (s)."""

    start: float
    end: float


def sentences(count: int, seed: int) -> list[str]:
    """Return sentences that the demo recogniser was not trained on."""
    rng = random.Random(seed)
    return [draw(rng, consultation, test=True) for _ in range(count)]


def say(text: str, voice: str, gap_s: tuple[float, float], seed: int = 0) -> Spoken:
    """Speak a text word by word, silences between `gap_s` long after each; a second of hiss lies under it."""
    rng = random.Random(seed)
    with ThreadPoolExecutor(2) as pool:
        sounds = list(pool.map(lambda word: _sound(word, voice), text.split()))
    at, parts, words = 0, [], []
    for word, sound in zip([None, *text.split()], [np.zeros(0, np.float32), *sounds], strict=True):
        if word:
            words.append(Word(word, at / SAMPLE_RATE_HZ, (at + sound.size) / SAMPLE_RATE_HZ, 1.0))
        low, high = gap_s if word else (0.1, 0.6)
        silence = np.zeros(int(rng.uniform(low, high) * SAMPLE_RATE_HZ), np.float32)
        parts += [sound, silence]
        at += sound.size + silence.size
    speech = np.concatenate([*parts, np.zeros(SAMPLE_RATE_HZ // 2, np.float32)])
    hiss = np.random.default_rng(seed).standard_normal(speech.size, np.float32) * _NOISE
    return Spoken(torch.from_numpy(speech + hiss), words)


def join(parts: Sequence[Spoken]) -> Spoken:
    """Return one recording of all parts."""
    at, words = 0.0, []
    for part in parts:
        words += [Word(word.text, word.start + at, word.end + at, 1.0) for word in part.words]
        at += part.waveform.numel() / SAMPLE_RATE_HZ
    return Spoken(torch.cat([part.waveform for part in parts]), words)


def shifts(spoken: Sequence[Word], heard: Sequence[Word]) -> Iterator[Shift]:
    """Yield the shift of every word that was heard as spoken."""
    matcher = SequenceMatcher(None, [word.text for word in spoken], [word.text for word in heard], autojunk=False)
    for here, there, size in matcher.get_matching_blocks():
        for word, other in zip(spoken[here : here + size], heard[there : there + size], strict=True):
            yield Shift(other.start - word.start, other.end - word.end)


@functools.cache
def _sound(word: str, voice: str) -> np.ndarray:
    command = ["espeak-ng", "-v", voice, "-s", "165", "--stdout", word]
    spoken = subprocess.run(command, check=True, capture_output=True).stdout
    with wave.open(io.BytesIO(spoken)) as reader:
        rate_hz = reader.getframerate()
        samples = np.frombuffer(reader.readframes(10**9), np.int16).astype(np.float32) / 2**15
    samples = soxr.resample(samples, rate_hz, SAMPLE_RATE_HZ)
    audible = np.flatnonzero(np.abs(samples) > _AUDIBLE * np.abs(samples).max())
    return samples[audible[0] : audible[-1] + 1]
