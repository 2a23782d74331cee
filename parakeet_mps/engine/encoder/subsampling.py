"""Features -> one vector for eight frames: NeMo's `dw_striding` subsampling, three strided convolutions."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from parakeet_mps.engine.encoder.operations import Operations

FACTOR = 8
"""Feature frames for one vector."""


class Subsampling:
    """The weights of a `nemo...ConvSubsampling` ("dw_striding", factor 8), in `dtype`.

    A depthwise convolution's bias is added where the pointwise one that follows adds its own.
    """

    def __init__(self, module: Any, scale: float, dtype: torch.dtype, operations: Operations) -> None:
        self._operations = operations
        first, *rest = (layer for layer in module.conv if isinstance(layer, nn.Conv2d))
        assert first.bias is not None
        self._first = torch.cat([first.weight.flatten(1).T, first.bias[None]]).to(dtype)
        pairs = zip(rest[::2], rest[1::2], strict=True)
        self._stages = [_join(depthwise, pointwise, dtype) for depthwise, pointwise in pairs]
        self._out = (_channels_last(module.out.weight.float(), first.out_channels) * scale).to(dtype)
        self._out_bias = (module.out.bias.float() * scale).to(dtype)

    def __call__(self, features: torch.Tensor, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return vectors [utterances, frames / 8, channels] and their true numbers, int64 [utterances].

        `features` is [utterances, frames, mels], zero beyond the true numbers `frames`, int64 [utterances]; the number
        of frames is a multiple of 8.
        """
        (taps, *first), *stages = self._stages
        frames = _halve(frames)
        x = functional.linear(self._operations.subsample_features(features, frames, self._first, taps), *first)
        for taps, *pointwise in stages:
            frames = _halve(frames)
            x = functional.linear(self._operations.subsample(x, frames, taps), *pointwise)
        return functional.linear(torch.relu_(x).flatten(2), self._out, self._out_bias), _halve(frames)


def _join(depthwise: Any, pointwise: Any, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (depthwise taps [9, channels], pointwise weight [channels, channels], the bias of both)."""
    weight = pointwise.weight.float()[:, :, 0, 0]
    bias = pointwise.bias.float() + weight @ depthwise.bias.float()
    return depthwise.weight.flatten(1).T.to(dtype).contiguous(), weight.to(dtype), bias.to(dtype)


def _channels_last(weight: torch.Tensor, channels: int) -> torch.Tensor:
    """Reorder the columns of NeMo's last layer from (channel, mel) to (mel, channel)."""
    return weight.view(len(weight), channels, -1).transpose(1, 2).reshape(len(weight), -1)


def _halve(frames: torch.Tensor) -> torch.Tensor:
    return (frames + 1) // 2
