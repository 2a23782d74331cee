"""Triton's adapter of the recogniser: tensors in, one engine call, tensors out. What is done with them is `engine`.

A batch is heard in `execute`, and read and answered from another thread while the next one is heard: reading is the
host's work, some 2 ms an utterance, for which the GPU would otherwise wait.
https://github.com/triton-inference-server/python_backend#using-response-sender
"""

from __future__ import annotations

import gc
import json
import locale
import logging
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton_python_backend_utils as pb_utils
from torch.utils.dlpack import from_dlpack

THREAD_SWITCH_S = 0.0002
"""Longest that the thread that feeds the device waits for the one that reads. Python's own 5 ms are a batch's tenth."""


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
        from parakeet_mps import heartbeat

        self._heartbeat = heartbeat.Heartbeat(Path(settings["heartbeats"]), args["model_instance_name"])
        with self._heartbeat.loading():
            self._load(args, settings)

    def _load(self, args: dict[str, str], settings: dict[str, str]) -> None:
        from parakeet_mps import contract, file_lock, partition

        os.environ.update(partition.client_environ(settings))  # before the first CUDA call
        if settings["device"] == "cuda":
            partition.check_partition(settings, torch.cuda.get_device_properties(0).multi_processor_count)

        from parakeet_mps.after_work import AfterWork
        from parakeet_mps.device_probe import device_probe
        from parakeet_mps.engine.groundwork import lay_groundwork
        from parakeet_mps.engine.loading import read_model
        from parakeet_mps.engine.recognizer import Heard, Recognizer
        from parakeet_mps.engine.unpacking import unpack_once
        from parakeet_mps.engine.utterance import UtteranceError
        from parakeet_mps.instance_metrics import InstanceMetrics

        self._contract, self._heard, self._utterance_error = contract, Heard, UtteranceError
        path, device, passed = Path(settings["model_path"]), settings["device"], self._heartbeat.passed
        torch.set_num_threads(int(settings["torch_threads"]))
        passed("imports")
        model = read_model(path, unpack_once(path, Path(settings["unpacked"])))
        passed("reading")
        groundwork = lay_groundwork(model, torch.device(device))
        passed("groundwork")
        with file_lock.turn(settings["load_lock"]):  # from here on memory peaks, of which all take from one GPU
            passed("waiting")
            self._recognizer = Recognizer.start(model, groundwork, passed)
        self._metrics = InstanceMetrics(pb_utils.MetricFamily, args, self._recognizer.counters)
        sys.setswitchinterval(THREAD_SWITCH_S)
        self._after_work = AfterWork(self._heartbeat.busy)
        gc.enable()
        self._heartbeat.serve(device_probe(device))

    def execute(self, requests: list[Any]) -> None:
        """Hear a batch. Each request gets its recognition, or an error that is its alone, from another thread."""
        with self._heartbeat.busy():
            began = time.monotonic()
            audio, phrases = [self._utterance(item) for item in requests], [self._hotwords(item) for item in requests]
            outcomes = self._hear(audio, phrases)
            senders = [request.get_response_sender() for request in requests]
            self._after_work.put(partial(self._answer, senders, outcomes, time.monotonic() - began))

    def finalize(self) -> None:
        """Answer what was heard, and stop the heartbeat before the interpreter ends."""
        self._after_work.stop()
        self._heartbeat.stop()
        # What outlives the stub's shared memory, and lets go of its part of it in the end, crashes the stub.
        del self._metrics
        gc.collect()

    def _utterance(self, request: Any) -> Any:
        audio = pb_utils.get_input_tensor_by_name(request, self._contract.AUDIO_INPUT)
        samples = from_dlpack(audio.to_dlpack())
        return samples[0] if samples.ndim == 2 and len(samples) == 1 else samples

    def _hotwords(self, request: Any) -> tuple[str, ...]:
        document = pb_utils.get_input_tensor_by_name(request, self._contract.HOTWORDS_INPUT)
        if document is None:
            return ()
        return self._contract.read_phrases(bytes(from_dlpack(document.to_dlpack()).flatten().tolist()))

    def _hear(self, utterances: list[Any], hotwords: list[tuple[str, ...]]) -> list[Any]:
        try:
            return self._recognizer.hear(utterances, hotwords)
        except Exception as error:  # a batch must not fail because of one of its members
            if not self._heartbeat.check() or len(utterances) == 1:
                logging.getLogger(__name__).exception("recognition failed")
                return [error] * len(utterances)
        pairs = zip(utterances, hotwords, strict=True)
        return [outcome for utterance, phrases in pairs for outcome in self._hear([utterance], [phrases])]

    def _answer(self, senders: list[Any], outcomes: list[Any], busy_s: float) -> None:
        for sender, outcome in zip(senders, outcomes, strict=True):
            try:
                sender.send(self._respond(outcome), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            except Exception:  # the others of its batch must still be answered
                logging.getLogger(__name__).exception("answering failed")
        self._metrics.tell_batch(len(outcomes), busy_s)

    def _respond(self, outcome: Any) -> Any:
        if isinstance(outcome, self._utterance_error):
            return self._refusal(f"{self._contract.BAD_UTTERANCE}{outcome}", pb_utils.TritonError.INVALID_ARG)
        if isinstance(outcome, self._heard):
            try:
                document = torch.frombuffer(bytearray(self._recognizer.read(outcome).to_json()), dtype=torch.uint8)
                output = pb_utils.Tensor.from_dlpack(self._contract.RECOGNITION_OUTPUT, document)
                return pb_utils.InferenceResponse([output])
            except Exception:  # it must be answered all the same
                logging.getLogger(__name__).exception("reading failed")
        healthy = self._heartbeat.healthy
        return self._refusal("recognition failed; see the log" if healthy else "the recogniser is not healthy")

    @staticmethod
    def _refusal(message: str, *code: int) -> Any:
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, *code))
