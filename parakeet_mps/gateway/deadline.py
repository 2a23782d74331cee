"""How long one transcription may still take."""

from __future__ import annotations

import time
from collections.abc import Callable

from parakeet_mps.errors import DeadlineError

AUDIO_S_PER_S = 2.0
"""Slowest speed at which a long recording may be transcribed, in seconds of audio a second. The 0.6 B model keeps three
times that on two CPU cores, and a thousand times that on a GPU."""


class Deadline:
    """`timeout_s` from now on, and a second more for every `AUDIO_S_PER_S` seconds of audio, as they become known.

    `timeout_s` also bounds every single piece, so that a recogniser that hangs is noticed as early in a long recording.
    """

    def __init__(self, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._at = clock() + timeout_s

    def extend(self, audio_s: float) -> None:
        """Allow for `audio_s` more seconds of audio."""
        self._at += audio_s / AUDIO_S_PER_S

    def left_s(self) -> float:
        """Return the time that is left (s), for one step at most `timeout_s`. Raises `DeadlineError` when none is."""
        left_s = self._at - self._clock()
        if left_s <= 0:
            raise too_late()
        return min(left_s, self._timeout_s)


def too_late() -> DeadlineError:
    """Return the error of a transcription that is not done in time."""
    return DeadlineError("The transcription took too long.")
