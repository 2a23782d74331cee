"""The form of a transcription request: its fields, what each allows, and which of them have no effect.

A list is read under its name and, as OpenAI's clients send it, under its name followed by `[]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from fastapi import File, Form, Request, UploadFile
from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from parakeet_mps.errors import RequestError
from parakeet_mps.gateway.catalogue import check_languages, model_card
from parakeet_mps.hotwords import parse_hotwords
from parakeet_mps.transcripts import Detail, Granularity, ResponseFormat

STREAMED_FORMATS = (ResponseFormat.JSON, ResponseFormat.VERBOSE_JSON)
"""Formats that events can carry."""

_FIELD_NAME = re.compile(r"[A-Za-z0-9_.\[\]-]{1,64}")
_NO_EFFECT = "Accepted without effect, and then named in the header x-ignored-parameters."
_SAME = "The same list under its plain name."
_VERBOSE = "Acts on `verbose_json`."
_PHRASES = "Phrases to expect, between commas; a weight may follow: `tramadol :2`."


class Include(StrEnum):
    """What `include[]` allows."""

    LOGPROBS = "logprobs"


def _refuse_diarized(value: Any) -> Any:
    if value == "diarized_json":
        reason = "diarized_json is not supported, since this model does not tell speakers apart; use "
        raise PydanticCustomError("diarized", reason + ", ".join(ResponseFormat))
    return value


def _refuse_text(value: Any) -> Any:
    if isinstance(value, str):
        raise PydanticCustomError("text", "must be sent as a file, not as text")
    return value


def _listed(name: str, description: str) -> Any:
    return Form(alias=name, description=description, default_factory=_nothing)


def _nothing() -> list[Any]:
    """Return an empty list. Not `list` itself, whose signature Pydantic would parse from its docstring every time."""
    return []


@dataclass(frozen=True, slots=True)
class TranscriptionForm:
    """A checked transcription request."""

    file: UploadFile
    response_format: ResponseFormat
    stream: bool
    detail: Detail
    hotwords: tuple[str, ...]
    prompt_acts: bool

    @classmethod
    async def of(
        cls,
        *,
        file: Annotated[
            UploadFile,
            File(description="The audio. Its bytes decide what it is, not its name."),
            BeforeValidator(_refuse_text),
        ],
        model: Annotated[str, Form(description="A model that GET /v1/models lists, or an alias of it.")],
        response_format: Annotated[ResponseFormat, Form(), BeforeValidator(_refuse_diarized)] = ResponseFormat.JSON,
        stream: Annotated[bool, Form(description="Answer with events while the recording is transcribed.")] = False,
        language: Annotated[str, Form(description="`en`, or absent.")] = "",
        languages: Annotated[list[str], _listed("languages[]", "Must hold `en`, if anything.")],
        plain_languages: Annotated[list[str], _listed("languages", _SAME)],
        granularities: Annotated[list[Granularity], _listed("timestamp_granularities[]", _VERBOSE)],
        plain_granularities: Annotated[list[Granularity], _listed("timestamp_granularities", _SAME)],
        include: Annotated[list[Include], _listed("include[]", "Acts on `json`.")],
        plain_include: Annotated[list[Include], _listed("include", _SAME)],
        hotwords: Annotated[list[str], _listed("hotwords", _PHRASES)],
        keywords: Annotated[list[str], _listed("keywords[]", "As `hotwords`.")],
        plain_keywords: Annotated[list[str], _listed("keywords", _SAME)],
        prompt: Annotated[str, Form(description="Its terms are expected, as weak `hotwords`.")] = "",
        temperature: Annotated[float, Form(ge=0, le=1, description=_NO_EFFECT)] = 0.0,  # noqa: ARG003
    ) -> TranscriptionForm:
        """Check the form; a FastAPI dependency, which would run in a thread if it were not async.

        Raises `RequestError` naming the field at fault.
        """
        model_card(model)
        check_languages([language], "language")
        check_languages(languages + plain_languages, "languages")
        if stream and response_format not in STREAMED_FORMATS:
            allowed = " or ".join(STREAMED_FORMATS)
            raise RequestError(f"stream: events cannot carry {response_format}; use {allowed}.", param="stream")
        phrases = hotwords + keywords + plain_keywords
        expected = parse_hotwords(phrases, prompt, "hotwords" if hotwords else "keywords")
        detail = Detail(
            granularities={*granularities, *plain_granularities} or {Granularity.SEGMENT},
            logprobs=response_format is ResponseFormat.JSON and bool(include or plain_include),
        )
        prompt_acts = len(expected) > len(parse_hotwords(phrases))
        return cls(file, response_format, stream, detail, expected, prompt_acts)

    def ignored(self, sent: Iterable[str]) -> list[str]:
        """Return those of the `sent` field names that had no effect on the response."""
        effective = {"file", "model", "response_format", "stream", "language", *_both("languages")}
        effective |= {"hotwords", *_both("keywords")}
        if self.prompt_acts:
            effective |= {"prompt"}
        if self.response_format is ResponseFormat.VERBOSE_JSON:
            effective |= _both("timestamp_granularities")
        if self.response_format is ResponseFormat.JSON:
            effective |= _both("include")
        return sorted(name for name in set(sent) - effective if _FIELD_NAME.fullmatch(name))


def _both(name: str) -> set[str]:
    return {name, f"{name}[]"}


async def sent_fields(request: Request) -> list[str]:
    """Return the names of the form's fields; a FastAPI dependency."""
    return list(await request.form())
