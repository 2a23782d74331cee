"""Where a transcript is cut: at pauses, and so that every segment fits a subtitle. Never inside a word."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from parakeet_mps.contract import Word

PAUSE_S = 0.8
"""A silence this long starts a new segment."""

SENTENCE_PAUSE_S = 0.2
"""After a full stop, question or exclamation mark a shorter silence is enough."""

MAX_SEGMENT_S = 7.0
LINE_CHARACTERS = 42
MAX_LINES = 2
"""Limits of one subtitle, after the BBC and Netflix subtitle guides."""


def cut(words: Sequence[Word]) -> list[list[Word]]:
    """Return the words of each segment, in order. A word too long for a subtitle stands alone."""
    runs: list[list[Word]] = []
    for word in words:
        if not runs or _is_break(runs[-1][-1], word):
            runs.append([])
        runs[-1].append(word)
    return [piece for run in runs for piece in _fit(run)]


def lines(text: str) -> list[str]:
    """Wrap a segment's text to the lines of a subtitle, never inside a word."""
    return textwrap.wrap(text, LINE_CHARACTERS, break_long_words=False, break_on_hyphens=False)


def join(words: Sequence[Word]) -> str:
    """Return the words as running text."""
    return " ".join(word.text for word in words)


def _is_break(before: Word, after: Word) -> bool:
    pause_s = after.start - before.end
    return pause_s >= PAUSE_S or (before.text.endswith((".", "?", "!")) and pause_s >= SENTENCE_PAUSE_S)


def _fit(words: list[Word]) -> list[list[Word]]:
    """Halve a run at the widest gap of its middle until every piece fits."""
    if len(words) == 1 or _fits(words):
        return [words]
    middle = range(max(1, len(words) // 4), max(2, 3 * len(words) // 4 + 1))
    at = max(middle, key=lambda i: (words[i].start - words[i - 1].end, -abs(2 * i - len(words))))
    return _fit(words[:at]) + _fit(words[at:])


def _fits(words: list[Word]) -> bool:
    text = join(words)
    if words[-1].end - words[0].start > MAX_SEGMENT_S or len(text) > MAX_LINES * (LINE_CHARACTERS + 1):
        return False
    wrapped = lines(text)
    return len(wrapped) <= MAX_LINES and all(len(line) <= LINE_CHARACTERS for line in wrapped)
