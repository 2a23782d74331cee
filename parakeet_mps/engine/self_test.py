"""Does a fast path give the text of the plain one? Asked at every start, of a few clips that need no file.

What a graph holds was right when it was captured; the test shows that what its replay reads and writes is, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from parakeet_mps.engine.buzz import buzz
from parakeet_mps.engine.hypotheses import Hypothesis

Recognise = Callable[[Sequence[torch.Tensor]], list[Hypothesis]]

BATCHES_S = (
    (1.3,),
    (5.0, 4.7, 3.1),
    (12.0, 0.4),
    (14.5,),
    (29.0,),
    (44.0,),
    (59.0,),
    (9.0, 7.5) * 4,
    (4.9, 3.3) * 8,
)
"""Durations of the batches compared, where they are not longer than what is recognised."""


def find_change(fast: Recognise, plain: Recognise, longest_s: float) -> str | None:
    """Return how the tokens of two ways to recognise a batch differ, or `None`. An exception is a difference.

    Each batch is asked of the fast way twice, with others in between: a result must not depend on what came before.
    """
    batches = [[buzz(seconds) for seconds in batch] for batch in BATCHES_S if max(batch) + 1 <= longest_s]
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
