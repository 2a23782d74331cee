"""The five renderings of a transcript, shaped as the OpenAI transcription endpoint returns them.

https://platform.openai.com/docs/api-reference/audio
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from parakeet_mps.contract import Word
from parakeet_mps.transcripts.segmentation import lines
from parakeet_mps.transcripts.transcript import Granularity, Segment, Transcript


class ResponseFormat(StrEnum):
    """What `response_format` allows."""

    JSON = "json"
    TEXT = "text"
    SRT = "srt"
    VERBOSE_JSON = "verbose_json"
    VTT = "vtt"


@dataclass(frozen=True, slots=True)
class Rendering:
    """A response body and its content type."""

    body: bytes
    content_type: str


def render(
    transcript: Transcript,
    response_format: ResponseFormat,
    granularities: Collection[Granularity] = (Granularity.SEGMENT,),
) -> Rendering:
    """Render the transcript. `granularities` says what `verbose_json` lists; the other formats ignore it."""
    match response_format:
        case ResponseFormat.JSON:
            return _json({"text": transcript.text, "usage": _usage(transcript)})
        case ResponseFormat.VERBOSE_JSON:
            return _json(_verbose(transcript, granularities))
        case ResponseFormat.TEXT:
            return Rendering(f"{transcript.text}\n".encode(), "text/plain; charset=utf-8")
        case ResponseFormat.SRT:
            return Rendering(_srt(transcript).encode(), "application/x-subrip; charset=utf-8")
        case ResponseFormat.VTT:
            return Rendering(_vtt(transcript).encode(), "text/vtt; charset=utf-8")


def _json(document: dict[str, Any]) -> Rendering:
    return Rendering(json.dumps(document, ensure_ascii=False).encode(), "application/json")


def _usage(transcript: Transcript) -> dict[str, Any]:
    return {"type": "duration", "seconds": transcript.duration}


def _verbose(transcript: Transcript, granularities: Collection[Granularity]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "task": "transcribe",
        "language": transcript.language,
        "duration": transcript.duration,
        "text": transcript.text,
    }
    if Granularity.WORD in granularities:
        document["words"] = [_word(word) for word in transcript.words]
    if Granularity.SEGMENT in granularities:
        document["segments"] = [_segment(number, segment) for number, segment in enumerate(transcript.segments)]
    return document | {"usage": _usage(transcript)}


def _word(word: Word) -> dict[str, Any]:
    return {"word": word.text, "start": word.start, "end": word.end}


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    return {
        "id": number,
        "seek": 0,  # the whole recording is one window
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "tokens": [token.id for token in segment.tokens],
        "temperature": 0.0,  # decoding is greedy
        "avg_logprob": segment.avg_logprob,
        "compression_ratio": segment.compression_ratio,
        "no_speech_prob": segment.no_speech_prob,
    }


def _srt(transcript: Transcript) -> str:
    cues = (
        f"{number}\n{_span(segment, ',')}\n{_cue_text(segment)}\n"
        for number, segment in enumerate(transcript.segments, start=1)
    )
    return "\n".join(cues)


def _vtt(transcript: Transcript) -> str:
    cues = (f"{_span(segment, '.')}\n{_escaped(_cue_text(segment))}\n" for segment in transcript.segments)
    return "\n".join(["WEBVTT\n", *cues])


def _cue_text(segment: Segment) -> str:
    """Wrap the text; the arrow would end a cue's text in some players."""
    return "\n".join(lines(segment.text)).replace("-->", "->")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _span(segment: Segment, point: str) -> str:
    start_ms = round(segment.start * 1000)
    end_ms = max(round(segment.end * 1000), start_ms + 1)  # WebVTT wants the end after the start
    return f"{_clock(start_ms, point)} --> {_clock(end_ms, point)}"


def _clock(time_ms: int, point: str) -> str:
    seconds, milliseconds = divmod(time_ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{milliseconds:03}"
