"""The gateway, put together from the settings and a transcriber."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from starlette.middleware import Middleware

from parakeet_mps import __version__
from parakeet_mps.api_keys import read_keys
from parakeet_mps.gateway import documentation, failures
from parakeet_mps.gateway.access import AccessLayer
from parakeet_mps.gateway.admission import Admission, AdmissionLayer
from parakeet_mps.gateway.decoding import Decoder
from parakeet_mps.gateway.disconnect import DisconnectLayer
from parakeet_mps.gateway.draining import Drain, drain_on_signals
from parakeet_mps.gateway.health import Health
from parakeet_mps.gateway.keys import KeyLayer, open_paths
from parakeet_mps.gateway.lingering import LingeringLayer
from parakeet_mps.gateway.metrics import Metrics
from parakeet_mps.gateway.metrics_page import MetricsPage
from parakeet_mps.gateway.retrying import RetryingTranscriber
from parakeet_mps.gateway.routes import Routes
from parakeet_mps.gateway.service_state import ServiceState
from parakeet_mps.gateway.transcriber import Transcriber
from parakeet_mps.gateway.triton_page import TritonPage
from parakeet_mps.gateway.upload_limit import UploadLimit
from parakeet_mps.gateway.upload_pace import UploadPace
from parakeet_mps.gateway.upload_recognition import Limits, UploadRecogniser
from parakeet_mps.gateway.web_page import WebPage
from parakeet_mps.settings import Settings


def create_app(
    settings: Settings, transcriber: Transcriber, metrics: Metrics | None = None, admission: Admission | None = None
) -> FastAPI:
    """Return the gateway's ASGI app. It closes `transcriber` and `admission` when it shuts down.

    Without `metrics` and `admission` both are this process's own. Raises `SettingError` when the API keys are unfit.
    """
    metrics = metrics or Metrics()
    admission = admission or Admission(settings.max_in_flight)
    drain = Drain(settings.stop_timeout_s)
    keys = read_keys(settings)
    decoder = Decoder(settings.max_audio_s)
    sentinel = Path(settings.wedge_sentinel)
    health = Health(transcriber, sentinel, drain)  # it is to see what a retry would hide

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        decoder.start()
        with drain_on_signals(drain):
            yield
        admission.close()
        decoder.close()
        await transcriber.close()
        await asyncio.to_thread(metrics.tracer.close)

    app = FastAPI(
        title="parakeet-mps",
        version=__version__,
        lifespan=lifespan,
        middleware=[
            Middleware(LingeringLayer, drain=drain),
            Middleware(AccessLayer, metrics=metrics),
            Middleware(KeyLayer, keys=keys, open_paths=open_paths(settings)),
            Middleware(UploadLimit, max_upload_mb=settings.max_upload_mb),
            Middleware(AdmissionLayer, admission=admission, drain=drain),
            Middleware(UploadPace, grace_s=settings.upload_grace_s, min_kib_s=settings.min_upload_kib_s),
            Middleware(DisconnectLayer),
        ],
        form_limits={"max_files": 1, "max_fields": 100, "max_part_size": 64 << 10},
    )
    failures.install(app)
    documentation.install(app, open_paths(settings) if keys.required else None)
    retrying = RetryingTranscriber(transcriber, sentinel.exists, metrics.retried)
    recogniser = UploadRecogniser(decoder, retrying, health, metrics, Limits.of(settings))
    page = MetricsPage(metrics, [ServiceState(settings)], TritonPage.of(settings))
    app.include_router(Routes(recogniser, health, metrics, page).router())
    app.include_router(WebPage(settings, asks_key=keys.required).router())
    return app
