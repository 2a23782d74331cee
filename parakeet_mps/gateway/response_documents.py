"""What responses hold, for the OpenAPI document only: as the `openai` package types them, and what goes beyond it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class Problem(BaseModel):
    """What went wrong. `param` names the request's field at fault, if one is."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorDocument(BaseModel):
    """The body of every error."""

    error: Problem


class DurationUsage(BaseModel):
    """Seconds of audio."""

    type: Literal["duration"]
    seconds: float = Field(ge=0)


class Logprob(BaseModel):
    """One token: its text, UTF-8 bytes and log probability."""

    token: str
    bytes: list[int]
    logprob: float = Field(le=0)


class Transcription(BaseModel):
    """`response_format=json`. `logprobs` are there when `include[]` asks for them."""

    text: str
    logprobs: list[Logprob] | None = None
    usage: DurationUsage


class TimedWord(BaseModel):
    """A word, where it begins and ends (s), and, beyond OpenAI's fields, how certain it is."""

    word: str
    start: float = Field(ge=0)
    end: float = Field(ge=0)
    confidence: float = Field(ge=0, le=1)


class TimedSegment(BaseModel):
    """A run of words that fits a subtitle."""

    id: int
    seek: int = Field(description="Where the piece of audio begins in which it was heard, in hundredths of a second.")
    start: float = Field(ge=0)
    end: float = Field(ge=0)
    text: str
    tokens: list[int]
    temperature: float
    avg_logprob: float = Field(le=0)
    compression_ratio: float = Field(ge=0)
    no_speech_prob: float = Field(
        ge=0, le=1, description="Probability that not one of the tokens was said: the product of 1 - confidence."
    )


class VerboseTranscription(BaseModel):
    """`response_format=verbose_json`; `words` and `segments` as `timestamp_granularities[]` asks."""

    task: Literal["transcribe"]
    language: str
    duration: float = Field(ge=0)
    text: str
    words: list[TimedWord] | None = None
    segments: list[TimedSegment] | None = None
    warnings: list[str] = Field(description="Beyond OpenAI's fields: what is wrong with the recording.")
    usage: DurationUsage


class Model(BaseModel):
    """A served model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(BaseModel):
    """All served models."""

    object: Literal["list"]
    data: list[Model]


class Healthy(BaseModel):
    """A transcription would succeed."""

    status: Literal["ok"]


class Unhealthy(BaseModel):
    """A transcription would fail: the first check that does, and why."""

    status: Literal["unavailable"]
    failing_check: str
    reason: str
