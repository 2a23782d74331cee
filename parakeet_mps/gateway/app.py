"""The gateway, put together from the settings and a transcriber."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from starlette.middleware import Middleware

from parakeet_mps import __version__
from parakeet_mps.gateway import failures
from parakeet_mps.gateway.access import AccessLayer
from parakeet_mps.gateway.decoding import Decoder
from parakeet_mps.gateway.health import Health
from parakeet_mps.gateway.metrics import Metrics
from parakeet_mps.gateway.routes import Routes
from parakeet_mps.gateway.transcriber import Transcriber
from parakeet_mps.gateway.upload_limit import UploadLimit
from parakeet_mps.settings import Settings


def create_app(settings: Settings, transcriber: Transcriber, metrics: Metrics | None = None) -> FastAPI:
    """Return the gateway's ASGI app. It closes `transcriber` when it shuts down."""
    metrics = metrics or Metrics()
    decoder = Decoder(settings.max_audio_s)
    health = Health(transcriber, Path(settings.wedge_sentinel))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        decoder.close()
        await transcriber.close()

    app = FastAPI(
        title="parakeet-mps",
        version=__version__,
        lifespan=lifespan,
        middleware=[
            Middleware(AccessLayer, metrics=metrics),
            Middleware(UploadLimit, max_upload_mb=settings.max_upload_mb),
        ],
        form_limits={"max_files": 1, "max_fields": 100, "max_part_size": 64 << 10},
    )
    failures.install(app)
    app.include_router(Routes(transcriber, decoder, health, metrics, settings.request_timeout_s).router())
    return app
