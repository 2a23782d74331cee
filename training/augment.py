"""Distortions of a padded batch of waveforms, all on the batch's device.

Every function takes and returns float32 [utterances, samples]. Probabilities are per utterance. What a function must
not touch (padding, digital silence) is the caller's mask.
"""

from __future__ import annotations

import math

import torch

from voices import SAMPLE_RATE_HZ


def _chance(batch: torch.Tensor, probability: float) -> torch.Tensor:
    return torch.rand(batch.shape[0], 1, device=batch.device) < probability


def _uniform(batch: torch.Tensor, low: float, high: float) -> torch.Tensor:
    return low + (high - low) * torch.rand(batch.shape[0], 1, device=batch.device)


def _fft_size(samples: int) -> int:
    """Return the next power of two, or three quarters of it: cuFFT plans few sizes once instead of each batch's own."""
    power = 1 << (samples - 1).bit_length()
    return power * 3 // 4 if samples <= power * 3 // 4 else power


def change_pace(batch: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Play half of the utterances up to an eighth faster or slower, pitch and all; the first keeps its pace.

    Takes and returns the lengths int64 [utterances] too. A slower utterance still fits.
    """
    samples = batch.shape[1]
    factor = torch.where(_chance(batch, 0.5), _uniform(batch, 0.87, 1.14), torch.ones_like(batch[:, :1]))
    factor = torch.maximum(factor, lengths[:, None] / samples)
    factor[0] = 1.0
    position = torch.arange(samples, device=batch.device)[None] * factor
    left = position.long()
    padded = torch.nn.functional.pad(batch, (0, 2))
    inside = left.clamp_max(samples)
    slower = torch.lerp(padded.gather(1, inside), padded.gather(1, inside + 1), position - left)
    return slower.masked_fill(left >= samples, 0.0), (lengths / factor[:, 0]).long().clamp_max(samples)


def colour(batch: torch.Tensor) -> torch.Tensor:
    """Filter by a random room, a random smooth equaliser and, for a fifth, a telephone's 8 kHz band."""
    samples = batch.shape[1]
    size = _fft_size(samples + SAMPLE_RATE_HZ // 2)
    spectrum = torch.fft.rfft(batch, size)
    spectrum = spectrum * _equaliser(batch, spectrum.shape[1]) * _telephone(batch, spectrum.shape[1])
    spectrum = torch.where(_chance(batch, 0.15), spectrum * torch.fft.rfft(_room(batch), size), spectrum)
    return torch.fft.irfft(spectrum, size)[:, :samples]


def _equaliser(batch: torch.Tensor, bins: int) -> torch.Tensor:
    gains_db = torch.randn(batch.shape[0], 1, 8, device=batch.device) * 3.0 * _chance(batch, 0.6)[:, None]
    curve = torch.nn.functional.interpolate(gains_db, size=bins, mode="linear", align_corners=True)[:, 0]
    return 10 ** (curve / 20)


def _telephone(batch: torch.Tensor, bins: int) -> torch.Tensor:
    frequency = torch.linspace(0, SAMPLE_RATE_HZ / 2, bins, device=batch.device)[None]
    passed = torch.sigmoid((_uniform(batch, 3300, 4000) - frequency) / 40) * torch.sigmoid(
        (frequency - _uniform(batch, 50, 250)) / 20
    )
    return torch.where(_chance(batch, 0.2), passed, torch.ones_like(passed))


def _room(batch: torch.Tensor) -> torch.Tensor:
    """Return exponentially decaying noise after a direct path: a simple room response of 0.1 to 0.45 s."""
    time = torch.arange(SAMPLE_RATE_HZ // 2, device=batch.device)[None] / SAMPLE_RATE_HZ
    tail = torch.randn(batch.shape[0], time.shape[1], device=batch.device) * torch.exp(
        -6.9 * time / _uniform(batch, 0.1, 0.45)
    )
    tail = tail * _uniform(batch, 0.02, 0.12)
    tail[:, 0] = 1.0
    return tail


def noise(batch: torch.Tensor) -> torch.Tensor:
    """Return unit-power noise of the batch's shape: white to brown, some of it humming or crackling."""
    samples = batch.shape[1]
    size = _fft_size(samples)
    spectrum = torch.fft.rfft(torch.randn(batch.shape[0], size, device=batch.device))
    frequency = torch.linspace(0, 1, spectrum.shape[1], device=batch.device)[None] + 1e-3
    coloured = torch.fft.irfft(spectrum * frequency ** -_uniform(batch, 0.0, 1.2), size)[:, :samples]
    time = torch.arange(samples, device=batch.device)[None] / SAMPLE_RATE_HZ
    hum = torch.sin(2 * math.pi * _uniform(batch, 45, 400) * time)
    crackle = torch.randn_like(batch) * (torch.rand_like(batch) < 5e-4)
    mixed = _normalised(coloured) + _chance(batch, 0.15) * _normalised(hum) + _chance(batch, 0.1) * _normalised(crackle)
    swell = 1 + 0.8 * _chance(batch, 0.3) * torch.sin(
        2 * math.pi * _uniform(batch, 0.1, 3.0) * time + _uniform(batch, 0, 6.3)
    )
    return _normalised(mixed * swell)


def _normalised(batch: torch.Tensor) -> torch.Tensor:
    return batch / batch.pow(2).mean(1, keepdim=True).sqrt().clamp_min(1e-6)


def add_noise(batch: torch.Tensor) -> torch.Tensor:
    """Add noise at 8 to 45 dB below the speech, for half of the batch."""
    loudness = batch.pow(2).mean(1, keepdim=True).sqrt()
    scale = loudness * 10 ** (-_uniform(batch, 8, 45) / 20) * _chance(batch, 0.5)
    return batch + noise(batch) * scale


def set_gain(batch: torch.Tensor) -> torch.Tensor:
    """Scale each peak to between -40 and 0 dB of full scale; a tenth is overdriven and clips."""
    peak = batch.abs().amax(1, keepdim=True).clamp_min(1e-5)
    gain_db = torch.where(_chance(batch, 0.1), _uniform(batch, 0, 8), _uniform(batch, -40, 0))
    scaled = (batch / peak * 10 ** (gain_db / 20)).clamp(-1, 1)
    return torch.where(_chance(batch, 0.5), (scaled * 32768).round() / 32768, scaled)
