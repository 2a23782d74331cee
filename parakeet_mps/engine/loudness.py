"""How loud a waveform is, step by step, and where it is quiet."""

from __future__ import annotations

import torch

from parakeet_mps.contract import SAMPLE_RATE_HZ
from parakeet_mps.power import power_db

STEP_S = 0.01
"""Duration of one step."""

BELOW_SPEECH_DB = 35.0
"""What is this far below the loud steps is quiet: the weakest consonants are not."""

ABOVE_NOISE_DB = 6.0
LEAST_CONTRAST_DB = 15.0
"""In noise, quiet is what stands out so little from the quietest steps, unless it is nearly as loud as the speech."""

_STEP_SAMPLES = int(SAMPLE_RATE_HZ * STEP_S)


class Loudness:
    """The loudness of one waveform, float32 [samples] with at least one step.

    `levels` holds the power of each whole step in dB, none lower than the threshold of `quiet`.
    """

    def __init__(self, waveform: torch.Tensor) -> None:
        power = power_db(waveform, _STEP_SAMPLES)
        noise, speech = torch.quantile(power, power.new_tensor([0.05, 0.95])).tolist()
        threshold = max(speech - BELOW_SPEECH_DB, min(noise + ABOVE_NOISE_DB, speech - LEAST_CONTRAST_DB))
        self.levels: list[float] = power.clamp(min=threshold).tolist()
        self.quiet: list[bool] = (power < threshold).tolist()

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.levels)

    def pauses(self, begin: int, end: int, least: int) -> list[tuple[int, int]]:
        """Return the runs of at least `least` quiet steps between two steps, as (first, one after the last)."""
        runs: list[tuple[int, int]] = []
        first = begin
        for step in range(begin, end + 1):
            if step == end or not self.quiet[step]:
                if step - first >= least:
                    runs.append((first, step))
                first = step + 1
        return runs
