"""What the decoder found in one utterance, and how a whole batch of it comes to the host in one copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """The tokens of one utterance, each with its frame, the frames it lasts, and a confidence (nominally 0 to 1)."""

    tokens: list[int]
    frames: list[int]
    durations: list[int]
    confidences: list[float]


def read_hypotheses(found: Any, utterances: int) -> list[Hypothesis]:
    """Return the first `utterances` hypotheses of a `nemo...BatchedHyps` with durations and step confidences."""
    columns = (found.transcript, found.timestamps, found.token_durations)
    return unpack(pack(found.current_lengths, columns, found.step_confidence)[:utterances])


def pack(lengths: torch.Tensor, columns: tuple[torch.Tensor, ...], confidence: torch.Tensor) -> torch.Tensor:
    """Return one int32 tensor [utterances, 4 x width + 1] of what a batch holds.

    `lengths` int64 [utterances]; `columns` three of int64 [utterances, width]; `confidence` floating point, likewise,
    of which the bits are packed.
    """
    bits = confidence.float().view(torch.int32)
    return torch.cat([*(column.int() for column in columns), bits, lengths.int()[:, None]], dim=1)


def unpack(packed: torch.Tensor) -> list[Hypothesis]:
    """Copy what `pack` returned to the host, once, and read it there."""
    host = packed.cpu()
    columns = host[:, :-1].unflatten(1, (4, -1))  # type: ignore[no-untyped-call]
    confidence = columns[:, 3].contiguous().view(torch.float32)
    return [
        _read(columns[row, :3, :count].tolist(), confidence[row, :count].tolist())
        for row, count in enumerate(host[:, -1].tolist())
    ]


def _read(columns: list[list[int]], confidences: list[float]) -> Hypothesis:
    tokens, frames, durations = columns
    return Hypothesis(tokens, frames, durations, confidences)
