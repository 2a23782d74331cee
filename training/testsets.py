"""Sentences that training never spoke, in the conditions of the model card. The same seed gives the same audio."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.signal import butter, sosfilt

from sentences import consultation, draw, random_words
from voices import HELD_OUT_ESPEAK, HELD_OUT_FLITE, SAMPLE_RATE_HZ, speak, trained_voice


class Clip(NamedTuple):
    """One test utterance: float32 [samples] at 16 kHz, and what is said in it."""

    audio: np.ndarray
    text: str


Clips = Callable[[random.Random], Clip]


def _spoken(source: Callable[[random.Random], str], voices: Callable[[random.Random], str], rng: random.Random) -> Clip:
    text = draw(rng, source, test=True)
    return Clip(speak(text, voices(rng), rng).astype(np.float32) / 32768, text)


_plain = partial(_spoken, consultation, trained_voice)


def _silence(seconds: float, level: float, rng: random.Random) -> np.ndarray:
    return (
        np.random.default_rng(rng.getrandbits(32)).normal(0, 1, int(seconds * SAMPLE_RATE_HZ)).astype(np.float32)
        * level
    )


def _joined(rng: random.Random) -> Clip:
    """Sentences with pauses up to between 20 and 40 s."""
    limit, parts, texts = rng.uniform(20, 40) * SAMPLE_RATE_HZ, [], []
    voice = trained_voice(rng)
    while sum(map(len, parts)) + 6 * SAMPLE_RATE_HZ < limit:
        clip = _spoken(consultation, lambda _: voice, rng)
        parts += [clip.audio, _silence(rng.uniform(0.2, 0.8), 1e-4, rng)]
        texts.append(clip.text)
    return Clip(np.concatenate(parts), " ".join(texts))


def _short(rng: random.Random) -> Clip:
    """One word: about half a second."""
    while len((clip := _spoken(random_words, trained_voice, rng)).text.split()) > 1:
        pass
    return clip


def _padded(level: float, rng: random.Random) -> Clip:
    clip = _plain(rng)
    around = [_silence(rng.uniform(0.5, 4), level, rng) for _ in range(2)]
    return Clip(np.concatenate([around[0], clip.audio, around[1]]), clip.text)


def _telephone(rng: random.Random) -> Clip:
    clip = _plain(rng)
    passband = butter(8, [200, 3600], btype="bandpass", fs=SAMPLE_RATE_HZ, output="sos")
    return Clip(sosfilt(passband, clip.audio).astype(np.float32), clip.text)


def _noisy(rng: random.Random) -> Clip:
    clip = _plain(rng)
    level = float(np.sqrt(np.mean(clip.audio**2))) * 10 ** (-15 / 20)
    return Clip(clip.audio + _silence(len(clip.audio) / SAMPLE_RATE_HZ, level, rng)[: len(clip.audio)], clip.text)


def _nothing(rng: random.Random) -> Clip:
    level = rng.choice((0.0, 1e-4, 1e-3, 1e-2, 0.1, 0.3))
    return Clip(_silence(rng.uniform(0.5, 20), level, rng), "")


TESTS: dict[str, tuple[int, Clips]] = {
    "consultation, trained voices": (200, _plain),
    "consultation, held-out espeak-ng variants": (
        150,
        partial(_spoken, consultation, lambda rng: rng.choice(HELD_OUT_ESPEAK)),
    ),
    "consultation, held-out flite voice": (150, partial(_spoken, consultation, lambda _: HELD_OUT_FLITE)),
    "random common words, trained voices": (150, partial(_spoken, random_words, trained_voice)),
    "single words, trained voices": (60, _short),
    "20 to 40 s of sentences": (15, _joined),
    "inside 1 to 8 s of digital zeros": (60, partial(_padded, 0.0)),
    "inside 1 to 8 s of faint noise": (60, partial(_padded, 1e-3)),
    "8 kHz telephone band": (60, _telephone),
    "white noise at 15 dB": (60, _noisy),
    "silence and noise (words out)": (60, _nothing),
}

LIMITS = {
    "consultation, trained voices": 2.0,
    "consultation, held-out espeak-ng variants": 6.0,
    "consultation, held-out flite voice": 15.0,
    "random common words, trained voices": 10.0,
    "silence and noise (words out)": 0.0,
}
"""Most word error (%) that a released demo recogniser may have; 0 means that no word may come out."""


def speak_tests(sets: Mapping[str, tuple[int, Clips]] = TESTS, seed: int = 2026) -> dict[str, list[Clip]]:
    """Speak every test set; of a smaller one, the first clips of the whole. Takes a few seconds a core."""

    def speak_set(name: str) -> list[Clip]:
        count, clips = sets[name]
        return [clips(random.Random(f"{seed} {name} {number}")) for number in range(count)]

    with ThreadPoolExecutor() as pool:
        return dict(zip(sets, pool.map(speak_set, sets), strict=True))
