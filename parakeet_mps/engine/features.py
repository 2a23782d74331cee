"""Waveforms -> log mel features: NeMo's arithmetic, restated so that it never waits and a CUDA graph can hold it.

Unlike NeMo's, the signal is padded to whole encoder frames first, and no frame is computed only to be masked.
"""

from __future__ import annotations

from typing import Any

import torch

STD_FLOOR = 1e-5
"""NeMo's `CONSTANT`: added to a feature's deviation, which may be zero."""


def find_obstacle(featurizer: Any) -> str | None:
    """Return why `MelFeatures` cannot stand in for a `nemo...FilterbankFeatures`, or `None`."""
    wanted = {
        "normalize": "per_feature",
        "log": True,
        "exact_pad": False,
        "frame_splicing": 1,
        "mag_power": 2.0,
        "pad_value": 0,
        "training": False,
    }
    for name, value in wanted.items():
        if getattr(featurizer, name) != value:
            return f"features with {name}={getattr(featurizer, name)!r}"
    if isinstance(featurizer.log_zero_guard_value, str) or featurizer.window is None:
        return "features with an unusual guard or window"
    return None


class MelFeatures:
    """Computes what a `nemo...FilterbankFeatures` computes, in fp32. Holds its window, filters and constants."""

    def __init__(self, featurizer: Any) -> None:
        self.hop: int = featurizer.hop_length
        self._size: int = featurizer.n_fft
        self._preemphasis: float = featurizer.preemph or 0.0
        self._guard: float = featurizer.log_zero_guard_value
        self._guard_adds: bool = featurizer.log_zero_guard_type == "add"
        # As `torch.stft` does, the window is centred in the transform.
        before = (self._size - featurizer.win_length) // 2
        after = self._size - featurizer.win_length - before
        self._window = torch.nn.functional.pad(featurizer.window.float(), (before, after))
        self._filters = featurizer.fb[0].float().T.contiguous()

    def count(self, samples: torch.Tensor) -> torch.Tensor:
        """Return how many frames (int64 [utterances]) signals of so many samples (int64 [utterances]) have."""
        return samples // self.hop

    def __call__(self, signals: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
        """Return features, fp32 [utterances, frames, mels], normalised per utterance and zero beyond its length.

        `signals` is fp32 [utterances, frames x hop] at 16 kHz, `samples` the true lengths, int64 [utterances]; what
        lies beyond them may be anything. Source: NeMo 3.0, `parts/preprocessing/features.py`.
        """
        logs = self._log(self._power(self._emphasise(signals, samples)) @ self._filters)
        counts = self.count(samples)
        valid = (torch.arange(logs.shape[1], device=logs.device) < counts[:, None])[:, :, None]
        return _normalise(logs, valid, counts.clamp(min=1)[:, None, None])

    def _emphasise(self, signals: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
        before = torch.nn.functional.pad(signals[:, :-1], (1, 0))
        beyond = torch.arange(signals.shape[1], device=signals.device) >= samples[:, None]
        return (signals - self._preemphasis * before).masked_fill(beyond, 0.0)

    def _power(self, signals: torch.Tensor) -> torch.Tensor:
        """Return the power spectra [utterances, frames, bins] of frames centred on every `hop`-th sample."""
        half = self._size // 2
        padded = torch.nn.functional.pad(signals, (half, half - self.hop))
        spectra = torch.fft.rfft(padded.unfold(1, self._size, self.hop) * self._window)
        return torch.view_as_real(spectra).square().sum(-1)

    def _log(self, mels: torch.Tensor) -> torch.Tensor:
        return torch.log(mels + self._guard if self._guard_adds else mels.clamp(min=self._guard))


def _normalise(logs: torch.Tensor, valid: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    mean = logs.where(valid, 0.0).sum(1, keepdim=True) / counts
    centred = (logs - mean).where(valid, 0.0)
    deviation = (centred.square().sum(1, keepdim=True) / (counts - 1).clamp(min=1)).sqrt()
    return centred / (deviation + STD_FLOOR)
