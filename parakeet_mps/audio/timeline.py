"""Where frames lie in time: what is missing between them becomes silence, so that what follows keeps its time."""

from __future__ import annotations

_LEAST_GAP_S = 0.015
"""Lost and never-sent frames leave gaps of 20 ms and more; rounded timestamps leave less than 15 ms."""
_LONGEST_GAP_S = 60.0
"""A longer jump is a new clock, not a pause."""


class Timeline:
    """Follows the timestamps (s) of consecutive frames from `begin_s` on."""

    def __init__(self, begin_s: float | None) -> None:
        self._next_s = begin_s

    def gap_s(self, timestamp_s: float | None, duration_s: float) -> float:
        """Return the silence (s) before a frame, 0 in general."""
        expected_s = self._next_s
        begin_s = expected_s if timestamp_s is None else timestamp_s
        self._next_s = None if begin_s is None else begin_s + duration_s
        gap = 0.0 if begin_s is None or expected_s is None else begin_s - expected_s
        return gap if _LEAST_GAP_S < gap <= _LONGEST_GAP_S else 0.0
