"""One Conformer layer: half a feed-forward step, attention with relative positions, convolution, the other half.

https://arxiv.org/abs/2005.08100, and https://arxiv.org/abs/1901.02860 section 3.3 for the positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

MASKED = -10_000.0
"""Score of a frame beyond the utterance, NeMo's value: its weight is exactly zero, and no row is without weights."""


@dataclass(frozen=True)
class Batch:
    """What the layers know of a batch: how many utterances, of how many frames, and which of those are true.

    `scores` [utterances, 1, 1, frames] is 0 at true frames and `MASKED` elsewhere, `true` [utterances, frames, 1] is 1
    and 0; both have the dtype of the weights.
    """

    utterances: int
    frames: int
    scores: torch.Tensor
    true: torch.Tensor

    @classmethod
    def of(cls, lengths: torch.Tensor, frames: int, dtype: torch.dtype) -> Batch:
        """Return the batch of utterances with `lengths` (int64 [utterances]) true frames of `frames`."""
        beyond = torch.arange(frames, device=lengths.device) >= lengths[:, None]
        scores = torch.zeros_like(beyond, dtype=dtype).masked_fill(beyond, MASKED)
        return cls(len(lengths), frames, scores[:, None, None], (~beyond)[:, :, None].to(dtype))


class Layer:
    """The weights of a `nemo...ConformerLayer`, folded and fused, in `dtype`.

    `table` (fp32 [positions, channels]) encodes the relative positions from `longest` - 1 down to -`longest`.
    """

    def __init__(self, layer: Any, table: torch.Tensor, dtype: torch.dtype) -> None:
        self._feed_forward1 = _FeedForward(layer.norm_feed_forward1, layer.feed_forward1, dtype)
        self._attention = _Attention(layer.norm_self_att, layer.self_attn, table, dtype)
        self._convolution = _Convolution(layer.norm_conv, layer.conv, dtype)
        self._feed_forward2 = _FeedForward(layer.norm_feed_forward2, layer.feed_forward2, dtype)
        self._norm = _Norm(layer.norm_out, dtype)

    def __call__(self, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the layer's output for `x` [utterances x frames, channels], which it overwrites."""
        self._feed_forward1(x)
        self._attention(x, batch)
        self._convolution(x, batch)
        self._feed_forward2(x)
        return self._norm(x)


class _Norm:
    def __init__(self, norm: Any, dtype: torch.dtype) -> None:
        self._weight, self._bias = norm.weight.to(dtype), norm.bias.to(dtype)
        self._epsilon: float = norm.eps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, (x.shape[-1],), self._weight, self._bias, self._epsilon)


class _Residual:
    """Adds a linear layer's output to the residual stream, in place and in the matrix product itself."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype, scale: float = 1.0) -> None:
        self._weight = (weight.float() * scale).to(dtype).T
        self._bias = None if bias is None else (bias.float() * scale).to(dtype)

    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        x.addmm_(y, self._weight)
        if self._bias is not None:
            x.add_(self._bias)


class _FeedForward:
    def __init__(self, norm: Any, module: Any, dtype: torch.dtype) -> None:
        self._norm = _Norm(norm, dtype)
        self._in, self._bias = module.linear1.weight.to(dtype), _cast(module.linear1.bias, dtype)
        self._out = _Residual(module.linear2.weight, module.linear2.bias, dtype, scale=0.5)

    def __call__(self, x: torch.Tensor) -> None:
        self._out(x, functional.silu(functional.linear(self._norm(x), self._in, self._bias), inplace=True))


class _Attention:
    """Scores are ((q + u) k + (q + v) p) / sqrt(size): u comes out of the joint projection, v - u is added for p.

    The position product goes to `scaled_dot_product_attention` as an additive bias. Its rows are shifted against each
    other by reading them with a stride that is shorter by one.
    """

    def __init__(self, norm: Any, module: Any, table: torch.Tensor, dtype: torch.dtype) -> None:
        self._norm = _Norm(norm, dtype)
        self._heads: int = module.h
        self._size: int = module.d_k
        linears = (module.linear_q, module.linear_k, module.linear_v)
        u, v = module.pos_bias_u.float(), module.pos_bias_v.float()
        biases = [_float(linear.bias, len(linear.weight), u) for linear in linears]
        self._joint = torch.cat([linear.weight for linear in linears]).to(dtype)
        self._bias = torch.cat([biases[0] + u.flatten(), *biases[1:]]).to(dtype)
        self._shift = (v - u).to(dtype)
        positions = table @ module.linear_pos.weight.float().T / math.sqrt(self._size)
        self._positions = positions.view(-1, self._heads, self._size).transpose(0, 1).to(dtype).contiguous()
        self._out = _Residual(module.linear_out.weight, module.linear_out.bias, dtype)

    def __call__(self, x: torch.Tensor, batch: Batch) -> None:
        joint = functional.linear(self._norm(x), self._joint, self._bias)
        q, k, v = joint.view(batch.utterances, batch.frames, 3, self._heads, self._size).permute(2, 0, 3, 1, 4)
        bias = self._position_scores(joint, batch) + batch.scores
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        self._out(x, attended.transpose(1, 2).reshape(x.shape))

    def _position_scores(self, joint: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return [utterances, heads, frames, frames]: for each query frame and key frame their distance's score."""
        frames, width = batch.frames, 2 * batch.frames
        longest = self._positions.shape[1] // 2
        positions = self._positions[:, longest - frames : longest + frames]
        queries = joint[:, : self._heads * self._size].view(-1, self._heads, self._size) + self._shift
        scores = torch.bmm(queries.transpose(0, 1), positions.transpose(1, 2))
        rows = scores.view(self._heads, batch.utterances, frames * width)
        shifted = rows[:, :, frames - 1 : frames - 1 + frames * (width - 1)]
        square = shifted.view(self._heads, batch.utterances, frames, width - 1)[..., :frames]
        return square.transpose(0, 1)


class _Convolution:
    """Batch normalisation, a fixed affine function in a frozen model, is folded into the depthwise convolution."""

    def __init__(self, norm: Any, module: Any, dtype: torch.dtype) -> None:
        self._norm = _Norm(norm, dtype)
        self._in, self._in_bias = (
            module.pointwise_conv1.weight[:, :, 0].to(dtype),
            _cast(module.pointwise_conv1.bias, dtype),
        )
        fixed = module.batch_norm
        scale = fixed.weight.float() / torch.sqrt(fixed.running_var.float() + fixed.eps)
        bias = _float(module.depthwise_conv.bias, len(scale), scale) - fixed.running_mean.float()
        self._kernel = (module.depthwise_conv.weight.float() * scale[:, None, None]).to(dtype)
        self._bias = (bias * scale + fixed.bias.float()).to(dtype)
        self._out = _Residual(module.pointwise_conv2.weight[:, :, 0], module.pointwise_conv2.bias, dtype)

    def __call__(self, x: torch.Tensor, batch: Batch) -> None:
        gated = functional.glu(functional.linear(self._norm(x), self._in, self._in_bias))
        y = gated.view(batch.utterances, batch.frames, -1).mul_(batch.true).transpose(1, 2)
        y = functional.conv1d(y, self._kernel, self._bias, padding=self._kernel.shape[2] // 2, groups=y.shape[1])
        self._out(x, functional.silu(y.transpose(1, 2), inplace=True).reshape(x.shape))


def _cast(bias: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    return None if bias is None else bias.to(dtype)


def _float(bias: torch.Tensor | None, size: int, like: torch.Tensor) -> torch.Tensor:
    return like.new_zeros(size) if bias is None else bias.float()
