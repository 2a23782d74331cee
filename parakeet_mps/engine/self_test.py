"""Does a fast path give the text of the plain one? Asked at every start, of a few clips that need no file.

What a graph holds was right when it was captured; the test shows that what its replay reads and writes is, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch

from parakeet_mps.contract import SAMPLE_RATE_HZ
from parakeet_mps.engine.hypotheses import Hypothesis

Recognise = Callable[[Sequence[torch.Tensor]], list[Hypothesis]]

BATCHES_S = ((1.3,), (5.0, 4.7, 3.1), (12.0, 0.4), (14.5,), (29.0,), (44.0,))
"""Durations of the batches compared, where they are not longer than what is recognised."""


def find_difference(fast: Recognise, plain: Recognise, longest_s: float) -> str | None:
    """Return how the tokens of two ways to recognise a batch differ, or `None`. An exception is a difference.

    Each batch is asked of the fast way twice, with others in between: a result must not depend on what came before.
    """
    batches = [batch for batch in map(_batch, BATCHES_S) if max(map(len, batch)) <= longest_s * SAMPLE_RATE_HZ]
    try:
        first = [_tokens(fast(batch)) for batch in batches]
        expected = [_tokens(plain(batch)) for batch in batches]
        again = [_tokens(fast(batch)) for batch in batches]
    except Exception as error:  # noqa: BLE001 - whatever is wrong with the fast way, there is the plain one
        return f"{type(error).__name__}: {error}"
    wrong = [
        batch for batch, one, two, true in zip(batches, first, again, expected, strict=True) if not one == two == true
    ]
    return f"{len(wrong)} of {len(batches)} batches differ" if wrong else None


def _tokens(hypotheses: list[Hypothesis]) -> list[tuple[list[int], list[int]]]:
    return [(hypothesis.tokens, hypothesis.frames) for hypothesis in hypotheses]


def _batch(durations_s: Sequence[float]) -> list[torch.Tensor]:
    return [torch.cat(list(_syllables(duration))) for duration in durations_s]


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
