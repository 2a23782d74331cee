"""What the recogniser accepts as an utterance."""

from __future__ import annotations

import torch

from parakeet_mps.contract import MIN_SAMPLES, SAMPLE_RATE_HZ

PEAK_LIMIT = 2.0**15
"""Largest magnitude accepted. Full scale is 1; 16-bit scale is recognised too, and what is beyond it is no audio."""


class UtteranceError(ValueError):
    """One utterance cannot be recognised; the message says why."""


def find_fault(utterance: torch.Tensor, max_samples: int) -> UtteranceError | None:
    """Return why `utterance` is not a float32 tensor [samples] of finite audio of an allowed length, or `None`."""
    if utterance.dtype != torch.float32:
        return UtteranceError(f"samples are {utterance.dtype}, not torch.float32")
    if utterance.ndim != 1:
        return UtteranceError(f"shape {list(utterance.shape)} is not one channel of samples")
    return _find_length_fault(utterance.numel(), max_samples) or _find_sample_fault(utterance)


def _find_length_fault(samples: int, max_samples: int) -> UtteranceError | None:
    seconds = samples / SAMPLE_RATE_HZ
    if samples < MIN_SAMPLES:
        return UtteranceError(
            f"audio is too short: {seconds:.3f} s, at least {MIN_SAMPLES / SAMPLE_RATE_HZ:g} s needed"
        )
    if samples > max_samples:
        return UtteranceError(f"audio is too long: {seconds:.1f} s, at most {max_samples / SAMPLE_RATE_HZ:g} s allowed")
    return None


def _find_sample_fault(utterance: torch.Tensor) -> UtteranceError | None:
    if torch.dot(utterance, utterance).item() < PEAK_LIMIT**2:  # no single sample can be beyond; quickly seen
        return None
    low, high = torch.aminmax(utterance)
    peak = max(-low.item(), high.item())
    if low.isnan() or peak == float("inf"):
        return UtteranceError("audio contains samples that are not finite numbers")
    if peak > PEAK_LIMIT:
        return UtteranceError(f"audio contains a sample of magnitude {peak:.3g}; full scale is 1")
    return None
