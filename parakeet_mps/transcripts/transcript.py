"""The transcript: what the recogniser heard, cut into segments."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from parakeet_mps.contract import Recognition, Token, Word
from parakeet_mps.transcripts.segmentation import cut, join

_LEAST_CONFIDENCE = 1e-10


class Granularity(StrEnum):
    """What `timestamp_granularities[]` asks for."""

    WORD = "word"
    SEGMENT = "segment"


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of words spoken without a long pause, short enough for a subtitle: start and end in seconds."""

    start: float
    end: float
    text: str
    tokens: tuple[Token, ...] = ()

    @property
    def avg_logprob(self) -> float:
        """Mean natural logarithm of the tokens' confidences; 0 when there are none."""
        logprobs = [math.log(max(token.confidence, _LEAST_CONFIDENCE)) for token in self.tokens]
        return sum(logprobs) / len(logprobs) if logprobs else 0.0

    @property
    def no_speech_prob(self) -> float:
        """Probability that not one of the tokens was said, taking their confidences as independent."""
        return math.prod(1.0 - token.confidence for token in self.tokens) if self.tokens else 0.0

    @property
    def compression_ratio(self) -> float:
        """Bytes of the text over its zlib-compressed bytes, Whisper's sign of a repetition loop when above 2.4."""
        text = self.text.encode()
        return len(text) / len(zlib.compress(text))


@dataclass(frozen=True, slots=True)
class Transcript:
    """One recording of `duration` seconds: its text, words and segments. `language` is an English name."""

    text: str
    language: str
    duration: float
    words: tuple[Word, ...]
    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, recognition: Recognition, language: str) -> Transcript:
        """Build the transcript of one recognition. Without word times the whole text is one segment."""
        pieces = cut(recognition.words)
        segments = tuple(
            Segment(start=words[0].start, end=words[-1].end, text=join(words), tokens=tokens)
            for words, tokens in zip(pieces, _tokens_of(pieces, recognition.tokens), strict=True)
        )
        if not segments and recognition.text:
            segments = (Segment(0.0, recognition.duration, recognition.text, recognition.tokens),)
        return cls(recognition.text, language, recognition.duration, recognition.words, segments)


def _tokens_of(pieces: Sequence[Sequence[Word]], tokens: Sequence[Token]) -> list[tuple[Token, ...]]:
    """Give every token to the last piece that has begun when it starts; those before the first go to the first."""
    begins = [piece[0].start for piece in pieces]
    owned: list[list[Token]] = [[] for _ in pieces]
    at = 0
    for token in tokens:
        while at + 1 < len(begins) and token.start >= begins[at + 1]:
            at += 1
        if owned:
            owned[at].append(token)
    return [tuple(piece) for piece in owned]
