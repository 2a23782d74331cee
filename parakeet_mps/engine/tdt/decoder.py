"""Decodes batches by repeating a captured chunk of steps until every utterance has come to its end."""

from __future__ import annotations

from typing import Protocol

import torch
from torch.nn import functional

from parakeet_mps.engine.graphs import Capture
from parakeet_mps.engine.hypotheses import Hypothesis, pack, unpack
from parakeet_mps.engine.tdt.state import State
from parakeet_mps.engine.tdt.weights import Weights

CHUNK = 32
"""Steps between two looks at the progress, an even number since two buffers take turns.

A look costs about as much as a step or two; so does each step beyond the end.
"""


class Steps(Protocol):
    """What decodes one step, in three parts; see `reference.ReferenceSteps`."""

    def join(self, state: State) -> None:
        """Compute the logits."""

    def decide(self, state: State) -> None:
        """Take tokens and durations."""

    def predict(self, state: State, side: int) -> None:
        """Advance the prediction network, whose present hidden states are in the buffer `side`."""


class TdtDecoder:
    """Decodes up to `utterances` of up to `frames` encoder frames. Captures once, when it is made."""

    @torch.inference_mode()
    def __init__(self, weights: Weights, steps: Steps, utterances: int, frames: int, capture: Capture) -> None:
        self._weights = weights
        self._state = state = State(weights, utterances, frames)
        state.label.fill_(weights.blank)
        state.found.fill_(1)
        steps.predict(state, 1)  # the blank before the first token; the result is in buffer 0
        state.remember_start()

        def chunk() -> None:
            for number in range(CHUNK):
                steps.join(state)
                steps.decide(state)
                steps.predict(state, number % 2)
            state.note_progress()

        self._restart, self._chunk = capture(state.restart), capture(chunk)

    def fits(self, encoded: torch.Tensor) -> bool:
        """Whether there is room for `encoded` [utterances, frames, channels]."""
        return len(encoded) <= self._state.utterances and encoded.shape[1] <= self._state.frames

    @property
    def at_end(self) -> bool:
        """Whether every utterance of the last batch was decoded to its end."""
        return bool((self._state.time >= self._state.lengths).all())

    @torch.inference_mode()
    def __call__(self, encoded: torch.Tensor, lengths: torch.Tensor) -> list[Hypothesis]:
        """Return the hypotheses of `encoded` [utterances, frames, channels] with `lengths` int64 [utterances]."""
        state, count = self._state, len(encoded)
        projected = functional.linear(encoded, self._weights.project, self._weights.project_bias)
        state.projected[:count, : encoded.shape[1]].copy_(projected)
        state.lengths.zero_()
        state.lengths[:count].copy_(lengths)
        self._restart()
        going_on, most = True, 0
        while going_on:
            self._chunk()
            going_on, most = state.progress.tolist()
        columns = tuple(column[:count, :most] for column in (state.tokens, state.times, state.spans))
        return unpack(pack(state.count[:count], columns, state.confidences[:count, :most]))
