"""What the gateway and the Triton models agree on: names, dtypes, limits and the recognition document.

Standard library only: Triton's Python stubs, the gateway and `auto_config.py` all import it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

SAMPLE_RATE_HZ = 16_000
"""Sample rate of every waveform that crosses the wire."""

ASR_MODEL = "parakeet_asr"
"""Name of the recogniser in the Triton model repository."""

AUDIO_INPUT = "AUDIO"
"""FP32 [samples]: one mono utterance in [-1, 1] at `SAMPLE_RATE_HZ`; ragged, so mixed lengths share a batch."""

HOTWORDS_INPUT = "HOTWORDS"
"""UINT8 [bytes], optional: the phrases to boost, UTF-8, one a line; see `parakeet_mps.hotwords`.

Triton puts only requests with the same inputs into one batch: send it with every request, or with none.
"""

RECOGNITION_OUTPUT = "RECOGNITION"
"""UINT8 [bytes]: one UTF-8 JSON document, see `Recognition`."""

PREFERRED_BATCH_SIZES = (4, 8, 16)
"""Batch sizes the dynamic batcher sends at once; the largest one is the maximum by default."""

MIN_SAMPLES = SAMPLE_RATE_HZ // 10
"""Shorter utterances (under 0.1 s) hold no word and are refused."""

MAX_PIECE_S = 60
"""Longest utterance that the recogniser takes. Longer recordings reach it in pieces."""

BAD_UTTERANCE = "bad utterance: "
"""Prefix of a Triton error that means the request was at fault, not the server."""

HOTWORDS_FAULT = "hotwords: "
"""What follows `BAD_UTTERANCE` when the phrases are at fault, not the audio."""


def write_phrases(phrases: Iterable[str]) -> bytes:
    """Return the bytes of `HOTWORDS_INPUT`, at least one."""
    return "\n".join(["", *phrases, ""]).encode()


def read_phrases(document: bytes) -> tuple[str, ...]:
    """Read bytes made by `write_phrases`; what is no UTF-8 becomes a replacement character."""
    return tuple(line for line in document.decode(errors="replace").split("\n") if line)


class Token(NamedTuple):
    """One sub-word token: SentencePiece text, vocabulary id, start and end (s), confidence in [0, 1]."""

    text: str
    id: int
    start: float
    end: float
    confidence: float


class Word(NamedTuple):
    """One word merged from its tokens: start and end (s) inside the audio, confidence in [0, 1]."""

    text: str
    start: float
    end: float
    confidence: float


@dataclass(frozen=True, slots=True)
class Recognition:
    """What the recogniser heard in one utterance of `duration` seconds."""

    text: str
    duration: float
    tokens: tuple[Token, ...] = ()
    words: tuple[Word, ...] = ()

    def to_json(self) -> bytes:
        """Return the UTF-8 JSON document that travels in `RECOGNITION_OUTPUT`.

        It has the fields of this class. Those of the tokens and words are columns: an object with a list for each field
        of `Token` and `Word`, so that nobody reads and writes their names hundreds of times.
        """
        fields = {
            "text": self.text,
            "duration": self.duration,
            "tokens": _columns(Token._fields, self.tokens),
            "words": _columns(Word._fields, self.words),
        }
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, document: bytes) -> Recognition:
        """Read a document made by `to_json`. Raises `ValueError`, `KeyError` or `TypeError` on another shape."""
        fields: dict[str, Any] = json.loads(document)
        return cls(
            text=fields["text"],
            duration=fields["duration"],
            tokens=tuple(map(Token._make, _rows(Token._fields, fields["tokens"]))),
            words=tuple(map(Word._make, _rows(Word._fields, fields["words"]))),
        )


def _columns(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, Sequence[Any]]:
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else repeat(())
    return dict(zip(names, columns, strict=False))


def _rows(names: Sequence[str], columns: dict[str, list[Any]]) -> Iterator[tuple[Any, ...]]:
    return zip(*(columns[name] for name in names), strict=True)
