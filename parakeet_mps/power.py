"""How loud a waveform is from frame to frame."""

from __future__ import annotations

import torch

_FLOOR = 1e-10

_BLOCK_FRAMES = 500
"""Frames squared at a time: their squares stay in the processor's cache."""


def power_db(waveform: torch.Tensor, frame_samples: int) -> torch.Tensor:
    """Return the power (dB of full scale) of every whole frame of float32 [samples]; float32 [frames]."""
    frames = waveform[: waveform.numel() // frame_samples * frame_samples].view(-1, frame_samples)
    power = frames.new_empty(len(frames))
    squares = frames.new_empty(min(len(frames), _BLOCK_FRAMES), frame_samples)
    for block, its_power in zip(torch.split(frames, _BLOCK_FRAMES), torch.split(power, _BLOCK_FRAMES), strict=True):
        torch.sum(torch.square(block, out=squares[: len(block)]), dim=1, out=its_power)
    return power.div_(frame_samples).add_(_FLOOR).log10_().mul_(10)
