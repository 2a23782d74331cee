"""The form of a transcription request: its fields, what each allows, and which of them have no effect."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

from fastapi import File, Form, Request, UploadFile

from parakeet_mps.errors import RequestError
from parakeet_mps.gateway.catalogue import check_language, model_card
from parakeet_mps.transcripts import Granularity, ResponseFormat

_NO_EFFECT = "Accepted without effect, and then named in the header x-ignored-parameters."
_FIELD_NAME = re.compile(r"[A-Za-z0-9_.\[\]-]{1,64}")


class TranscriptionForm:
    """A checked transcription request; a FastAPI dependency. Raises `RequestError` naming the field at fault."""

    def __init__(
        self,
        file: Annotated[UploadFile, File(description="The audio. Its bytes decide what it is, not its name.")],
        model: Annotated[str, Form()],
        response_format: Annotated[ResponseFormat, Form()] = ResponseFormat.JSON,
        language: Annotated[str | None, Form(description="`en`, or absent.")] = None,
        prompt: Annotated[str | None, Form(description=_NO_EFFECT)] = None,  # noqa: ARG002  part of the schema
        temperature: Annotated[float | None, Form(ge=0, le=1, description=_NO_EFFECT)] = None,  # noqa: ARG002
        stream: Annotated[bool, Form(description="Only `false`.")] = False,
        granularities: Annotated[list[Granularity] | None, Form(alias="timestamp_granularities[]")] = None,
        plain_granularities: Annotated[list[Granularity] | None, Form(alias="timestamp_granularities")] = None,
    ) -> None:
        model_card(model)
        check_language(language)
        if stream:
            raise RequestError("stream: streaming is not supported; send false or leave it out.", param="stream")
        self.file = file
        self.response_format = response_format
        self.granularities = {*(granularities or ()), *(plain_granularities or ())} or {Granularity.SEGMENT}

    def ignored(self, sent: Iterable[str]) -> list[str]:
        """Return those of the `sent` field names that had no effect on the response."""
        effective = {"file", "model", "response_format", "language", "stream"}
        if self.response_format is ResponseFormat.VERBOSE_JSON:
            effective |= {"timestamp_granularities[]", "timestamp_granularities"}
        return sorted(name for name in set(sent) - effective if _FIELD_NAME.fullmatch(name))


async def sent_fields(request: Request) -> list[str]:
    """Return the names of the form's fields; a FastAPI dependency."""
    return list(await request.form())
