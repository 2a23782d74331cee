"""The encoder's forward and backward passes as CUDA graphs, one for each batch shape.

The demo model is so small that launching its thousands of kernels takes longer than running them.
"""

from __future__ import annotations

import torch


class Encode(torch.nn.Module):
    """The encoder with positional arguments and tensor results only, as `make_graphed_callables` wants it."""

    def __init__(self, encoder: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, features: torch.Tensor, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Map features [B, mels, T] and frames int64 [B] to encodings [B, D, T / 8] and their lengths int64 [B]."""
        with torch.autocast(features.device.type, torch.bfloat16, cache_enabled=False):
            encoded, frames = self.encoder(audio_signal=features, length=frames)
        return encoded, frames


class EncoderGraphs:
    """Runs `encoder` through a graph captured at the first batch of each shape; eagerly where there is no CUDA."""

    def __init__(self, encoder: torch.nn.Module) -> None:
        self.encoder = encoder
        self.graphs: dict[torch.Size, torch.nn.Module] = {}
        self.pool = torch.cuda.graph_pool_handle() if torch.cuda.is_available() else None

    def __call__(self, features: torch.Tensor, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Encode one training batch; see `Encode.forward`."""
        if features.shape not in self.graphs:
            self.graphs[features.shape] = self._capture(features, frames)
        return self.graphs[features.shape](features, frames)

    def _capture(self, features: torch.Tensor, frames: torch.Tensor) -> torch.nn.Module:
        encode = Encode(self.encoder).train()
        if self.pool is None:
            return encode
        return torch.cuda.make_graphed_callables(encode, (features.clone(), frames.clone()), pool=self.pool)
