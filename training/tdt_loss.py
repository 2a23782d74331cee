"""The token-and-duration transducer loss in plain tensor operations, for machines without CUDA.

Xu et al., "Efficient Sequence Transduction by Jointly Predicting Tokens and Durations", ICML 2023, arXiv:2304.06795.
"""

from __future__ import annotations

import torch

IMPOSSIBLE = -1e30


def tdt_loss(
    joint: torch.Tensor,
    targets: torch.Tensor,
    frames: torch.Tensor,
    counts: torch.Tensor,
    durations: list[int],
    sigma: float,
) -> torch.Tensor:
    """Return the mean loss per utterance.

    `joint` float32 [B, T, U + 1, tokens + blank + durations] (logits, blank last of the tokens), `targets` int64
    [B, U], `frames` and `counts` int64 [B]; `sigma` is the paper's logit under-normalisation.
    """
    split = joint.shape[-1] - len(durations)
    tokens = joint[..., :split].log_softmax(-1) - sigma
    spans = joint[..., split:].log_softmax(-1)
    blank = tokens[..., -1:] + spans
    index = targets[:, None, :, None].expand(-1, joint.shape[1], -1, 1)
    label = tokens[:, :, :-1].gather(-1, index) + spans[:, :, :-1]
    alpha = _forward(_skew(blank), _skew(label), durations)
    ends = [
        _pick(alpha, frames - span, counts) + _pick_span(blank, frames - span, counts, position)
        for position, span in enumerate(durations)
        if span > 0
    ]
    return -torch.logsumexp(torch.stack(ends), 0).mean()


def _skew(scores: torch.Tensor) -> torch.Tensor:
    """Lay [B, T, U, D] out as [T + U - 1, B, U, D]: row n holds the cells with t + u = n."""
    batch, time, labels, spans = scores.shape
    padded = torch.nn.functional.pad(scores, (0, 0, 0, 0, 0, labels), value=IMPOSSIBLE).transpose(1, 2)
    flat = padded.reshape(batch, labels * (time + labels), spans)[:, : labels * (time + labels - 1)]
    # Each label's row is one cell shorter than it was stored: it starts one diagonal later than the row before.
    return flat.reshape(batch, labels, time + labels - 1, spans).permute(2, 0, 1, 3)


def _forward(blank: torch.Tensor, label: torch.Tensor, durations: list[int]) -> torch.Tensor:
    """Return log alpha of every cell, as anti-diagonals [T + U, B, U + 1]."""
    diagonals, batch, width, _ = blank.shape
    nothing = blank.new_full((batch, width), IMPOSSIBLE)
    start = nothing.clone()
    start[:, 0] = 0.0
    alphas = [start]
    for n in range(1, diagonals):
        arrivals = []
        for position, span in enumerate(durations):
            if 0 < span <= n:
                arrivals.append(alphas[n - span] + blank[n - span, :, :, position])
            if span + 1 <= n and n - span - 1 < label.shape[0]:
                emitted = alphas[n - span - 1][:, :-1] + label[n - span - 1, :, :, position]
                arrivals.append(torch.nn.functional.pad(emitted, (1, 0), value=IMPOSSIBLE))
        alphas.append(torch.logsumexp(torch.stack(arrivals), 0).clamp_min(IMPOSSIBLE) if arrivals else nothing)
    return torch.stack(alphas)


def _pick(alpha: torch.Tensor, time: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Return alpha[t, u = counts] of each utterance, impossible where t < 0."""
    rows = torch.arange(len(counts), device=counts.device)
    return alpha[(time + counts).clamp_min(0), rows, counts].masked_fill(time < 0, IMPOSSIBLE)


def _pick_span(blank: torch.Tensor, time: torch.Tensor, counts: torch.Tensor, position: int) -> torch.Tensor:
    rows = torch.arange(len(counts), device=counts.device)
    return blank[rows, time.clamp_min(0), counts, position]
