"""The HTTP routes: the OpenAI transcription API, health and metrics."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse, Response

from parakeet_mps.contract import SAMPLE_RATE_HZ, Recognition
from parakeet_mps.errors import DeadlineError
from parakeet_mps.gateway import catalogue
from parakeet_mps.gateway.decoding import Decoder
from parakeet_mps.gateway.health import Health
from parakeet_mps.gateway.metrics import CONTENT_TYPE, Metrics
from parakeet_mps.gateway.transcriber import Transcriber
from parakeet_mps.gateway.transcription_form import TranscriptionForm, sent_fields
from parakeet_mps.transcripts import Transcript, render

IGNORED_HEADER = "x-ignored-parameters"
"""Names the request's fields that had no effect."""


class Routes:
    """The handlers and what they work with. `timeout_s` bounds decoding and recognition together."""

    def __init__(
        self, transcriber: Transcriber, decoder: Decoder, health: Health, metrics: Metrics, timeout_s: float
    ) -> None:
        self._transcriber = transcriber
        self._decoder = decoder
        self._health = health
        self._metrics = metrics
        self._timeout_s = timeout_s

    def router(self) -> APIRouter:
        """Return the routes, to be included in an app."""
        router = APIRouter()
        router.add_api_route("/", self.root, methods=["GET"], include_in_schema=False)
        router.add_api_route("/v1/audio/transcriptions", self.transcribe, methods=["POST"])
        router.add_api_route("/v1/models", self.models, methods=["GET"])
        router.add_api_route("/v1/models/{model}", self.model, methods=["GET"])
        router.add_api_route("/health", self.health, methods=["GET"])
        router.add_api_route("/metrics", self.metrics, methods=["GET"])
        return router

    async def root(self) -> dict[str, str]:
        """Point to the documentation."""
        return {"service": "parakeet-mps", "documentation": "/docs", "openapi": "/openapi.json"}

    async def transcribe(
        self, form: Annotated[TranscriptionForm, Depends()], sent: Annotated[list[str], Depends(sent_fields)]
    ) -> Response:
        """Transcribe one recording."""
        try:
            async with asyncio.timeout(self._timeout_s):
                recognition = await self._recognise(form)
        except TimeoutError:
            raise DeadlineError("The transcription took too long.") from None
        rendering = render(Transcript.of(recognition, catalogue.LANGUAGE), form.response_format, form.granularities)
        ignored = form.ignored(sent)
        headers = {IGNORED_HEADER: ", ".join(ignored)} if ignored else None
        return Response(rendering.body, headers=headers, media_type=rendering.content_type)

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
        return Response(self._metrics.exposition(), media_type=CONTENT_TYPE)

    async def _recognise(self, form: TranscriptionForm) -> Recognition:
        with self._metrics.stage("decode"):
            waveform = await self._decoder.decode(form.file.file)
        with self._metrics.stage("inference"):
            recognition = await self._transcriber.transcribe(waveform, self._timeout_s)
        self._health.proved()
        self._metrics.transcribed(waveform.numel() / SAMPLE_RATE_HZ)
        return recognition
