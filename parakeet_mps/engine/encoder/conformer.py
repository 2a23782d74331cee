"""The whole encoder: subsampling, then the layers."""

from __future__ import annotations

from typing import Any

import torch

from parakeet_mps.engine.encoder.batch import Batch
from parakeet_mps.engine.encoder.layer import Layer
from parakeet_mps.engine.encoder.operations import Operations
from parakeet_mps.engine.encoder.subsampling import FACTOR, Subsampling


class Encoder:
    """Computes what a `nemo...ConformerEncoder` without an obstacle (see `support`) computes.

    Its weights are folded in fp32 and held in `dtype`; the module is not needed afterwards. Utterances last at most
    `longest` frames of the encoder, a multiple of 8. Calls neither wait for the device nor depend on what tensors
    hold, so a CUDA graph can hold them.
    """

    factor = FACTOR

    @torch.inference_mode()
    def __init__(self, module: Any, longest: int, dtype: torch.dtype, operations: Operations) -> None:
        self.dtype = dtype
        self.longest = longest
        self.channels: int = module.d_model
        table = _positions(module, longest)
        self._subsampling = Subsampling(module.pre_encode, module.xscale or 1.0, dtype, operations)
        self._layers = [Layer(layer, table, dtype, operations) for layer in module.layers]

    def __call__(self, features: torch.Tensor, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (encoded [utterances, frames / 8, channels], true lengths int64 [utterances]).

        `features` is fp32 [utterances, frames, mels] with a multiple of 8 frames, zero beyond the true numbers
        `frames`, int64 [utterances]. What is encoded beyond an utterance's length means nothing.
        """
        x, lengths = self._subsampling(features.to(self.dtype), frames)
        batch = Batch(len(x), x.shape[1], lengths, self.dtype)
        flat = x.flatten(0, 1)
        for layer in self._layers:
            flat = layer(flat, batch)
        return flat.view_as(x), lengths


def _positions(module: Any, longest: int) -> torch.Tensor:
    """Return NeMo's sinusoids of the positions `longest` - 1 to -`longest`, fp32 [2 x longest, channels].

    Source: NeMo 3.0, `RelPositionalEncoding`. The last one is never read; with it the table's rows are even in number.
    """
    device = next(module.parameters()).device
    positions = torch.arange(longest - 1, -longest - 1, -1, dtype=torch.float32, device=device)[:, None]
    channels = torch.arange(0, module.d_model, 2, dtype=torch.float32, device=device)
    angles = positions * torch.exp(channels * -(torch.log(torch.tensor(10_000.0)).item() / module.d_model))
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)
