"""The encoder's operations in plain PyTorch, for any device and dtype: what `kernels` must equal.

Channels are last everywhere, so that a pointwise convolution is one matrix product.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from parakeet_mps.engine.encoder.batch import Batch
from parakeet_mps.engine.encoder.operations import Operations, Positions


def normalise(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Return the layer norm of `x` [rows, channels]; `weight` and `bias` are [channels]."""
    return functional.layer_norm(x, (x.shape[-1],), weight, bias, epsilon)


def convolve(gates: torch.Tensor, batch: Batch, taps: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Gate, clear what is beyond the utterances, convolve along the frames, and apply SiLU: the convolution's middle.

    `gates` is [utterances x frames, 2 x channels], `taps` [taps, channels] of odd number, `bias` [channels]. Return
    [utterances x frames, channels].
    """
    gated = functional.glu(gates).view(batch.utterances, batch.frames, -1).mul_(batch.true).transpose(1, 2)
    y = functional.conv1d(gated, taps.T[:, None], bias, padding=len(taps) // 2, groups=taps.shape[1])
    return functional.silu(y.transpose(1, 2), inplace=True).reshape(len(gates), -1)


def score_positions(joint: torch.Tensor, batch: Batch, positions: Positions) -> torch.Tensor:
    """Return [utterances, heads, frames, frames]: for each query and key frame their distance's score, masked.

    `joint` [utterances x frames, any] begins with the queries of all heads. The position product's rows are shifted
    against each other by reading them with a stride that is shorter by one. Keys beyond the utterance get `MASKED`; the
    scores of queries beyond it mean nothing.
    """
    frames, width, heads = batch.frames, 2 * batch.frames, len(positions.rows)
    queries = read_queries(joint, positions) + positions.shift
    scores = multiply_positions(queries, frames, positions)
    rows = scores.view(heads, batch.utterances, frames * width)
    shifted = rows[:, :, frames - 1 : frames - 1 + frames * (width - 1)]
    square = shifted.view(heads, batch.utterances, frames, width - 1)[..., :frames]
    return square.transpose(0, 1) + batch.scores


def read_queries(joint: torch.Tensor, positions: Positions) -> torch.Tensor:
    """Return the queries in `joint`, [utterances x frames, heads, size], without copying them."""
    heads, _, size = positions.rows.shape
    return joint[:, : heads * size].view(-1, heads, size)


def multiply_positions(queries: torch.Tensor, frames: int, positions: Positions) -> torch.Tensor:
    """Return the scores [heads, utterances x frames, 2 x frames] of the distances that occur among `frames`."""
    longest = positions.longest
    rows = positions.rows[:, longest - frames : longest + frames]
    return torch.bmm(queries.transpose(0, 1), rows.transpose(1, 2))


def subsample_features(
    features: torch.Tensor, lengths: torch.Tensor, first: torch.Tensor, taps: torch.Tensor
) -> torch.Tensor:
    """Halve frames and mels twice: a convolution to all channels with ReLU, then `subsample`'s depthwise one.

    `features` is [utterances, frames, mels], zero beyond the utterances, `lengths` (int64 [utterances]) the true frames
    after the first convolution; `first` [10, channels] its 3 x 3 taps and its bias, `taps` [9, channels] those of the
    second. Return [utterances, frames / 4, mels / 4, channels], quotients rounded up.
    """
    x = functional.conv2d(features[:, None], _window(first[:9]), stride=2, padding=1)
    return subsample(x.permute(0, 2, 3, 1).contiguous().add_(first[9]), lengths, taps)


def subsample(x: torch.Tensor, lengths: torch.Tensor, taps: torch.Tensor) -> torch.Tensor:
    """Apply ReLU to `x`, which may be overwritten, clear what is beyond the utterances, and halve frames and mels.

    `x` is [utterances, frames, mels, channels], `lengths` (int64 [utterances]) its true frames, `taps` [9, channels]
    the 3 x 3 depthwise taps. Return [utterances, frames / 2, mels / 2, channels], quotients rounded up.
    """
    torch.relu_(x)
    _clear_next(x, lengths)
    y = functional.conv2d(x.permute(0, 3, 1, 2), _window(taps), stride=2, padding=1, groups=taps.shape[1])
    return y.permute(0, 2, 3, 1)


def _window(taps: torch.Tensor) -> torch.Tensor:
    return taps.T.reshape(-1, 1, 3, 3)


def _clear_next(x: torch.Tensor, frames: torch.Tensor) -> None:
    """Clear, in `x` [utterances, frames, ...], the frame after the last true one, where there is one.

    NeMo clears all that follow. Only this one can reach a valid output, when the last window reaches over the end.
    """
    utterances = torch.arange(len(x), device=x.device)
    last = x.shape[1] - 1
    kept = x[utterances, frames.clamp(max=last)].where((frames > last)[:, None, None], 0.0)
    x[utterances, frames.clamp(max=last)] = kept


PLAIN = Operations(normalise, convolve, score_positions, subsample_features, subsample)
