"""What every layer is told of the batch it computes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

MASKED = -10_000.0
"""Score of a frame beyond the utterance, NeMo's value: its weight is exactly zero, and no row is without weights."""


@dataclass(frozen=True)
class Batch:
    """`utterances` of `frames` each, of which `lengths` (int64 [utterances]) are true; the weights have `dtype`."""

    utterances: int
    frames: int
    lengths: torch.Tensor
    dtype: torch.dtype

    @cached_property
    def true(self) -> torch.Tensor:
        """[utterances, frames, 1]: 1 at true frames and 0 elsewhere."""
        return (~self._beyond)[:, :, None].to(self.dtype)

    @cached_property
    def scores(self) -> torch.Tensor:
        """[utterances, 1, 1, frames]: 0 at true frames and `MASKED` elsewhere."""
        scores = torch.zeros_like(self._beyond, dtype=self.dtype).masked_fill(self._beyond, MASKED)
        return scores[:, None, None]

    @cached_property
    def _beyond(self) -> torch.Tensor:
        return torch.arange(self.frames, device=self.lengths.device) >= self.lengths[:, None]
