"""Whether a waveform plainly holds sound, judged by its energy: cheap, and independent of the recogniser."""

from __future__ import annotations

import torch

from parakeet_mps.contract import SAMPLE_RATE_HZ
from parakeet_mps.power import power_db

FRAME_S = 0.02

LOUD_DB = -40.0
"""Power of a frame that counts, against full scale. Speech into a distant microphone is louder, room noise is not."""

CONTRAST_DB = 12.0
"""Speech rises that far above its own pauses; hum, hiss and held tones do not."""

LEAST_S = 0.5
"""Sound that counts lasts this long in all; a cough is shorter."""

_FRAME_SAMPLES = int(SAMPLE_RATE_HZ * FRAME_S)


def is_voiced(waveform: torch.Tensor) -> bool:
    """Say whether float32 [samples] has at least `LEAST_S` of frames that are loud and stand out from the quiet ones.

    Music is taken for speech; a whisper into silence may not be.
    """
    if waveform.numel() < _FRAME_SAMPLES:
        return False
    power = power_db(waveform, _FRAME_SAMPLES)
    quiet = float(torch.quantile(power, 0.05))
    return int((power > max(LOUD_DB, quiet + CONTRAST_DB)).sum()) * FRAME_S >= LEAST_S
