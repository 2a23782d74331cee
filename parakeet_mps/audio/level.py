"""Samples kept within full scale."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parakeet_mps.errors import AudioError

_RAMP_SAMPLES = 256


class Level:
    """Scales everything by the highest peak so far, once a sample exceeds full scale."""

    def __init__(self) -> None:
        self._gain: float | None = None

    def fit(self, block: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return float32 [samples] in [-1, 1]. Raises `AudioError` on samples that are not finite numbers."""
        peak = float(max(block.max(initial=0.0), -block.min(initial=0.0)))  # of magnitudes it would take a copy
        if not np.isfinite(peak):
            raise AudioError("The audio has samples that are not numbers.")
        before = self._gain
        self._gain = gain = min(before or 1.0, 1 / max(peak, 1.0))
        if gain == 1.0:
            return block
        scaled = block * np.float32(gain)
        if before is not None and gain < before:
            scaled[:_RAMP_SAMPLES] *= np.linspace(before / gain, 1, _RAMP_SAMPLES, dtype=np.float32)[: len(scaled)]
        return np.clip(scaled, -1.0, 1.0)
