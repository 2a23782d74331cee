"""Features -> one vector for eight frames: NeMo's `dw_striding` subsampling, three strided convolutions.

NeMo masks every intermediate result as a whole. Only one frame of each can reach a valid output: the first one beyond
the utterance, when the stride's last window reaches over its end. That frame alone is cleared here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

FACTOR = 8
"""Feature frames for one vector."""


class Subsampling:
    """The weights of a `nemo...ConvSubsampling` ("dw_striding", factor 8), in `dtype`.

    A depthwise convolution's bias is added where the pointwise one that follows adds its own.
    """

    def __init__(self, module: Any, scale: float, dtype: torch.dtype) -> None:
        first, *rest = (layer for layer in module.conv if isinstance(layer, nn.Conv2d))
        assert first.bias is not None
        self._first = first.weight.to(dtype)
        self._first_bias = first.bias.to(dtype)
        pairs = zip(rest[::2], rest[1::2], strict=True)
        self._stages = [_join(depthwise, pointwise, dtype) for depthwise, pointwise in pairs]
        self._out = (_channels_last(module.out.weight.float(), first.out_channels) * scale).to(dtype)
        self._out_bias = (module.out.bias.float() * scale).to(dtype)

    def __call__(self, features: torch.Tensor, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return vectors [utterances, frames / 8, channels] and their true numbers, int64 [utterances].

        `features` is [utterances, frames, mels], zero beyond the true numbers `frames`, int64 [utterances]; the number
        of frames is a multiple of 8.
        """
        x = functional.conv2d(features[:, None], self._first, stride=2, padding=1)
        # [utterances, frames, mels, channels] in memory from here on: a pointwise convolution is then one product.
        x = torch.relu_(x.permute(0, 2, 3, 1).contiguous().add_(self._first_bias))
        for depthwise, pointwise, bias in self._stages:
            frames = _halve(frames)
            _clear_next(x, frames)
            x = functional.conv2d(x.permute(0, 3, 1, 2), depthwise, stride=2, padding=1, groups=len(depthwise))
            x = torch.relu_(functional.linear(x.permute(0, 2, 3, 1), pointwise, bias))
        return functional.linear(x.flatten(2), self._out, self._out_bias), _halve(frames)


def _join(depthwise: Any, pointwise: Any, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (depthwise weight [channels, 1, 3, 3], pointwise weight [channels, channels], the bias of both)."""
    weight = pointwise.weight.float()[:, :, 0, 0]
    bias = pointwise.bias.float() + weight @ depthwise.bias.float()
    kernel = depthwise.weight.to(dtype).contiguous(memory_format=torch.channels_last)
    return kernel, weight.to(dtype), bias.to(dtype)


def _channels_last(weight: torch.Tensor, channels: int) -> torch.Tensor:
    """Reorder the columns of NeMo's last layer from (channel, mel) to (mel, channel)."""
    return weight.view(len(weight), channels, -1).transpose(1, 2).reshape(len(weight), -1)


def _halve(frames: torch.Tensor) -> torch.Tensor:
    return (frames + 1) // 2


def _clear_next(x: torch.Tensor, frames: torch.Tensor) -> None:
    """Clear, in `x` [utterances, frames, ...], the frame after the last true one, where there is one."""
    utterances = torch.arange(len(x), device=x.device)
    last = x.shape[1] - 1
    kept = x[utterances, frames.clamp(max=last)].where((frames > last)[:, None, None], 0.0)
    x[utterances, frames.clamp(max=last)] = kept
