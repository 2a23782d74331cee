"""The HTTP routes: the OpenAI transcription API, health and metrics."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from threading import BoundedSemaphore
from typing import Annotated, Any, ParamSpec, TypeVar

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from parakeet_mps.errors import RequestError
from parakeet_mps.gateway import catalogue, documentation
from parakeet_mps.gateway.event_stream import EventStream
from parakeet_mps.gateway.health import Health
from parakeet_mps.gateway.metrics import Metrics
from parakeet_mps.gateway.metrics_page import CONTENT_TYPE, MetricsPage
from parakeet_mps.gateway.transcription_form import TranscriptionForm, sent_fields
from parakeet_mps.gateway.upload_recognition import UploadRecogniser
from parakeet_mps.gateway.upload_spool import PLACES, spooled_route
from parakeet_mps.pieces import Part
from parakeet_mps.transcripts import Event, Narration, ResponseFormat, Transcript, render

IGNORED_HEADER = "x-ignored-parameters"
"""Names the request's fields that had no effect."""

WARNING_HEADER = "x-audio-warning"
"""Says what is wrong with a recording that was transcribed all the same."""

_SHORT_S = 120.0
"""A transcript of so much audio is made sooner than a thread would begin."""

P = ParamSpec("P")
T = TypeVar("T")


class Routes:
    """The handlers and what they work with."""

    def __init__(self, recogniser: UploadRecogniser, health: Health, metrics: Metrics, page: MetricsPage) -> None:
        self._recogniser = recogniser
        self._health = health
        self._metrics = metrics
        self._page = page

    def router(self) -> APIRouter:
        """Return the routes, to be included in an app."""
        router = APIRouter(route_class=spooled_route(BoundedSemaphore(PLACES)))
        post, get = functools.partial(router.add_api_route, methods=["POST"]), router.add_api_route
        post("/v1/audio/transcriptions", self.transcribe, responses=documentation.TRANSCRIPTION)
        post("/v1/audio/translations", self.translate, responses=documentation.TRANSLATION, status_code=400)
        get("/v1/models", self.models, responses=documentation.MODELS)
        get("/v1/models/{model:path}", self.model, responses=documentation.MODEL)
        get("/health", self.health, responses=documentation.HEALTH)
        get("/metrics", self.metrics, responses=documentation.METRICS, response_class=PlainTextResponse)
        return router

    async def transcribe(
        self,
        form: Annotated[TranscriptionForm, Depends(TranscriptionForm.of)],
        sent: Annotated[list[str], Depends(sent_fields)],
    ) -> Response:
        """Transcribe one recording."""
        ignored = form.ignored(sent)
        headers = {IGNORED_HEADER: ", ".join(ignored)} if ignored else {}
        if form.stream:
            return EventStream(self._tell(form), headers)
        transcript = await self._transcribe(form)
        if transcript.warnings:
            headers[WARNING_HEADER] = "; ".join(transcript.warnings)
        with self._metrics.stage("render"):
            body = await _done(transcript.duration, render, transcript, form.response_format, form.detail)
        return Response(body, headers=headers, media_type=form.response_format.content_type)

    async def translate(self) -> Response:
        """Refuse: the recogniser writes what it hears in the language in which it is said."""
        raise RequestError("This model cannot translate; use /v1/audio/transcriptions.", param="model")

    async def models(self) -> dict[str, Any]:
        """List the served models."""
        return {"object": "list", "data": [catalogue.model_card()]}

    async def model(self, model: str) -> dict[str, Any]:
        """Describe a served model, by its id or an alias."""
        return catalogue.model_card(model)

    async def health(self) -> JSONResponse:
        """Answer 200 when a transcription would succeed, else 503 with the failing check."""
        verdict = await self._health.verdict()
        if verdict.healthy:
            return JSONResponse({"status": "ok"})
        return JSONResponse(
            {"status": "unavailable", "failing_check": verdict.failing_check, "reason": verdict.reason}, 503
        )

    async def metrics(self) -> Response:
        """Return the metrics of all workers for Prometheus."""
        return Response(await self._page.text(), media_type=CONTENT_TYPE)

    async def _transcribe(self, form: TranscriptionForm) -> Transcript:
        warnings: list[str] = []
        async with aclosing(self._recogniser.recognise(form.file.file, form.hotwords, warnings)) as recognised:
            parts = [part async for part in recognised]
        return await _done(_seconds(parts), Transcript.of, parts, catalogue.LANGUAGE, warnings)

    async def _tell(self, form: TranscriptionForm) -> AsyncGenerator[Event, None]:
        """Yield the events of a transcription while it happens."""
        narration = Narration(form.detail, verbose=form.response_format is ResponseFormat.VERBOSE_JSON)
        parts, warnings = list[Part](), list[str]()
        async with aclosing(self._recogniser.recognise(form.file.file, form.hotwords, warnings)) as recognised:
            async for part in recognised:
                parts.append(part)
                if event := narration.delta(*part):
                    yield event
        transcript = await _done(_seconds(parts), Transcript.of, parts, catalogue.LANGUAGE, warnings)
        with self._metrics.stage("render"):
            done = await _done(transcript.duration, narration.done, transcript)
        yield done


def _seconds(parts: Sequence[Part]) -> float:
    return sum(recognition.duration for _, recognition in parts)


async def _done(audio_s: float, work: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
    """Do `work` on a transcript: in a thread when it is long, since that of many hours takes up to a second."""
    if audio_s <= _SHORT_S:
        return work(*arguments, **keywords)
    return await asyncio.to_thread(work, *arguments, **keywords)
