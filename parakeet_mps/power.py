"""How loud a waveform is from frame to frame."""

from __future__ import annotations

import torch

_FLOOR = 1e-10


def power_db(waveform: torch.Tensor, frame_samples: int) -> torch.Tensor:
    """Return the power (dB of full scale) of every whole frame of float32 [samples]; float32 [frames]."""
    frames = waveform[: waveform.numel() // frame_samples * frame_samples].view(-1, frame_samples)
    return 10 * torch.log10(frames.square().mean(dim=1) + _FLOOR)
