"""What a batch being decoded consists of: fixed tensors, so that CUDA graphs can hold them."""

from __future__ import annotations

import torch

from parakeet_mps.engine.tdt.weights import Weights

ROWS = 16
"""Utterances are decoded in multiples of this, the height of a matrix product's tile; spare ones have no frames."""


class State:
    """The state of up to `utterances` utterances of up to `frames` frames.

    `projected` [rows, frames, joint] and `predicted` [rows, joint] are the encoder's and the prediction network's
    halves of the joint, `hidden` two buffers of [layers, rows, hidden] that take turns, in the weights' dtype; `cell`
    fp32 [layers, rows, hidden]; `logits` fp32 [rows, outputs]. `lengths`, `time`, `count`, `last_time`, `last_count`,
    `label` and `found` are int32 [rows]. Tokens found are in `tokens`, `times`, `spans` int32 and `confidences` fp32
    [rows, width]. `progress` int32 [2]: whether any utterance goes on, and the most tokens of one.
    """

    def __init__(self, weights: Weights, utterances: int, frames: int) -> None:
        rows = -(-utterances // ROWS) * ROWS
        self.utterances, self.frames, self.rows = utterances, frames, rows
        device, dtype = weights.join.device, weights.join.dtype
        layers, width = 1 + len(weights.layers), frames * weights.max_symbols
        self.projected = torch.zeros(rows, frames, weights.joint, dtype=dtype, device=device)
        self.predicted = torch.zeros(rows, weights.joint, dtype=dtype, device=device)
        self.hidden = torch.zeros(2, layers, rows, weights.hidden, dtype=dtype, device=device)
        self.cell = torch.zeros(layers, rows, weights.hidden, device=device)
        self.logits = torch.zeros(rows, len(weights.join), device=device)
        integers = torch.zeros(7, rows, dtype=torch.int32, device=device)
        self.lengths, self.time, self.count, self.last_time, self.last_count, self.label, self.found = integers.unbind()
        found = torch.zeros(3, rows, width, dtype=torch.int32, device=device)
        self.tokens, self.times, self.spans = found.unbind()
        self.confidences = torch.zeros(rows, width, device=device)
        self.progress = torch.zeros(2, dtype=torch.int32, device=device)
        self._start: tuple[torch.Tensor, ...] = ()

    def remember_start(self) -> None:
        """Take the prediction network's present state as the one before every utterance's first token."""
        self._start = (self.predicted.clone(), self.hidden.clone(), self.cell.clone())

    def restart(self) -> None:
        """Go back to the start, with no token found in anything."""
        for now, start in zip((self.predicted, self.hidden, self.cell), self._start, strict=True):
            now.copy_(start)
        for counts in (self.time, self.count, self.last_count):
            counts.zero_()
        self.last_time.fill_(-1)

    def note_progress(self) -> None:
        """Bring `progress` up to date."""
        going_on = (self.time < self.lengths).any().int()
        self.progress.copy_(torch.stack([going_on, self.count.amax()]))
