"""The transcript: what the recogniser heard, cut into segments."""

from __future__ import annotations

import math
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from parakeet_mps.contract import Recognition, Token, Word
from parakeet_mps.pieces import merge
from parakeet_mps.transcripts.segmentation import cut, join

SEEK_HZ = 100
"""Frames a second in which `seek` counts, as Whisper's features do."""

_LEAST_CONFIDENCE = 1e-10


class Granularity(StrEnum):
    """What `timestamp_granularities[]` asks for."""

    WORD = "word"
    SEGMENT = "segment"


def logprob(token: Token) -> float:
    """Return the natural logarithm of the token's confidence; finite even for none."""
    return math.log(max(token.confidence, _LEAST_CONFIDENCE))


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of words spoken without a long pause, short enough for a subtitle: start and end in seconds.

    `seek` is where the piece of audio begins in which the recogniser heard it, in frames of 1 / `SEEK_HZ` s.
    """

    start: float
    end: float
    text: str
    tokens: tuple[Token, ...] = ()
    seek: int = 0

    @property
    def avg_logprob(self) -> float:
        """Mean log probability of the tokens; 0 when there are none."""
        return sum(map(logprob, self.tokens)) / len(self.tokens) if self.tokens else 0.0

    @property
    def no_speech_prob(self) -> float:
        """Probability that nothing was said: that not one of the tokens was, taking them as independent.

        A token's confidence is its share against the blank and all other tokens at its moment, so this is an upper
        bound on the model's own probability of nothing but blanks.
        """
        return math.prod(1.0 - token.confidence for token in self.tokens) if self.tokens else 0.0

    @property
    def compression_ratio(self) -> float:
        """Bytes of the text over its zlib-compressed bytes, Whisper's sign of a repetition loop when above 2.4."""
        text = self.text.encode()
        return len(text) / len(zlib.compress(text))


@dataclass(frozen=True, slots=True)
class Transcript:
    """One recording of `duration` seconds: its text, tokens, words and segments. `language` is an English name.

    `warnings` say what is wrong with the recording although it was transcribed.
    """

    text: str
    language: str
    duration: float
    tokens: tuple[Token, ...]
    words: tuple[Word, ...]
    segments: tuple[Segment, ...]
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, parts: Sequence[tuple[float, Recognition]], language: str, warnings: Sequence[str] = ()) -> Transcript:
        """Build the transcript of a recording from its parts, each with the second at which it begins.

        Without word times the whole text is one segment.
        """
        whole = merge(parts)
        segments = _segments(whole, [start_s for start_s, _ in parts])
        return cls(whole.text, language, whole.duration, whole.tokens, whole.words, segments, tuple(warnings))


def _segments(whole: Recognition, part_starts: Sequence[float]) -> tuple[Segment, ...]:
    runs = cut(whole.words)
    if not runs and whole.text:
        return (Segment(0.0, whole.duration, whole.text, whole.tokens),)
    return tuple(
        Segment(words[0].start, words[-1].end, join(words), tokens, _seek(words[0].start, part_starts))
        for words, tokens in zip(runs, _tokens_of(runs, whole.tokens), strict=True)
    )


def _seek(start_s: float, part_starts: Sequence[float]) -> int:
    return round(part_starts[max(bisect_right(part_starts, start_s), 1) - 1] * SEEK_HZ)


def _tokens_of(runs: Sequence[Sequence[Word]], tokens: Sequence[Token]) -> list[tuple[Token, ...]]:
    """Give every token to the last run that has begun when it starts; those before the first go to the first."""
    begins = [run[0].start for run in runs]
    owned: list[list[Token]] = [[] for _ in runs]
    at = 0
    for token in tokens:
        while at + 1 < len(begins) and token.start >= begins[at + 1]:
            at += 1
        if owned:
            owned[at].append(token)
    return [tuple(run) for run in owned]
