"""The renderings of a transcript, shaped as the OpenAI transcription endpoint returns them."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from parakeet_mps.transcripts import documents, subtitles
from parakeet_mps.transcripts.transcript import Granularity, Transcript


class ResponseFormat(StrEnum):
    """What `response_format` allows."""

    JSON = "json"
    TEXT = "text"
    SRT = "srt"
    VERBOSE_JSON = "verbose_json"
    VTT = "vtt"

    @property
    def content_type(self) -> str:
        """The rendering's media type."""
        return _CONTENT_TYPES[self]


_CONTENT_TYPES = {
    ResponseFormat.JSON: "application/json",
    ResponseFormat.TEXT: "text/plain; charset=utf-8",
    ResponseFormat.SRT: "application/x-subrip; charset=utf-8",
    ResponseFormat.VERBOSE_JSON: "application/json",
    ResponseFormat.VTT: "text/vtt; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Detail:
    """What JSON tells beside the text: `granularities` acts on `verbose_json`, `logprobs` on `json`."""

    granularities: Collection[Granularity] = (Granularity.SEGMENT,)
    logprobs: bool = False


def render(transcript: Transcript, response_format: ResponseFormat, detail: Detail | None = None) -> bytes:
    """Return the body of the response, UTF-8."""
    match response_format:
        case ResponseFormat.JSON | ResponseFormat.VERBOSE_JSON:
            document = _document(transcript, response_format, detail or Detail())
            return json.dumps(document, ensure_ascii=False).encode()
        case ResponseFormat.TEXT:
            return f"{transcript.text}\n".encode()
        case ResponseFormat.SRT:
            return subtitles.srt(transcript.segments).encode()
        case ResponseFormat.VTT:
            return subtitles.vtt(transcript.segments).encode()


def _document(transcript: Transcript, response_format: ResponseFormat, detail: Detail) -> dict[str, Any]:
    document: dict[str, Any] = {"text": transcript.text}
    if response_format is ResponseFormat.VERBOSE_JSON:
        document = {"task": "transcribe", **document, **documents.verbose(transcript, detail.granularities)}
    elif detail.logprobs:
        document["logprobs"] = documents.logprobs(transcript.tokens)
    return document | {"usage": documents.duration_usage(transcript)}
