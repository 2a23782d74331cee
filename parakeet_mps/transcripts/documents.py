"""The parts that JSON answers and streamed events are made of, as the `openai` package types them.

https://platform.openai.com/docs/api-reference/audio
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from parakeet_mps.contract import Token, Word
from parakeet_mps.transcripts.transcript import Granularity, Segment, Transcript, logprob

WORD_START = "▁"
"""SentencePiece's mark of a token that begins a word; a space in the text."""

AUDIO_TOKENS_HZ = 12.5
"""Audio tokens a second in `usage`: the recogniser's encoder makes one vector for every 80 ms."""


def duration_usage(transcript: Transcript) -> dict[str, Any]:
    """Return what was used, in seconds of audio."""
    return {"type": "duration", "seconds": transcript.duration}


def token_usage(transcript: Transcript) -> dict[str, Any]:
    """Return what was used, in tokens: the only kind that streamed events have."""
    heard, said = round(transcript.duration * AUDIO_TOKENS_HZ), len(transcript.tokens)
    return {
        "type": "tokens",
        "input_tokens": heard,
        "output_tokens": said,
        "total_tokens": heard + said,
        "input_token_details": {"audio_tokens": heard, "text_tokens": 0},
    }


def logprobs(tokens: Sequence[Token], first: bool = True) -> list[dict[str, Any]]:
    """Return each token's text, UTF-8 bytes and log probability; `first` says that no text stands before them."""
    texts = [token.text.replace(WORD_START, " ") for token in tokens]
    if texts and first:
        texts[0] = texts[0].removeprefix(" ")
    return [
        {"token": text, "bytes": list(text.encode()), "logprob": logprob(token)}
        for text, token in zip(texts, tokens, strict=True)
    ]


def words(heard: Sequence[Word]) -> list[dict[str, Any]]:
    """Return words with their times (s) and, beyond OpenAI's fields, their confidence."""
    return [{"word": word.text, "start": word.start, "end": word.end, "confidence": word.confidence} for word in heard]


def verbose(transcript: Transcript, granularities: Collection[Granularity]) -> dict[str, Any]:
    """Return what `verbose_json` tells beside the text. `warnings` is beyond OpenAI's fields."""
    document: dict[str, Any] = {"language": transcript.language, "duration": transcript.duration}
    if Granularity.WORD in granularities:
        document["words"] = words(transcript.words)
    if Granularity.SEGMENT in granularities:
        document["segments"] = [_segment(number, segment) for number, segment in enumerate(transcript.segments)]
    return document | {"warnings": list(transcript.warnings)}


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    return {
        "id": number,
        "seek": segment.seek,
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "tokens": [token.id for token in segment.tokens],
        "temperature": 0.0,  # decoding is greedy
        "avg_logprob": segment.avg_logprob,
        "compression_ratio": segment.compression_ratio,
        "no_speech_prob": segment.no_speech_prob,
    }
