"""Do two ways to compute an operation give the same, with a model's sizes on its device? Asked before kernels are used.

The batches that are compared end within a kernel's blocks, at the end of one, and before the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from parakeet_mps.engine.encoder.batch import MASKED, Batch
from parakeet_mps.engine.encoder.operations import Operations, Positions

FRAMES = 136
LENGTHS = (136, 0, 77, 1)
"""Of the layers' operations, in which a row of scores is more than one block."""

FEATURE_FRAMES = 24
FEATURE_LENGTHS = (24, 0, 13, 1)
"""Of the subsampling's, which has many blocks for each frame."""

_Random = Callable[..., torch.Tensor]
_Case = tuple[tuple[Any, ...], Callable[[torch.Tensor], torch.Tensor]]
"""The arguments of an operation, and what to take of its result: all that has a meaning."""


@dataclass(frozen=True)
class Sizes:
    """What the operations' shapes depend on: `taps` are the layers' convolutions' along the frames."""

    mels: int
    subsampling_channels: int
    channels: int
    heads: int
    taps: int

    @classmethod
    def of(cls, module: Any) -> Sizes:
        """Return those of a `nemo...ConformerEncoder`."""
        convolution, layer = module.pre_encode.conv[0], module.layers[0]
        taps: int = layer.conv.depthwise_conv.kernel_size[0]
        return cls(module._feat_in, convolution.out_channels, module.d_model, layer.self_attn.h, taps)


@torch.inference_mode()
def find_difference(name: str, ours: Operations, plain: Operations, sizes: Sizes, like: torch.Tensor) -> str | None:
    """Return how the operation `name` differs between `ours` and `plain` on random data, or `None`.

    Data have the dtype and device of `like`.
    """
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(like)

    arguments, take = _CASES[name](sizes, random)
    found = take(getattr(ours, name)(*arguments)).float()  # first, because plain ones may overwrite arguments
    expected = take(getattr(plain, name)(*arguments)).float()
    if found.shape != expected.shape:
        return f"shape {list(found.shape)}, not {list(expected.shape)}"
    error, most = (found - expected).abs().max().item(), expected.abs().max().item()
    # Not a number is no error small enough.
    return None if error <= 4 * torch.finfo(like.dtype).eps * most else f"an error of {error:.2g} in {most:.2g}"


def _normalise(sizes: Sizes, random: _Random) -> _Case:
    rows, channels = random(len(LENGTHS) * FRAMES, sizes.channels), sizes.channels
    return (rows * 3 + 1, random(channels), random(channels), 1e-5), lambda result: result


def _convolve(sizes: Sizes, random: _Random) -> _Case:
    gates = random(len(LENGTHS) * FRAMES, 2 * sizes.channels)
    taps, bias = random(sizes.taps, sizes.channels), random(sizes.channels)
    return (gates, _batch(gates), taps, bias), lambda result: result


def _score_positions(sizes: Sizes, random: _Random) -> _Case:
    size = sizes.channels // sizes.heads
    joint = random(len(LENGTHS) * FRAMES, 3 * sizes.channels)
    rows, shift = random(sizes.heads, 2 * FRAMES + 16, size) / size**0.5, random(sizes.heads, size)
    offsets = (rows.float() @ shift.float()[:, :, None])[:, :, 0].contiguous()
    true = _true(torch.tensor(LENGTHS, device=joint.device), FRAMES)

    def take(result: torch.Tensor) -> torch.Tensor:
        """Take the true queries' scores; of the masked ones, whether they are."""
        scores = result.where(true[:, None, None], (result < MASKED / 2).to(result))
        return scores.transpose(1, 2)[true]

    return (joint, _batch(joint), Positions(rows, shift, offsets)), take


def _subsample_features(sizes: Sizes, random: _Random) -> _Case:
    features, channels = random(len(FEATURE_LENGTHS), FEATURE_FRAMES, sizes.mels), sizes.subsampling_channels
    lengths = torch.tensor(FEATURE_LENGTHS, device=features.device)
    features *= _true(lengths, FEATURE_FRAMES)[:, :, None]
    halves = (lengths + 1) // 2
    true = _true((halves + 1) // 2, FEATURE_FRAMES // 4)
    return (features, halves, random(10, channels), random(9, channels)), lambda result: result[true]


def _subsample(sizes: Sizes, random: _Random) -> _Case:
    x = random(len(FEATURE_LENGTHS), FEATURE_FRAMES, -(-sizes.mels // 4), sizes.subsampling_channels)
    lengths = torch.tensor(FEATURE_LENGTHS, device=x.device)
    true = _true((lengths + 1) // 2, FEATURE_FRAMES // 2)
    return (x, lengths, random(9, sizes.subsampling_channels)), lambda result: result[true]


def _batch(like: torch.Tensor) -> Batch:
    return Batch(len(LENGTHS), FRAMES, torch.tensor(LENGTHS, device=like.device), like.dtype)


def _true(lengths: torch.Tensor, frames: int) -> torch.Tensor:
    return torch.arange(frames, device=lengths.device) < lengths[:, None]


_CASES: dict[str, Callable[[Sizes, _Random], _Case]] = {
    "normalise": _normalise,
    "convolve": _convolve,
    "score_positions": _score_positions,
    "subsample_features": _subsample_features,
    "subsample": _subsample,
}
