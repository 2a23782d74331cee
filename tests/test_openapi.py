"""The OpenAPI document tells the truth: schemathesis makes requests from it, good and bad, and checks every answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from openai.types import Model
from openai.types.audio import TranscriptionVerbose
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fakes import FakeTranscriber
from live_gateway import LiveGateway, live_gateway
from parakeet_mps.gateway import response_documents
from parakeet_mps.gateway.app import create_app
from parakeet_mps.settings import Settings
from recordings import speech

CHECKS = (
    not_a_server_error,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
TRANSCRIPTIONS = "/v1/audio/transcriptions"


def document() -> dict[str, Any]:
    return create_app(Settings(), FakeTranscriber()).openapi()


schema = schemathesis.openapi.from_dict(document())


@pytest.fixture(scope="module")
def gateway() -> Iterator[LiveGateway]:
    with live_gateway() as gateway:
        yield gateway


@schema.parametrize()
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_answer_is_a_documented_one(case: schemathesis.Case, gateway: LiveGateway) -> None:
    case.call_and_validate(base_url=gateway.url, checks=list(CHECKS))


@schema.include(path=TRANSCRIPTIONS).parametrize()
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_answer_to_real_audio_is_a_documented_one(case: schemathesis.Case, gateway: LiveGateway) -> None:
    if isinstance(case.body, dict):
        # What schemathesis would make up for these is refused at once, and nothing else is reached.
        case.body |= {"file": speech("yes"), "model": "parakeet-tdt", "language": "en", "languages[]": ["en"]}
    case.call_and_validate(base_url=gateway.url, checks=list(CHECKS))


@pytest.mark.parametrize(
    ("status", "path"),
    [
        *[(status, TRANSCRIPTIONS) for status in (200, 400, 401, 404, 408, 413, 429, 500, 503, 504)],
        (400, "/v1/audio/translations"),
        (401, "/v1/models"),
        (404, "/v1/models/{model}"),
        (503, "/health"),
        (401, "/metrics"),
    ],
)
def test_a_response_that_can_come_is_documented(status: int, path: str) -> None:
    (operation,) = document()["paths"][path].values()
    assert str(status) in operation["responses"]
    assert "422" not in operation["responses"]


def test_waiting_times_are_documented() -> None:
    responses = document()["paths"][TRANSCRIPTIONS]["post"]["responses"]
    assert all("Retry-After" in responses[status]["headers"] for status in ("429", "503", "504"))


def test_the_documented_fields_are_those_that_the_openai_package_requires() -> None:
    for ours, theirs in (
        (response_documents.VerboseTranscription, TranscriptionVerbose),
        (response_documents.Model, Model),
    ):
        required = {name for name, field in theirs.model_fields.items() if field.is_required()}
        assert required <= {name for name, field in ours.model_fields.items() if field.is_required()}
