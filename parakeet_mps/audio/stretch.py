"""A stretch of audio with one number of channels and one sample rate -> mono at the recogniser's rate."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import soxr
from numpy.typing import NDArray

from parakeet_mps.audio.downmix import Downmix
from parakeet_mps.contract import SAMPLE_RATE_HZ

Samples = NDArray[np.float32]

_NOTHING: Samples = np.zeros(0, np.float32)


class Stretch:
    """Gathers small frames into half seconds, mixes and resamples them, without seams in between."""

    def __init__(self, channels: int, rate_hz: int) -> None:
        self.shape = (channels, rate_hz)
        self._downmix = Downmix(channels)
        self._resampler = None if rate_hz == SAMPLE_RATE_HZ else soxr.ResampleStream(rate_hz, SAMPLE_RATE_HZ, 1)
        self._enough = rate_hz // 2
        self._held: list[Samples] = []
        self._held_samples = 0

    def add(self, frame: Samples) -> Samples:
        """Take float32 [channels, samples]; return what is ready, float32 [samples] at `SAMPLE_RATE_HZ`."""
        self._held.append(frame)
        self._held_samples += frame.shape[1]
        return self._convert() if self._held_samples >= self._enough else _NOTHING

    def silence(self, seconds: float) -> Iterator[Samples]:
        """Take silence; yield what is ready."""
        channels, rate_hz = self.shape
        left = round(seconds * rate_hz)
        while left > 0:
            step = min(left, self._enough)
            yield self.add(np.zeros((channels, step), np.float32))
            left -= step

    def finish(self) -> Samples:
        """Return the rest."""
        return self._convert(last=True)

    def _convert(self, last: bool = False) -> Samples:
        mono = self._downmix.mix(np.concatenate(self._held, axis=1)) if self._held else _NOTHING
        self._held, self._held_samples = [], 0
        return mono if self._resampler is None else self._resampler.resample_chunk(mono, last=last)
