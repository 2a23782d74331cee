"""Recordings of any kind -> mono float32 at the recogniser's sample rate, in blocks, with memory that does not grow.

PyAV decodes, not torchcodec: torchcodec starts again from the file's beginning for every range it is asked for (20
minutes of MP3 in blocks of 10 s take 50 s instead of one), stops at the first damaged frame, cannot be told which
containers to read, and needs torch, which costs a decoding process 3 s and 350 MB at its start.

The bytes alone decide what a file is: no name and no declared type is known here. Knows nothing of HTTP or Triton.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import torch


def decode(data: bytes | Path, max_audio_s: float) -> torch.Tensor:
    """Return a whole trusted recording, decoded in this process: float32 [samples] in [-1, 1] at `SAMPLE_RATE_HZ`.

    Raises `AudioError`, with the reason, on anything that is not decodable audio of 0.1 s to `max_audio_s` seconds.
    """
    import numpy as np
    import torch  # the processes that decode uploads import this package too, and need no torch

    from parakeet_mps.audio.recording import Recording
    from parakeet_mps.audio.source import Source

    with Source.of(data) as source:
        return torch.from_numpy(np.concatenate(list(Recording(source, max_audio_s).blocks())))
