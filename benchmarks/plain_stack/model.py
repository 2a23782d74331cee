"""The plain stack's recogniser: NeMo's own forward under bf16 autocast, in Triton, as its documentation would have it.

It stands in for `triton_model_repo/parakeet_asr/1/model.py` when `benchmarks/compare.py` measures what the project is
compared with: the same Triton, dynamic batcher and gateway, but none of the engine.
"""

from __future__ import annotations

import json
import locale
import sys
from pathlib import Path
from typing import Any

import torch
import triton_python_backend_utils as pb_utils
from torch.nn.utils.rnn import pad_sequence
from torch.utils.dlpack import from_dlpack

WARM_UP_S = 45


class TritonPythonModel:
    """Reads and writes the tensors of `parakeet_mps.contract`."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load and warm up, the largest batch first: NeMo's graphs are then captured once."""
        config = json.loads(args["model_config"])
        settings = {key: value["string_value"] for key, value in config["parameters"].items()}
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
        sys.path.insert(0, settings["package_path"])
        from nemo.collections.asr.models import ASRModel

        from parakeet_mps import contract, file_lock, heartbeat

        self._contract = contract
        self._heartbeat = heartbeat.Heartbeat(Path(settings["heartbeats"]), args["model_instance_name"])
        self._device = torch.device(settings["device"])
        with self._heartbeat.loading(), file_lock.turn(settings["load_lock"]):
            self._model = ASRModel.restore_from(settings["model_path"], map_location=self._device).eval()
            self._model.preprocessor.featurizer.dither = 0.0
            for size in (config["max_batch_size"], 1):
                self._texts([torch.zeros(WARM_UP_S * contract.SAMPLE_RATE_HZ)] * size)
        self._heartbeat.serve(lambda: None)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return the text of each request."""
        with self._heartbeat.busy():
            utterances = [self._utterance(request) for request in requests]
            return [self._respond(*pair) for pair in zip(self._texts(utterances), utterances, strict=True)]

    def finalize(self) -> None:
        """Stop the heartbeat before the interpreter ends."""
        self._heartbeat.stop()

    def _utterance(self, request: Any) -> torch.Tensor:
        audio = pb_utils.get_input_tensor_by_name(request, self._contract.AUDIO_INPUT)
        return from_dlpack(audio.to_dlpack()).flatten()

    @torch.inference_mode()
    def _texts(self, utterances: list[torch.Tensor]) -> list[str]:
        signals = pad_sequence(utterances, batch_first=True).to(self._device)
        samples = torch.tensor([len(utterance) for utterance in utterances], device=self._device)
        with torch.autocast(self._device.type, torch.bfloat16):
            features, frames = self._model.preprocessor(input_signal=signals, length=samples)
            encoded, lengths = self._model.encoder(audio_signal=features, length=frames)
            hypotheses = self._model.decoding.rnnt_decoder_predictions_tensor(
                encoder_output=encoded, encoded_lengths=lengths, return_hypotheses=True
            )
        return [hypothesis.text for hypothesis in hypotheses]

    def _respond(self, text: str, utterance: torch.Tensor) -> Any:
        duration = len(utterance) / self._contract.SAMPLE_RATE_HZ
        document = self._contract.Recognition(text, duration, (), ()).to_json()
        tensor = torch.frombuffer(bytearray(document), dtype=torch.uint8)
        return pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack(self._contract.RECOGNITION_OUTPUT, tensor)])
