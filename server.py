"""Entry of the HTTP gateway: settings -> Triton client -> app. `python server.py` starts all its workers.

`uvicorn server:app --workers N` does too; name an empty folder in `PROMETHEUS_MULTIPROC_DIR` for one /metrics of all.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING

from parakeet_mps import logs
from parakeet_mps.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"


def build_app(environ: Mapping[str, str]) -> FastAPI:
    """Return the gateway of one worker process. Raises `SettingError` on a bad setting."""
    settings = Settings.from_env(environ)
    logs.configure(settings.log_level)
    import torch  # here, so that a bad setting is refused at once and the workers' parent stays small

    from parakeet_mps.gateway.app import create_app
    from parakeet_mps.gateway.metrics import Metrics, shared_folder
    from parakeet_mps.gateway.triton import TritonTranscriber

    torch.set_num_threads(1)  # the workers are the parallelism
    metrics = Metrics(shared_folder(environ.get(METRICS_FOLDER)))
    return create_app(settings, TritonTranscriber(settings.triton_url, settings.max_audio_s), metrics)


def serve() -> None:
    """Run all workers in the foreground."""
    import uvicorn

    settings = Settings.from_env(os.environ)
    os.environ[METRICS_FOLDER] = str(settings.run_path / "metrics")
    shutil.rmtree(os.environ[METRICS_FOLDER], ignore_errors=True)
    uvicorn.run(
        "server:app",
        host=settings.host,
        port=settings.port,
        workers=settings.gateway_workers,
        log_level=settings.log_level,
        access_log=False,  # the app logs its own
        timeout_graceful_shutdown=settings.stop_timeout_s,
        timeout_worker_healthcheck=20,  # uvicorn is deaf meanwhile: importing torch takes less, stopping may take more
    )


if __name__ == "__main__":
    serve()
elif __name__ == "server":
    app = build_app(os.environ)
