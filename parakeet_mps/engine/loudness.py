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


_LOUD, _QUIET = b"\0", b"\1"

_NOISE, _SPEECH = 0.05, 0.95
"""Parts of the steps that are no louder than the noise and than the speech."""


class Loudness:
    """The loudness of one waveform, float32 [samples] with at least one step.

    `levels` holds the power of each whole step in dB, none lower than the threshold of what is quiet.
    """

    def __init__(self, waveform: torch.Tensor) -> None:
        power = power_db(waveform, _STEP_SAMPLES)
        noise, speech = quantiles(power, power.new_tensor([_NOISE, _SPEECH])).tolist()
        threshold = max(speech - BELOW_SPEECH_DB, min(noise + ABOVE_NOISE_DB, speech - LEAST_CONTRAST_DB))
        self.levels: list[float] = power.clamp(min=threshold).tolist()
        self._quiet: bytes = (power < threshold).numpy().tobytes()

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.levels)

    def next_loud(self, begin: int, end: int) -> int:
        """Return the first step from `begin` on that is not quiet, or `end`."""
        step = self._quiet.find(_LOUD, begin, end)
        return end if step < 0 else step

    def find_pause(self, begin: int, end: int, least: int) -> int:
        """Return where the first run of at least `least` quiet steps between two steps begins, or -1."""
        return self._quiet.find(_QUIET * least, begin, end)

    def pauses(self, begin: int, end: int, least: int) -> list[tuple[int, int]]:
        """Return all such runs, as (first, one after the last)."""
        runs: list[tuple[int, int]] = []
        while (first := self.find_pause(begin, end, least)) >= 0:
            begin = self.next_loud(first, end)
            runs.append((first, begin))
        return runs


def quantiles(values: torch.Tensor, parts: torch.Tensor) -> torch.Tensor:
    """Return what `torch.quantile` does of float32 [values] for float32 [parts], without sorting them all."""
    ranks = parts * (len(values) - 1)
    below, above = (
        torch.stack([values.kthvalue(int(rank) + 1).values for rank in side.tolist()])
        for side in (ranks.floor(), ranks.ceil())
    )
    return torch.lerp(below, above, ranks.frac())
