"""A decoding step in five or so kernels of the Triton language: joint, decision, LSTM layers, projection.

A step is a chain of tiny products, each of 16 rows: its time is that of launching kernels and of reading the weights,
all of which stay in the GPU's cache. So everything between two products is done where the product ends.
Checked against `reference`; on a CPU by Triton's interpreter (TRITON_INTERPRET=1).
"""

# ruff: noqa: N803 - compile-time constants are written in capitals in this language

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from parakeet_mps.engine.tdt.state import ROWS, State
from parakeet_mps.engine.tdt.weights import Weights


@triton.jit
def _join(
    projected, predicted, time, lengths, weight, bias, logits, frames, outputs,
    SIZE: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    at = tl.maximum(tl.minimum(tl.load(time + rows), tl.load(lengths + rows) - 1), 0)
    total = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    for start in range(0, SIZE, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        x = tl.load(projected + (rows * frames + at)[:, None] * SIZE + inner[None, :])
        x = tl.maximum(x + tl.load(predicted + rows[:, None] * SIZE + inner[None, :]), 0.0)
        w = tl.load(weight + columns[None, :] * SIZE + inner[:, None], mask=columns[None, :] < outputs, other=0.0)
        total = tl.dot(x.to(w.dtype), w, total, input_precision="ieee")
    total += tl.load(bias + columns, mask=columns < outputs, other=0.0)[None, :]
    tl.store(logits + rows[:, None] * outputs + columns[None, :], total, mask=columns[None, :] < outputs)


@triton.jit
def _decide(
    logits, durations, lengths, time, count, last_time, last_count, label, found,
    tokens, times, spans, confidences, width, blank, kinds, max_symbols,
    TOKENS: tl.constexpr, DURATIONS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    own = logits + row * (blank + 1 + kinds)
    token = tl.arange(0, TOKENS)
    values = tl.load(own + token, mask=token <= blank, other=float("-inf"))
    best, which = tl.max(values, 0), tl.argmax(values, 0)
    sure = 1.0 / tl.sum(tl.exp(values - best), 0)
    kind = tl.arange(0, DURATIONS)
    scores = tl.load(own + blank + 1 + kind, mask=kind < kinds, other=float("-inf"))
    span = tl.load(durations + tl.argmax(scores, 0))
    now, length, had = tl.load(time + row), tl.load(lengths + row), tl.load(count + row)
    before, times_there = tl.load(last_time + row), tl.load(last_count + row)
    active, is_blank = now < length, which == blank
    finds = active & (which != blank)
    span = tl.where(is_blank, tl.maximum(span, 1), span)
    place = row * width + had
    tl.store(tokens + place, which.to(tl.int32), mask=finds)
    tl.store(times + place, now, mask=finds)
    tl.store(spans + place, span, mask=finds)
    tl.store(confidences + place, (sure * (blank + 1) - 1) / blank, mask=finds)
    times_there = tl.where(finds, tl.where(before == now, times_there + 1, 1), times_there)
    then = now + tl.where(active, span, 0)
    stuck = finds & (times_there >= max_symbols) & (then == now)
    tl.store(count + row, had + finds.to(tl.int32))
    tl.store(last_count + row, times_there)
    tl.store(last_time + row, tl.where(finds, now, before))
    tl.store(time + row, then + stuck.to(tl.int32))
    tl.store(label + row, which.to(tl.int32))
    tl.store(found + row, finds.to(tl.int32))


@triton.jit
def _multiply_gates(
    enter, forget, value, leave, left, weight, rows, units, SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return the four gates of `units`, each with `left` x the transpose of its rows of `weight` added."""
    for start in range(0, SIZE, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        x = tl.load(left + rows[:, None] * SIZE + inner[None, :])
        own = weight + units[None, :] * SIZE + inner[:, None]
        enter = tl.dot(x, tl.load(own), enter, input_precision="ieee")
        forget = tl.dot(x, tl.load(own + SIZE * SIZE), forget, input_precision="ieee")
        value = tl.dot(x, tl.load(own + 2 * SIZE * SIZE), value, input_precision="ieee")
        leave = tl.dot(x, tl.load(own + 3 * SIZE * SIZE), leave, input_precision="ieee")
    return enter, forget, value, leave


@triton.jit
def _advance(
    given, below, inward, weight, old, new, cell, label, found,
    FIRST: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    units = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    # The first layer is given a row for each token, the others a bias for all.
    stride = 4 * SIZE if FIRST else 0
    gates = given + tl.load(label + rows)[:, None] * stride + units[None, :]
    enter, forget = tl.load(gates), tl.load(gates + SIZE)
    value, leave = tl.load(gates + 2 * SIZE), tl.load(gates + 3 * SIZE)
    if not FIRST:
        enter, forget, value, leave = _multiply_gates(
            enter, forget, value, leave, below, inward, rows, units, SIZE, BLOCK
        )
    enter, forget, value, leave = _multiply_gates(enter, forget, value, leave, old, weight, rows, units, SIZE, BLOCK)
    place = rows[:, None] * SIZE + units[None, :]
    finds = tl.load(found + rows)[:, None] != 0
    held, before = tl.load(cell + place), tl.load(old + place)
    kept = tl.sigmoid(forget) * held + tl.sigmoid(enter) * (2 * tl.sigmoid(2 * value) - 1)
    shown = tl.sigmoid(leave) * (2 * tl.sigmoid(2 * kept) - 1)
    tl.store(cell + place, tl.where(finds, kept, held))
    tl.store(new + place, tl.where(finds, shown.to(before.dtype), before))


@triton.jit
def _predict(
    hidden, weight, bias, predicted, found, outputs,
    SIZE: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.load(bias + columns)[None, :] + tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    for start in range(0, SIZE, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        x = tl.load(hidden + rows[:, None] * SIZE + inner[None, :])
        w = tl.load(weight + columns[None, :] * SIZE + inner[:, None])
        total = tl.dot(x, w, total, input_precision="ieee")
    place = rows[:, None] * outputs + columns[None, :]
    before = tl.load(predicted + place)
    finds = tl.load(found + rows)[:, None] != 0
    tl.store(predicted + place, tl.where(finds, total.to(before.dtype), before))


class KernelSteps:
    """Steps of a `State` by these kernels; the same interface as `ReferenceSteps`."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._tokens = triton.next_power_of_2(weights.blank + 1)
        self._kinds = triton.next_power_of_2(len(weights.durations))

    def join(self, state: State) -> None:
        """Compute `logits` of every utterance at its present frame."""
        weights, columns = self._weights, 16 if self._weights.blank < 4096 else 64
        outputs = len(weights.join)
        _join[triton.cdiv(outputs, columns), state.rows // ROWS](
            state.projected, state.predicted, state.time, state.lengths, weights.join, weights.join_bias,
            state.logits, state.frames, outputs, **_tile(weights.joint, columns),
        )  # fmt: skip

    def decide(self, state: State) -> None:
        """Take the likeliest token and duration, write a token down, and move on."""
        weights = self._weights
        _decide[(state.rows,)](
            state.logits, weights.durations, state.lengths, state.time, state.count, state.last_time, state.last_count,
            state.label, state.found, state.tokens, state.times, state.spans, state.confidences, state.tokens.shape[1],
            weights.blank, len(weights.durations), weights.max_symbols, TOKENS=self._tokens, DURATIONS=self._kinds,
        )  # fmt: skip

    def predict(self, state: State, side: int) -> None:
        """Advance the prediction network of the utterances that found a token; copy the others' states across."""
        weights = self._weights
        old, new = state.hidden[side], state.hidden[1 - side]
        grid, tile = (weights.hidden // 16, state.rows // ROWS), _tile(weights.hidden, 16)
        _advance[grid](
            weights.table, old[0], weights.first, weights.first, old[0], new[0], state.cell[0], state.label,
            state.found, FIRST=True, **tile,
        )  # fmt: skip
        for number, layer in enumerate(weights.layers, start=1):
            _advance[grid](
                layer.bias, new[number - 1], layer.inward, layer.weight, old[number], new[number], state.cell[number],
                state.label, state.found, FIRST=False, **tile,
            )  # fmt: skip
        _predict[weights.joint // 16, state.rows // ROWS](
            new[-1], weights.predict, weights.predict_bias, state.predicted, state.found, weights.joint, **tile
        )


def _tile(size: int, columns: int) -> dict[str, Any]:
    """Return the constants of a product over `size`, in tiles of `columns` columns."""
    block = next(block for block in (128, 64, 32, 16) if size % block == 0)
    return {"SIZE": size, "BLOCK": block, "ROWS": ROWS, "COLUMNS": columns}
