"""A sound that resembles speech, made without a file, for the tests that a recogniser does of itself at its start."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from parakeet_mps.contract import SAMPLE_RATE_HZ


def buzz(duration: float) -> torch.Tensor:
    """Return such a sound of about `duration` s, float32 [samples], the same every time."""
    return torch.cat(list(_syllables(duration)))


def _syllables(duration: float) -> Iterator[torch.Tensor]:
    """Yield a buzz of a voice's pitch through two resonances that change four times a second, with pauses."""
    samples = SAMPLE_RATE_HZ // 4
    time = torch.arange(samples) / SAMPLE_RATE_HZ
    envelope = torch.sin(torch.arange(samples) * (math.pi / samples))
    for number in range(math.ceil(duration * 4)):
        resonances = (300 + 90 * (number * 5 % 7), 900 + 260 * (number * 3 % 8))
        harmonics = torch.arange(1, 30) * (110 + 4 * (number % 9))
        loudness = torch.stack([1 / (1 + ((harmonics - resonance) / 120) ** 2) for resonance in resonances]).sum(0)
        voice = (loudness[:, None] * torch.sin(2 * math.pi * harmonics[:, None] * time)).sum(0)
        yield voice * envelope * (0.0 if number % 9 == 8 else 0.05)
