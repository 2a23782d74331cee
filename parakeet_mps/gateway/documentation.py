"""The OpenAPI document: which responses each route gives."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from parakeet_mps.gateway import response_documents as documents
from parakeet_mps.gateway.event_stream import CONTENT_TYPE as EVENT_STREAM
from parakeet_mps.transcripts import ResponseFormat

Responses = dict[int | str, dict[str, Any]]

_ERROR_SCHEMA = f"#/components/schemas/{documents.ErrorDocument.__name__}"

_KEY = "api_key"
_TEXT = {"schema": {"type": "string"}}
_EVENT = {
    "type": "object",
    "required": ["data"],
    "properties": {
        "event": {"type": "string", "description": "`error` on the last event of a transcription that failed."},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "description": "`transcript.text.delta`, `transcript.text.done` or an error, as OpenAI's API has them. With"
            " `verbose_json`, deltas also tell `words` and the last event all that `verbose_json` does.",
        },
    },
}
_RETRY_AFTER = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}}
_HEADERS = {
    "x-ignored-parameters": {"description": "The fields that had no effect.", "schema": {"type": "string"}},
    "x-audio-warning": {"description": "What is wrong with the recording.", "schema": {"type": "string"}},
}
_PROBLEMS = {
    400: "A parameter or the audio is at fault.",
    401: "The API key is missing or wrong.",
    404: "There is no such model.",
    408: "The upload came in too slowly.",
    413: "The upload is too large.",
    429: "Too many requests are in flight.",
    500: "The server failed; the message holds the id of its log line.",
    503: "The recogniser is not available now.",
    504: "The transcription took too long.",
}


def problems(*statuses: int) -> Responses:
    """Return the documentation of error responses."""
    return {status: _problem(status) for status in statuses}


def _problem(status: int) -> dict[str, Any]:
    described = {"model": documents.ErrorDocument, "description": _PROBLEMS[status]}
    return described | ({"headers": _RETRY_AFTER} if status in (429, 503, 504) else {})


_WORK_PROBLEMS = problems(400, 401, 408, 413, 429, 500, 503, 504)

TRANSCRIPTION: Responses = {
    200: {
        "model": documents.Transcription | documents.VerboseTranscription,
        "description": "The transcript in the format asked for, or its events as they come with `stream=true`.",
        "headers": _HEADERS,
        "content": {
            **{kind.content_type.partition(";")[0]: _TEXT for kind in ResponseFormat if kind.content_type[0] == "t"},
            ResponseFormat.SRT.content_type.partition(";")[0]: _TEXT,
            EVENT_STREAM: {"itemSchema": _EVENT},
        },
    },
    404: _problem(404),
    **_WORK_PROBLEMS,
}
TRANSLATION: Responses = _WORK_PROBLEMS
MODELS: Responses = {200: {"model": documents.ModelList}, **problems(401)}
MODEL: Responses = {200: {"model": documents.Model}, **problems(401, 404)}
HEALTH: Responses = {200: {"model": documents.Healthy}, 503: {"model": documents.Unhealthy}, **problems(401)}
METRICS: Responses = {
    200: {"content": {"text/plain": _TEXT}},
    401: {"description": _PROBLEMS[401], "content": {"application/json": {"schema": {"$ref": _ERROR_SCHEMA}}}},
}


def install(app: FastAPI, open_paths: frozenset[str] | None) -> None:
    """Let the document name the key that all but the `open_paths` ask for; None: nothing asks for one.

    It leaves out the 422 that FastAPI documents by itself: such requests get a 400.
    """
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        schemas = document["components"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas["schemas"].pop(name, None)
        if open_paths is not None:
            schemas["securitySchemes"] = {_KEY: {"type": "http", "scheme": "bearer"}}
        for path, operations in document["paths"].items():
            for operation in operations.values():
                operation["responses"].pop("422", None)
                if open_paths is not None and path not in open_paths:
                    operation["security"] = [{_KEY: []}]
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's manual does
