"""Recognised pieces -> one recognition: right times, and every word once where two pieces share audio."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import TypeVar

from parakeet_mps.contract import Recognition, Token, Word
from parakeet_mps.pieces.cutting import Piece

SAME_WORD_S = 0.3
"""Two pieces put a word that both hear at times no further apart than this."""

Timed = TypeVar("Timed", Token, Word)

Part = tuple[float, Recognition]
"""Where a part of the recording begins (s), and what is said in it, timed from there. Parts leave no gaps."""


class Joiner:
    """Puts the recognised pieces of one recording in order. Holds one back while the next may hear its last words."""

    def __init__(self) -> None:
        self._begin_s = 0.0
        self._open: Recognition | None = None

    def add(self, piece: Piece, recognition: Recognition) -> list[Part]:
        """Take the next piece and what was recognised in it, and return the parts that are final."""
        heard = shifted(recognition, piece.heard_s)
        parts = []
        if self._open is not None:
            before, heard, at_s = splice(self._open, heard, piece.start_s)
            parts.append(self._close(before, at_s))
        self._open = heard
        if not piece.continued:
            parts.append(self._close(heard, piece.end_s))
            self._open = None
        return parts

    def _close(self, heard: Recognition, end_s: float) -> Part:
        begin_s, self._begin_s = self._begin_s, end_s
        own = replace(shifted(heard, -begin_s), duration=_exact(end_s - begin_s))
        return begin_s, own


def merge(parts: Iterable[Part]) -> Recognition:
    """Return the recognition of the whole recording. No parts make an empty recognition of 0 s."""
    placed = [(start_s, part, shifted(part, start_s)) for start_s, part in parts]
    return Recognition(
        text=" ".join(part.text for _, _, part in placed if part.text),
        duration=max((_exact(start_s + part.duration) for start_s, part, _ in placed), default=0.0),
        tokens=tuple(token for _, _, part in placed for token in part.tokens),
        words=tuple(word for _, _, part in placed for word in part.words),
    )


def splice(before: Recognition, after: Recognition, at_s: float) -> tuple[Recognition, Recognition, float]:
    """Divide the words of two recognitions that overlap around `at_s`, all times of the whole recording.

    The seam goes behind the word that both hear nearest to the cut, because there they agree; without such a word it
    stays at the cut. Returns both without the other's words, and the time of the seam (s).
    """
    kept, dropped = _agreement(before.words, after.words, at_s)
    before, after = _head(before, kept), _tail(after, dropped)
    if before.words and after.words:
        at_s = (before.words[-1].end + after.words[0].start) / 2
    elif before.words:
        at_s = max(at_s, before.words[-1].end)
    elif after.words:
        at_s = min(at_s, after.words[0].start)
    at_s = _exact(at_s)
    return _clipped(before, 0.0, at_s), _clipped(after, at_s, inf), at_s


def shifted(recognition: Recognition, by_s: float) -> Recognition:
    """Return the recognition with `by_s` added to all its times."""
    if not by_s:
        return recognition
    return replace(
        recognition,
        tokens=tuple(_moved(token, by_s) for token in recognition.tokens),
        words=tuple(_moved(word, by_s) for word in recognition.words),
    )


def _agreement(before: Sequence[Word], after: Sequence[Word], at_s: float) -> tuple[int, int]:
    """Return how many words of `before` stay, and how many of `after` go."""
    same = [
        (abs(_middle(word) + _middle(other) - 2 * at_s), kept, dropped)
        for kept, word in enumerate(before, start=1)
        for dropped, other in enumerate(after, start=1)
        if abs(_middle(word) - _middle(other)) <= SAME_WORD_S and _spelling(word) == _spelling(other)
    ]
    if same:
        _, kept, dropped = min(same)
        return kept, dropped
    return sum(_middle(word) < at_s for word in before), sum(_middle(word) < at_s for word in after)


def _head(recognition: Recognition, count: int) -> Recognition:
    words = recognition.words
    if count == len(words):
        return recognition
    tokens = tuple(token for token in recognition.tokens if token.start < words[count].start) if count else ()
    return replace(recognition, text=_text(words[:count]), tokens=tokens, words=words[:count])


def _tail(recognition: Recognition, count: int) -> Recognition:
    words = recognition.words[count:]
    if not count:
        return recognition
    tokens = tuple(token for token in recognition.tokens if token.start >= words[0].start) if words else ()
    return replace(recognition, text=_text(words), tokens=tokens, words=words)


def _clipped(recognition: Recognition, low_s: float, high_s: float) -> Recognition:
    """Keep what two pieces heard a little differently from overlapping."""

    def clip(timed: Timed) -> Timed:
        return timed._replace(start=min(max(timed.start, low_s), high_s), end=min(max(timed.end, low_s), high_s))

    return replace(recognition, tokens=tuple(map(clip, recognition.tokens)), words=tuple(map(clip, recognition.words)))


def _moved(timed: Timed, by_s: float) -> Timed:
    return timed._replace(start=_exact(timed.start + by_s), end=_exact(timed.end + by_s))


def _exact(time_s: float) -> float:
    """Drop the noise of adding floats; a sample lasts 0.0000625 s."""
    return round(time_s, 7)


def _middle(word: Word) -> float:
    return (word.start + word.end) / 2


def _spelling(word: Word) -> str:
    return "".join(filter(str.isalnum, word.text)).casefold()


def _text(words: Sequence[Word]) -> str:
    return " ".join(word.text for word in words)
