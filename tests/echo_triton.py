"""A real Triton whose recogniser says what samples it was sent, and does what it is told in the hotwords."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from tritonclient import grpc
from tritonclient.utils import InferenceServerException

from parakeet_mps.triton_server import TritonInstallation, find_installation
from processes import free_port

START_LIMIT_S = 60.0

CONFIG = """
name: "parakeet_asr"
backend: "python"
max_batch_size: 16
input { name: "AUDIO" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }
input { name: "HOTWORDS" data_type: TYPE_UINT8 dims: [-1] allow_ragged_batch: true optional: true }
output { name: "RECOGNITION" data_type: TYPE_UINT8 dims: [-1] }
instance_group { count: %d kind: KIND_CPU }
dynamic_batching { }
"""

MODEL = """
import json, os, signal, time
import numpy
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        audio = pb_utils.get_input_tensor_by_name(request, "AUDIO").as_numpy()
        phrases = pb_utils.get_input_tensor_by_name(request, "HOTWORDS").as_numpy().tobytes().decode().split()
        if "crash" in phrases:
            os.kill(os.getpid(), signal.SIGKILL)
        if phrases:
            time.sleep(float(phrases[0]))
        text = f"{audio.size} samples from {audio.min():g} to {audio.max():g}"
        none = dict.fromkeys(("text", "id", "start", "end", "confidence"), ())
        recognition = {"text": text, "duration": audio.size / 16000, "tokens": none, "words": none}
        document = numpy.frombuffer(json.dumps(recognition).encode(), numpy.uint8)
        return pb_utils.InferenceResponse([pb_utils.Tensor("RECOGNITION", document)])
"""

CRASH = "crash"
"""Hotword upon which the recogniser's process kills itself."""


def said(waveform: torch.Tensor) -> str:
    """Return what the recogniser says of float32 [samples]."""
    return f"{waveform.numel()} samples from {waveform.min():g} to {waveform.max():g}"


class EchoTriton:
    """A `tritonserver` on a port of its own that can be started, killed and started again."""

    def __init__(self, folder: Path, instances: int = 1, model: str = MODEL) -> None:
        self.port = free_port()
        self.url = f"127.0.0.1:{self.port}"
        self.log = folder / "triton.log"
        self._folder = folder
        self._installation = find_installation(folder / "overlay")
        self._process: subprocess.Popen[bytes] | None = None
        place = folder / "models" / "parakeet_asr"
        (place / "1").mkdir(parents=True)
        (place / "config.pbtxt").write_text(CONFIG % instances)
        (place / "1" / "model.py").write_text(model)

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start it, without waiting until it is ready."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(self._installation),
                env=_environ(self._installation),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Return when it answers."""
        deadline = time.monotonic() + START_LIMIT_S
        with grpc.InferenceServerClient(self.url) as client:
            while not _is_ready(client):
                assert time.monotonic() < deadline, self.log.read_text()[-4000:]
                time.sleep(0.05)

    def kill(self) -> None:
        """Kill it and its stubs at once, and remove what a killed Triton leaves in shared memory."""
        if self._process:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
        for region in Path("/dev/shm").glob(f"{self._shm_prefix}*"):
            region.unlink()

    @property
    def _shm_prefix(self) -> str:
        return f"echo_triton_{self.port}_"

    def _command(self, installation: TritonInstallation) -> list[str]:
        return [
            str(installation.program),
            f"--model-repository={self._folder / 'models'}",
            f"--backend-directory={installation.backends}",
            f"--backend-config=python,shm-region-prefix-name={self._shm_prefix}",
            "--grpc-address=127.0.0.1",
            f"--grpc-port={self.port}",
            "--allow-http=false",
            "--allow-metrics=false",
            "--log-info=false",
            "--pinned-memory-pool-byte-size=0",
        ]


@contextmanager
def echo_triton(folder: Path, instances: int = 1, model: str = MODEL) -> Iterator[EchoTriton]:
    """One that is ready; killed in the end."""
    triton = EchoTriton(folder, instances, model)
    try:
        triton.start()
        triton.wait_ready()
        yield triton
    finally:
        triton.kill()


def _environ(installation: TritonInstallation) -> dict[str, str]:
    # The stub takes its modules from the first Python on the PATH.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "LD_LIBRARY_PATH": ":".join(map(str, installation.libraries))}


def _is_ready(client: grpc.InferenceServerClient) -> bool:
    try:
        return bool(client.is_model_ready("parakeet_asr"))
    except InferenceServerException:
        return False
