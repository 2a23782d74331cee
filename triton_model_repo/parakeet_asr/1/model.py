"""Triton's adapter: tensors in, one call, tensors out. What is done with them is `parakeet_mps.instance`.

Answers are sent from another thread, when the next batch may already be there.
https://github.com/triton-inference-server/python_backend#using-response-sender
"""

from __future__ import annotations

import gc
import json
import locale
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton_python_backend_utils as pb_utils
from torch.utils.dlpack import from_dlpack


class TritonPythonModel:
    """Reads and writes the tensors of `parakeet_mps.contract`. Parameters: `parakeet_mps.model_config`."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the recogniser, when it is this instance's turn."""
        parameters = json.loads(args["model_config"])["parameters"]
        settings = {key: value["string_value"] for key, value in parameters.items()}
        # Triton's stub keeps the C locale and ignores PYTHONPATH, but PyTorch reads sources that are UTF-8.
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
        sys.path.insert(0, settings["package_path"])
        gc.disable()  # until all is loaded: walking again and again through what is imported takes a quarter of it
        from parakeet_mps.heartbeat import Heartbeat
        from parakeet_mps.partition import client_environ

        os.environ.update(client_environ(settings))  # before the first call of CUDA, which importing NeMo makes
        heartbeat = Heartbeat(Path(settings["heartbeats"]), args["model_instance_name"])
        with heartbeat.loading():
            self._load(args, settings, heartbeat)

    def _load(self, args: dict[str, str], settings: dict[str, str], heartbeat: Any) -> None:
        from parakeet_mps import contract
        from parakeet_mps.device_probe import device_probe
        from parakeet_mps.instance import Instance, Refusal, load_recognizer
        from parakeet_mps.instance_metrics import InstanceMetrics

        self._contract, self._refusal = contract, Refusal
        recognizer = load_recognizer(settings, heartbeat.passed)
        metrics = InstanceMetrics(pb_utils.MetricFamily, args, recognizer.counters)
        self._instance = Instance(recognizer, heartbeat, metrics.tell_batch)
        gc.enable()
        heartbeat.serve(device_probe(settings["device"]))

    def execute(self, requests: list[Any]) -> None:
        """Have a batch recognised."""
        utterances, phrases = [self._utterance(item) for item in requests], [self._phrases(item) for item in requests]
        answers = [partial(self._answer, request.get_response_sender()) for request in requests]
        self._instance.recognise(utterances, phrases, answers)

    def finalize(self) -> None:
        """Have answered what was heard, before the interpreter ends."""
        self._instance.stop()
        # Metrics that outlive the stub's shared memory, and let go of their part of it in the end, crash the stub.
        del self._instance
        gc.collect()

    def _utterance(self, request: Any) -> Any:
        audio = pb_utils.get_input_tensor_by_name(request, self._contract.AUDIO_INPUT)
        samples = from_dlpack(audio.to_dlpack())
        return samples[0] if samples.ndim == 2 and len(samples) == 1 else samples

    def _phrases(self, request: Any) -> tuple[str, ...]:
        document = pb_utils.get_input_tensor_by_name(request, self._contract.HOTWORDS_INPUT)
        if document is None:
            return ()
        return self._contract.read_phrases(bytes(from_dlpack(document.to_dlpack()).flatten().tolist()))

    def _answer(self, sender: Any, outcome: Any) -> None:
        sender.send(self._respond(outcome), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def _respond(self, outcome: Any) -> Any:
        if isinstance(outcome, self._refusal):
            code = [pb_utils.TritonError.INVALID_ARG] if outcome.bad_utterance else []
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(outcome.reason, *code))
        document = torch.frombuffer(bytearray(outcome), dtype=torch.uint8)
        return pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack(self._contract.RECOGNITION_OUTPUT, document)])
