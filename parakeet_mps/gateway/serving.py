"""The gateway's processes: the app of each worker, and the workers."""

from __future__ import annotations

import logging
import os
import resource
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parakeet_mps import logs
from parakeet_mps.api_keys import read_keys
from parakeet_mps.gateway.metrics_room import take_counts_room
from parakeet_mps.run_folder import RunFolder
from parakeet_mps.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from parakeet_mps.gateway.transcriber import Transcriber

LOG = logging.getLogger(__name__)

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"

KEEP_ALIVE_S = 75
"""Longer than load balancers keep idle connections, usually 60 s, so that none sends into one that is being closed."""


def build_app(environ: Mapping[str, str], transcriber: Transcriber | None = None) -> FastAPI:
    """Return the gateway of one worker process, by default in front of Triton. Raises `SettingError`."""
    settings = Settings.from_env(environ)
    logs.configure(settings.log_level, settings.log_format)
    logging.getLogger("uvicorn.access").disabled = True  # it logs paths and queries as sent; the app logs its own
    counts = _metrics_folder(environ)
    import torch  # here, so that a bad setting is refused at once and the workers' parent stays small

    from parakeet_mps.gateway.admission import Admission
    from parakeet_mps.gateway.app import create_app
    from parakeet_mps.gateway.audio_transport import AudioTransport
    from parakeet_mps.gateway.metrics import Metrics
    from parakeet_mps.gateway.tracing import tracer_of
    from parakeet_mps.gateway.triton import TritonTranscriber

    torch.set_num_threads(1)  # the workers are the parallelism
    metrics = Metrics(counts, tracer_of(settings))
    admission = Admission(settings.max_in_flight, settings.run_path / "admission")
    if transcriber is None:
        transcriber = TritonTranscriber(settings.triton_url, AudioTransport.of(settings, metrics.sent_audio))
    return create_app(settings, transcriber, metrics, admission)


def _metrics_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder that the workers share. One that has no room there only reads it, and counts for nobody."""
    if not (name := environ.get(METRICS_FOLDER)):
        return None
    folder = Path(name)
    try:
        take_counts_room(folder)
    except OSError as error:
        LOG.error("what this worker does will be missing in /metrics: %s: %s", folder, error.strerror)
        os.environ.pop(METRICS_FOLDER, None)  # prometheus_client, which is imported next, then keeps its counts itself
    return folder if folder.is_dir() else None


def serve(app: str) -> None:
    """Run all workers in the foreground, each with the `app` that it imports. Raises `SettingError`."""
    settings = Settings.from_env(os.environ)
    read_keys(settings)  # unfit ones are refused here, once
    logs.configure(settings.log_level, settings.log_format)
    _allow_many_connections()
    os.environ[METRICS_FOLDER] = str(settings.run_path / "metrics")
    shutil.rmtree(os.environ[METRICS_FOLDER], ignore_errors=True)
    try:
        _run(app, settings)
    finally:
        RunFolder(settings.run_path).remove_audio_memory()  # of workers that were killed


def _run(app: str, settings: Settings) -> None:
    import uvicorn

    from parakeet_mps.gateway.workers import Workers

    options: dict[str, Any] = {
        "host": settings.host,
        "port": settings.port,
        "log_level": settings.log_level,
        "log_config": None,  # uvicorn's lines take the format of all others
        "access_log": False,  # the app logs its own
        "http": "parakeet_mps.gateway.http_protocol:GatewayProtocol",
        "ws": "none",
        "timeout_keep_alive": KEEP_ALIVE_S,
        "timeout_graceful_shutdown": 2,  # by then the app has drained, see parakeet_mps.gateway.draining
        "timeout_worker_healthcheck": 20,  # uvicorn is deaf meanwhile: importing torch takes less, stopping may not
    }
    if settings.gateway_workers == 1:
        uvicorn.run(app, **options)
    else:
        config = uvicorn.Config(app, workers=settings.gateway_workers, **options)
        Workers(config, sockets=[config.bind_socket()]).run()


def _allow_many_connections() -> None:
    """Raise the limit of open files, of which every idle connection takes one, as far as it goes."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
