"""What is slow to make and safe to share: the recogniser, spoken clips and one running service."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

# As in the service: spinning OpenMP threads stall when they share their cores. Read when PyTorch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Our kernels run in the interpreter of Triton's language, which is chosen when that is imported, as NeMo does.
os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest
import torch

from parakeet_mps.audio import decode
from parakeet_mps.checkpoint import ROOT, resolve
from parakeet_mps.settings import Settings
from processes import free_port
from recordings import speech
from sentences import consultation, draw

if TYPE_CHECKING:
    from parakeet_mps.engine.recognizer import Recognizer

START_LIMIT_S = 180
STOP_LIMIT_S = 60


@dataclass(frozen=True)
class RunningService:
    """A gateway and a real Triton on this machine."""

    url: str
    triton_url: str
    triton_metrics_url: str
    log: Path


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of asynchronous tests."""
    return "asyncio"


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    """The `.nemo` file under test: MODEL, or the demo recogniser."""
    settings = Settings.from_env(os.environ)
    return resolve(settings.model, settings.cache_path)


@pytest.fixture(scope="session")
def recognizer(checkpoint: Path) -> Recognizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NeMo and what it imports warn of their own dependencies
        from parakeet_mps.engine.recognizer import Recognizer

        return Recognizer.load(checkpoint, "cpu", threads=2)


@pytest.fixture(scope="session")
def clips() -> list[torch.Tensor]:
    """Fifty sentences that the demo recogniser was not trained on, as float32 [samples] at 16 kHz, about 2 s each."""
    rng = random.Random(50)
    sentences = [draw(rng, consultation, test=True) for _ in range(50)]
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda text: decode(speech(text), max_audio_s=60), sentences))


@pytest.fixture(scope="session")
def service(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """The whole service on the CPU, started once."""
    folder = tmp_path_factory.mktemp("service")
    http, grpc, triton_http, metrics = (free_port() for _ in range(4))
    environ = {
        **os.environ,
        "MODEL": str(checkpoint),
        "RUN_DIR": str(folder / "run"),
        "WEDGE_SENTINEL": str(folder / "wedged"),
        "HOST": "127.0.0.1",
        "PORT": str(http),
        "TRITON_URL": f"127.0.0.1:{grpc}",
        "TRITON_HTTP_PORT": str(triton_http),
        "TRITON_METRICS_PORT": str(metrics),
        "GATEWAY_WORKERS": "2",
        "CUDA_VISIBLE_DEVICES": "",
    }
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-m", "parakeet_mps.service"]
        process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_for(folder / "run" / "ready", process, folder / "log")
        yield RunningService(
            f"http://127.0.0.1:{http}", f"127.0.0.1:{grpc}", f"http://127.0.0.1:{metrics}/metrics", folder / "log"
        )
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_LIMIT_S)
    assert process.returncode == 0
    assert "Fatal Python error" not in (folder / "log").read_text(errors="replace"), "a recogniser crashed at its end"


def wait_for(ready: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the service has written its file `ready`; fail with the end of its log when it ends or is late."""
    deadline = time.monotonic() + START_LIMIT_S
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"the service did not become ready:\n{log.read_text(errors='replace')[-4000:]}")
        time.sleep(0.1)
