"""Where a waveform pauses, and where it is quietest."""

from __future__ import annotations

from typing import NamedTuple

import torch

from parakeet_mps.contract import SAMPLE_RATE_HZ

FRAME_SAMPLES = SAMPLE_RATE_HZ // 50
"""Samples of one frame of 20 ms."""

FRAME_S = FRAME_SAMPLES / SAMPLE_RATE_HZ

LEAST_PAUSE_S = 0.2
"""A shorter silence may be the closure of a consonant inside a word."""

_BELOW_SPEECH_DB = 30.0
_ABOVE_NOISE_DB = 3.0
_CLOSURE_FRAMES = 5


class Pause(NamedTuple):
    """Frames `begin` to `end` (exclusive), all of them quiet."""

    begin: int
    end: int

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return (self.end - self.begin) * FRAME_S

    @property
    def middle(self) -> int:
        """Its middle frame."""
        return (self.begin + self.end) // 2


def find_pauses(loudness: torch.Tensor, first: int) -> list[Pause]:
    """Return the pauses of at least `LEAST_PAUSE_S` in `loudness` (dB [frames]) after frame `first`.

    Quiet is what lies far below the speech, or hardly above the noise. A pause that began before `first` counts from
    there on.
    """
    noise, speech = torch.quantile(loudness, torch.tensor([0.05, 0.9])).tolist()
    quiet = loudness[first:] < max(speech - _BELOW_SPEECH_DB, noise + _ABOVE_NOISE_DB)
    edges = torch.nonzero(torch.diff(quiet.int(), prepend=torch.zeros(1), append=torch.zeros(1))).flatten().tolist()
    pauses = (Pause(first + begin, first + end) for begin, end in zip(edges[::2], edges[1::2], strict=True))
    return [pause for pause in pauses if pause.seconds >= LEAST_PAUSE_S]


def quietest(loudness: torch.Tensor, first: int, last: int) -> int:
    """Return the middle of the quietest tenth of a second between two frames of `loudness` (dB [frames])."""
    energy = torch.pow(10, loudness[first:last] / 10)
    window = torch.nn.functional.avg_pool1d(energy.view(1, 1, -1), _CLOSURE_FRAMES, stride=1).flatten()
    return first + int(window.argmin()) + _CLOSURE_FRAMES // 2
