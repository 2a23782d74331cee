"""A decoding step in plain PyTorch, for any device: what `kernels` must equal, and what decodes without them.

Products are accumulated in fp32 whatever the weights' dtype, as the kernels do it.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from parakeet_mps.engine.tdt.state import State
from parakeet_mps.engine.tdt.weights import Weights


class ReferenceSteps:
    """Steps of a `State`, in which `side` (0 or 1) is the buffer of `State.hidden` that holds the present one."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights

    def join(self, state: State) -> None:
        """Compute `logits` of every utterance at its present frame."""
        at = state.time.minimum(state.lengths - 1).clamp(min=0).long()
        rows = torch.arange(state.rows, device=at.device)
        joined = torch.relu(state.projected[rows, at] + state.predicted)
        state.logits.copy_(_multiply(joined, self._weights.join).add_(self._weights.join_bias))

    def decide(self, state: State) -> None:
        """Take the likeliest token and duration, write a token down, and move on."""
        weights, outputs = self._weights, self._weights.blank + 1
        best, label = state.logits[:, :outputs].max(1)
        sure = torch.exp(best - state.logits[:, :outputs].logsumexp(1))
        span = weights.durations[state.logits[:, outputs:].argmax(1)]
        blank, active = label == weights.blank, state.time < state.lengths
        span = torch.where(blank, span.clamp(min=1), span)
        found = active & ~blank
        self._write(state, found, label.int(), span, (sure * outputs - 1) / (outputs - 1))
        again = state.last_count.where(state.last_time == state.time, 0) + 1
        state.last_count.copy_(again.where(found, state.last_count))
        state.last_time.copy_(state.time.where(found, state.last_time))
        state.time.add_(span.where(active, 0))
        stuck = found & (state.last_count >= weights.max_symbols) & (state.last_time == state.time)
        state.time.add_(stuck)

    @staticmethod
    def _write(state: State, found: torch.Tensor, label: torch.Tensor, span: torch.Tensor, sure: torch.Tensor) -> None:
        at = state.count.clamp(max=state.tokens.shape[1] - 1).long()[:, None]
        columns = (state.tokens, label), (state.times, state.time), (state.spans, span), (state.confidences, sure)
        for column, value in columns:
            column.scatter_(1, at, value[:, None])  # a place that no token is found for is written again later
        state.count.add_(found)
        state.label.copy_(label)
        state.found.copy_(found)

    def predict(self, state: State, side: int) -> None:
        """Advance the prediction network of the utterances that found a token; copy the others' states across."""
        weights, found = self._weights, state.found.bool()[:, None]
        old, new = state.hidden[side], state.hidden[1 - side]
        gates = weights.table[state.label.long()] + _multiply(old[0], weights.first)
        self._advance(gates, found, old[0], new[0], state.cell[0])
        for number, layer in enumerate(weights.layers, start=1):
            recurrent = _multiply(old[number], layer.weight)
            gates = _multiply(new[number - 1], layer.inward) + recurrent + layer.bias
            self._advance(gates, found, old[number], new[number], state.cell[number])
        predicted = _multiply(new[-1], weights.predict) + weights.predict_bias
        state.predicted.copy_(predicted.to(state.predicted.dtype).where(found, state.predicted))

    @staticmethod
    def _advance(
        gates: torch.Tensor, found: torch.Tensor, old: torch.Tensor, new: torch.Tensor, cell: torch.Tensor
    ) -> None:
        enter, forget, value, leave = gates.chunk(4, dim=1)
        cell.copy_((forget.sigmoid() * cell + enter.sigmoid() * value.tanh()).where(found, cell))
        new.copy_((leave.sigmoid() * cell.tanh()).to(new.dtype).where(found, old))


def _multiply(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.linear(x.float(), weight.float())
