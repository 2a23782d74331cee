"""Which utterances are computed together, and how they are padded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from parakeet_mps.contract import SAMPLE_RATE_HZ

MAX_PADDING = 0.3
"""Largest part of a group's samples that may be padding. The time of a batch varies little from 0.2 to 0.5 on a CPU."""

MAX_ATTENTION_S2 = 16 * 60.0**2
"""Bound on utterances x longest duration squared (s2), to which the memory of attention is proportional."""

MOST = 64
"""Utterances in one group at most."""


def group_by_length(lengths: Sequence[int], most: int = MOST) -> Iterator[list[int]]:
    """Yield the indices of `lengths` (samples) in groups, longest first, each worth computing as one padded batch.

    A group is closed when it has `most` members, or when one more would make more than `MAX_PADDING` of it padding or
    take more memory than `MAX_ATTENTION_S2` stands for.
    """
    group: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if group and (len(group) == most or not _fits([lengths[i] for i in group], lengths[index])):
            yield group
            group = []
        group.append(index)
    if group:
        yield group


def _fits(group: list[int], length: int) -> bool:
    size, longest = len(group) + 1, group[0]
    padding = size * longest - sum(group) - length
    return padding <= MAX_PADDING * size * longest and size * (longest / SAMPLE_RATE_HZ) ** 2 <= MAX_ATTENTION_S2


def pad(utterances: Sequence[torch.Tensor], device: torch.device, step: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (signals [utterances, samples] float32, true lengths [utterances] int64) on `device`.

    The signals are as long as the longest utterance, rounded up to a multiple of `step`.
    """
    lengths = torch.tensor([utterance.numel() for utterance in utterances], device=device)
    signals = torch.nn.utils.rnn.pad_sequence(list(utterances), batch_first=True)
    return torch.nn.functional.pad(signals, (0, -signals.shape[1] % step)).to(device), lengths
