"""Long recordings of known content: sentences that training never spoke, joined with or without pauses."""

from __future__ import annotations

import io
import random
import wave
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from sentences import consultation, draw
from voices import SAMPLE_RATE_HZ, speak, trained_voice

AUDIBLE = 0.02
"""Part of a sentence's peak above which it is heard."""

ROOM_NOISE = 3.0
"""Standard deviation of the noise in pauses, in steps of 16-bit audio (-81 dB)."""


class Sentence(NamedTuple):
    """int16 [samples] at 16 kHz, what is said, and when it is first and last heard (s)."""

    audio: np.ndarray
    text: str
    onset_s: float
    offset_s: float


class Spoken(NamedTuple):
    """A sentence in a recording: what is said, and when it is first and last heard (s)."""

    text: str
    onset_s: float
    offset_s: float


class Recording(NamedTuple):
    """int16 [samples] at 16 kHz, and what is said in it."""

    audio: np.ndarray
    spoken: list[Spoken]

    @property
    def text(self) -> str:
        """All that is said."""
        return " ".join(sentence.text for sentence in self.spoken)


def speak_sentences(count: int, seed: int = 4) -> list[Sentence]:
    """Speak `count` sentences in the trained voices. Takes a few milliseconds each."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda number: _sentence(random.Random(f"{seed} {number}")), range(count)))


def record(sentences: Sequence[Sentence], seconds: float, pauses_s: tuple[float, float], seed: int = 1) -> Recording:
    """Join sentences, again from the first when they run out, until `seconds` are full."""
    rng, parts, spoken, at = np.random.default_rng(seed), list[np.ndarray](), list[Spoken](), 0
    for sentence in _endless(sentences):
        if at >= seconds * SAMPLE_RATE_HZ:
            return Recording(np.concatenate(parts), spoken)
        begin_s = at / SAMPLE_RATE_HZ
        spoken.append(Spoken(sentence.text, begin_s + sentence.onset_s, begin_s + sentence.offset_s))
        pause = rng.normal(0, ROOM_NOISE, int(rng.uniform(*pauses_s) * SAMPLE_RATE_HZ)).astype(np.int16)
        parts += [sentence.audio, pause]
        at += len(sentence.audio) + len(pause)
    raise AssertionError("the sentences are endless")


def wav(audio: np.ndarray) -> bytes:
    """Return int16 [samples] at 16 kHz as a WAV file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(SAMPLE_RATE_HZ)
        writer.writeframes(audio.tobytes())
    return file.getvalue()


def _sentence(rng: random.Random) -> Sentence:
    text = draw(rng, consultation, test=True)
    audio = speak(text, trained_voice(rng), rng)
    heard = np.flatnonzero(np.abs(audio.astype(np.int32)) > AUDIBLE * np.abs(audio.astype(np.int32)).max())
    return Sentence(audio, text, heard[0] / SAMPLE_RATE_HZ, heard[-1] / SAMPLE_RATE_HZ)


def _endless(sentences: Sequence[Sentence]) -> Iterator[Sentence]:
    while True:
        yield from sentences
