"""What the encoder computes besides matrix products and attention, each of which can be computed in several ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from parakeet_mps.engine.encoder.batch import Batch


@dataclass(frozen=True)
class Positions:
    """A layer's encoded relative positions, from `longest` - 1 down to -`longest`, scaled as scores are.

    `rows` is [heads, 2 x longest, size], `shift` [heads, size] what is added to a query before it meets them, and
    `offsets`, fp32 [heads, 2 x longest], the products of the two.
    """

    rows: torch.Tensor
    shift: torch.Tensor
    offsets: torch.Tensor

    @property
    def longest(self) -> int:
        """The most frames of an utterance."""
        return self.rows.shape[1] // 2


@dataclass(frozen=True)
class Operations:
    """One way to compute each. Results are new tensors; none waits for the device, so a CUDA graph can hold them all.

    `reference` has their plain versions, which say what each computes.
    """

    normalise: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float], torch.Tensor]
    convolve: Callable[[torch.Tensor, Batch, torch.Tensor, torch.Tensor], torch.Tensor]
    score_positions: Callable[[torch.Tensor, Batch, Positions], torch.Tensor]
    subsample_features: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
    subsample: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
