"""One Conformer layer: half a feed-forward step, attention with relative positions, convolution, the other half.

https://arxiv.org/abs/2005.08100, and https://arxiv.org/abs/1901.02860 section 3.3 for the positions.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional

from parakeet_mps.engine.encoder.batch import Batch
from parakeet_mps.engine.encoder.operations import Operations, Positions


class Layer:
    """The weights of a `nemo...ConformerLayer`, folded and fused, in `dtype`.

    `table` (fp32 [positions, channels]) encodes the relative positions from `longest` - 1 down to -`longest`.
    """

    def __init__(self, layer: Any, table: torch.Tensor, dtype: torch.dtype, operations: Operations) -> None:
        def norm(module: Any) -> _Norm:
            return _Norm(module, dtype, operations)

        self._feed_forward1 = _FeedForward(norm(layer.norm_feed_forward1), layer.feed_forward1, dtype)
        self._attention = _Attention(norm(layer.norm_self_att), layer.self_attn, table, dtype, operations)
        self._convolution = _Convolution(norm(layer.norm_conv), layer.conv, dtype, operations)
        self._feed_forward2 = _FeedForward(norm(layer.norm_feed_forward2), layer.feed_forward2, dtype)
        self._norm = norm(layer.norm_out)

    def __call__(self, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the layer's output for `x` [utterances x frames, channels], which it overwrites."""
        self._feed_forward1(x)
        self._attention(x, batch)
        self._convolution(x, batch)
        self._feed_forward2(x)
        return self._norm(x)


class _Norm:
    def __init__(self, norm: Any, dtype: torch.dtype, operations: Operations) -> None:
        self._normalise = operations.normalise
        self._weight, self._bias = norm.weight.to(dtype), norm.bias.to(dtype)
        self._epsilon: float = norm.eps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._normalise(x, self._weight, self._bias, self._epsilon)


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
    def __init__(self, norm: _Norm, module: Any, dtype: torch.dtype) -> None:
        self._norm = norm
        self._in, self._bias = module.linear1.weight.to(dtype), _cast(module.linear1.bias, dtype)
        self._out = _Residual(module.linear2.weight, module.linear2.bias, dtype, scale=0.5)

    def __call__(self, x: torch.Tensor) -> None:
        self._out(x, functional.silu(functional.linear(self._norm(x), self._in, self._bias), inplace=True))


class _Attention:
    """Scores are ((q + u) k + (q + v) p) / sqrt(size): u comes out of the joint projection, v - u is added for p.

    The position product goes to `scaled_dot_product_attention` as an additive bias. Queries, keys and values are read
    where the projection left them, and the result comes in the queries' layout.
    """

    def __init__(
        self, norm: _Norm, module: Any, table: torch.Tensor, dtype: torch.dtype, operations: Operations
    ) -> None:
        self._norm, self._score = norm, operations.score_positions
        linears = (module.linear_q, module.linear_k, module.linear_v)
        u, v = module.pos_bias_u.float(), module.pos_bias_v.float()
        biases = [_float(linear.bias, len(linear.weight), u) for linear in linears]
        self._joint = torch.cat([linear.weight for linear in linears]).to(dtype)
        self._bias = torch.cat([biases[0] + u.flatten(), *biases[1:]]).to(dtype)
        scaled = table @ module.linear_pos.weight.float().T / math.sqrt(module.d_k)
        rows = scaled.view(-1, module.h, module.d_k).transpose(0, 1)
        offsets = (rows @ (v - u)[:, :, None])[:, :, 0].contiguous()
        self._positions = Positions(rows.to(dtype).contiguous(), (v - u).to(dtype), offsets)
        self._out = _Residual(module.linear_out.weight, module.linear_out.bias, dtype)

    def __call__(self, x: torch.Tensor, batch: Batch) -> None:
        joint = functional.linear(self._norm(x), self._joint, self._bias)
        self._out(x, attend(joint, self._score(joint, batch, self._positions)))


def attend(joint: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Return what queries attend to, [utterances x frames, channels]; `joint` is [utterances x frames, 3 x channels].

    `bias` [utterances, heads, frames, frames] is added to the scores.
    """
    utterances, heads, frames, _ = bias.shape
    q, k, v = joint.view(utterances, frames, 3, heads, -1).permute(2, 0, 3, 1, 4)
    attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    return attended.transpose(1, 2).reshape(len(joint), -1)


class _Convolution:
    """Batch normalisation, a fixed affine function in a frozen model, is folded into the depthwise convolution."""

    def __init__(self, norm: _Norm, module: Any, dtype: torch.dtype, operations: Operations) -> None:
        self._norm, self._convolve = norm, operations.convolve
        inward, fixed = module.pointwise_conv1, module.batch_norm
        self._in, self._in_bias = inward.weight[:, :, 0].to(dtype), _cast(inward.bias, dtype)
        scale = fixed.weight.float() / torch.sqrt(fixed.running_var.float() + fixed.eps)
        bias = _float(module.depthwise_conv.bias, len(scale), scale) - fixed.running_mean.float()
        self._taps = (module.depthwise_conv.weight[:, 0].float().T * scale).to(dtype).contiguous()
        self._bias = (bias * scale + fixed.bias.float()).to(dtype)
        self._out = _Residual(module.pointwise_conv2.weight[:, :, 0], module.pointwise_conv2.bias, dtype)

    def __call__(self, x: torch.Tensor, batch: Batch) -> None:
        gates = functional.linear(self._norm(x), self._in, self._in_bias)
        self._out(x, self._convolve(gates, batch, self._taps, self._bias))


def _cast(bias: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    return None if bias is None else bias.to(dtype)


def _float(bias: torch.Tensor | None, size: int, like: torch.Tensor) -> torch.Tensor:
    return like.new_zeros(size) if bias is None else bias.float()
