"""Where words begin and end: the tokens say it to about a frame, the sound says it exactly.

A transducer emits a token once it has heard enough of it, so a word's first token comes half a frame late on average
and up to two frames late, the first of an utterance often long before its sound; and a token's duration says how far
the decoder skips, not how long it sounds. So a word that borders on a pause begins and ends where the sound does, and
where the voice goes on two words meet at the quietest moment near the token.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import NamedTuple

from parakeet_mps.engine.loudness import STEP_S, Loudness

LATE_FRAMES = 0.5
"""How late a word's first token is on average, behind the beginning of its sound; also how early it is at most."""

LATEST_FRAMES = 2.0
"""How late it is at most."""

PAUSE_S = 0.08
"""A shorter silence between two tokens may be a consonant's closure."""

END_PAUSE_S = 0.15
"""The last word goes on through a shorter silence, which a final plosive may follow."""

_DB_PER_STEP = 1.0
"""What a step away from where the word is expected weighs against loudness."""


class Emission(NamedTuple):
    """When the tokens of one word came (s): its first, the one after its first (None at the end), its last voiced."""

    first: float
    next: float | None
    last: float


class Span(NamedTuple):
    """First step of a word, and the step after its last."""

    begin: int
    end: int


def find_edges(words: Sequence[Emission], sound: Loudness, frame_s: float) -> list[Span]:
    """Return the span of every word in steps of `sound`. Spans may touch, and are empty where steps run out."""
    finder = _Finder(sound, frame_s)
    begins: list[int] = []
    ends: list[int] = []
    heard = 0
    for first, following, last in words:
        following = finder.count if following is None else round(following / STEP_S) + finder.late
        end, begin = finder.gap(heard, round(first / STEP_S), following, not begins)
        ends.append(end)
        begins.append(begin)
        heard = max(round(last / STEP_S), begin) + finder.late
    if words:
        ends.append(finder.end(heard))
    return list(map(Span, begins, ends[1:]))


class _Finder:
    """Looks for the edges of one utterance's words. All places are steps."""

    def __init__(self, sound: Loudness, frame_s: float) -> None:
        self._sound = sound
        self.count = len(sound)
        self._latest = round(LATEST_FRAMES * frame_s / STEP_S)
        self.late = round(LATE_FRAMES * frame_s / STEP_S)
        # What places weigh from `_latest` before the expected one on.
        self._weights = [_DB_PER_STEP * abs(away) for away in range(-self._latest, self._latest + 1)]

    def gap(self, before: int, came: int, following: int, is_first: bool) -> tuple[int, int]:
        """Return where the word before ends and where a word begins, `before` being the earliest.

        The word's first token came at `came`, and the one after it `late` before `following`.
        """
        at = min(came, self.count - 1)
        before = min(before, at)
        if self._sound.find_pause(before, at + _PAUSE_STEPS, _PAUSE_STEPS) >= 0:  # as it rarely is
            pauses = self._sound.pauses(before, self._until(at, following), _PAUSE_STEPS)
            if pauses and pauses[0][0] <= at:
                return max((pause for pause in pauses if pause[0] <= at), key=lambda pause: pause[1] - pause[0])
        meeting = at if is_first else self._quietest(max(before, at - self._latest), at)
        return meeting, meeting

    def _until(self, at: int, limit: int) -> int:
        """Return the latest step at which a word may begin whose first token came at `at`; later in silence."""
        limit = min(limit, self.count)
        until = max(min(limit, at + self.late), at + 1)
        return max(until, self._sound.next_loud(at, max(limit, until)))

    def _quietest(self, begin: int, at: int) -> int:
        """Return the first step from `begin` on that is least loud, those away from where it is expected being louder.

        The token's own step is voiced: what is louder than it is no more of a boundary than it is.
        """
        levels, expected = self._sound.levels, at - self.late
        after = max(begin + 1, min(at + self.late, self.count))
        weights = self._weights[begin - expected + self._latest :]
        weighted = list(map(add, levels[begin:after], weights))
        lowest = min(weighted)
        quietest = begin + weighted.index(lowest)
        # If all of them were as loud as the token, the nearest one would be the quietest.
        nearest = min(max(expected, begin), after - 1)
        voiced = levels[at] + weights[nearest - begin]
        return quietest if lowest < voiced or (lowest == voiced and quietest < nearest) else nearest

    def end(self, after: int) -> int:
        """Return where the last word ends, whose last token came before `after`."""
        after = min(after, self.count - 1)
        pauses = self._sound.pauses(after, self.count, 1)
        pauses = [pause for pause in pauses if pause[1] == self.count or pause[1] - pause[0] >= _END_PAUSE_STEPS]
        return pauses[0][0] if pauses else min(after + self._latest, self.count)


_PAUSE_STEPS = round(PAUSE_S / STEP_S)
_END_PAUSE_STEPS = round(END_PAUSE_S / STEP_S)
