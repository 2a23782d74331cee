"""Where words begin and end: the tokens say it to about a frame, the sound says it exactly.

A transducer emits a token once it has heard enough of it, so a word's first token comes half a frame late on average
and up to two frames late, the first of an utterance often long before its sound; and a token's duration says how far
the decoder skips, not how long it sounds. So a word that borders on a pause begins and ends where the sound does, and
where the voice goes on two words meet at the quietest moment near the token.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    for index, word in enumerate(words):
        before = max(_step(words[index - 1].last), begins[-1]) + finder.late if begins else 0
        end, begin = finder.gap(before, word, first=not begins)
        ends.append(end)
        begins.append(begin)
    if words:
        ends.append(finder.end(max(_step(words[-1].last), begins[-1]) + finder.late))
    return [Span(begin, end) for begin, end in zip(begins, ends[1:], strict=True)]


class _Finder:
    """Looks for the edges of one utterance's words. All places are steps."""

    def __init__(self, sound: Loudness, frame_s: float) -> None:
        self._sound = sound
        self._latest = round(LATEST_FRAMES * frame_s / STEP_S)
        self.late = round(LATE_FRAMES * frame_s / STEP_S)

    def gap(self, before: int, word: Emission, *, first: bool) -> tuple[int, int]:
        """Return where the word before ends and where `word` begins, `before` being the earliest."""
        at = min(_step(word.first), len(self._sound) - 1)
        before = min(before, at)
        until = self._until(at, word.next)
        pauses = [pause for pause in self._sound.pauses(before, until, _PAUSE_STEPS) if pause[0] <= at]
        if pauses:
            return max(pauses, key=lambda pause: pause[1] - pause[0])
        meeting = at if first else self._quietest(max(before, at - self._latest), at)
        return meeting, meeting

    def _until(self, at: int, next_s: float | None) -> int:
        """Return the latest step at which a word may begin whose first token came at `at`; later in silence."""
        count = len(self._sound)
        limit = count if next_s is None else min(count, _step(next_s) + self.late)
        until = max(min(limit, at + self.late), at + 1)
        if all(self._sound.quiet[at:until]):
            while until < limit and self._sound.quiet[until]:
                until += 1
        return until

    def _quietest(self, begin: int, at: int) -> int:
        levels, expected = self._sound.levels, at - self.late
        near = range(begin, max(begin + 1, min(at + self.late, len(levels))))
        # The token's own step is voiced: what is louder than it is no more of a boundary than it is.
        return min(near, key=lambda step: min(levels[step], levels[at]) + _DB_PER_STEP * abs(step - expected))

    def end(self, after: int) -> int:
        """Return where the last word ends, whose last token came before `after`."""
        count = len(self._sound)
        after = min(after, count - 1)
        pauses = [p for p in self._sound.pauses(after, count, 1) if p[1] == count or p[1] - p[0] >= _END_PAUSE_STEPS]
        return pauses[0][0] if pauses else min(after + self._latest, count)


_PAUSE_STEPS = round(PAUSE_S / STEP_S)
_END_PAUSE_STEPS = round(END_PAUSE_S / STEP_S)


def _step(time_s: float) -> int:
    return round(time_s / STEP_S)
