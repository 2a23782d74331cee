"""Waveforms -> encoded frames: features and encoder together, ours where they can be, else NeMo's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from parakeet_mps.contract import SAMPLE_RATE_HZ
from parakeet_mps.engine.batching import pad
from parakeet_mps.engine.buckets import ALIGNMENT, align
from parakeet_mps.engine.buzz import buzz
from parakeet_mps.engine.encoder.conformer import Encoder
from parakeet_mps.engine.encoder.operations import Operations
from parakeet_mps.engine.encoder.support import find_obstacle as find_encoder_obstacle
from parakeet_mps.engine.features import MelFeatures
from parakeet_mps.engine.features import find_obstacle as find_feature_obstacle

MOST_ERROR = {torch.float32: 0.001, torch.bfloat16: 0.08}
"""Root mean square of an encoding's error that is put down to rounding, as a part of the encoding's own."""


class Acoustics(Protocol):
    """Encodes utterances, each float32 [samples] at 16 kHz on the CPU, as one batch."""

    def __call__(self, utterances: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (encoded [utterances, frames, channels], true lengths int64 [utterances]) on the device.

        Both are valid until the next call.
        """


class Frontend:
    """Our features and encoder of one model, on its device, in the encoder's dtype. Needs no module afterwards."""

    def __init__(self, model: Any, longest: int, dtype: torch.dtype, operations: Operations) -> None:
        self._features = MelFeatures(model.preprocessor.featurizer)
        self._encoder = Encoder(model.encoder, longest, dtype, operations)
        self.dtype = dtype
        self.channels = self._encoder.channels
        self.frame_samples = self._features.hop * self._encoder.factor

    def __call__(self, signals: torch.Tensor, samples: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (encoded [utterances, frames, channels], true lengths int64 [utterances]) without waiting.

        `signals` is fp32 [utterances, frames x `frame_samples`], `samples` the true lengths, int64 [utterances].
        """
        return self._encoder(self._features(signals, samples), self._features.count(samples))


class EagerAcoustics:
    """Runs a `Frontend` as it is, on batches of any shape that its encoder takes."""

    def __init__(self, frontend: Frontend, device: torch.device) -> None:
        self.frontend = frontend
        self._device = device
        # Only CUDA's attention kernels want whole multiples; on a CPU it would be work for nothing.
        self._step = frontend.frame_samples * (ALIGNMENT if device.type == "cuda" else 1)

    def __call__(self, utterances: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """See `Acoustics`."""
        return self.frontend(*pad(utterances, self._device, self._step))


class NemoAcoustics:
    """NeMo's own preprocessor and encoder, for models with options that ours lack."""

    def __init__(self, model: Any, device: torch.device, dtype: torch.dtype) -> None:
        self._preprocessor, self._encoder = model.preprocessor, model.encoder.to(dtype)
        self._device, self._dtype = device, dtype

    def __call__(self, utterances: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """See `Acoustics`."""
        signals, samples = pad(utterances, self._device)
        features, frames = self._preprocessor(input_signal=signals, length=samples)
        encoded, lengths = self._encoder(audio_signal=features.to(self._dtype), length=frames)
        return encoded.transpose(1, 2), lengths


def find_obstacle(model: Any) -> str | None:
    """Return why a `Frontend` cannot stand in for the model's preprocessor and encoder, or `None`."""
    return find_feature_obstacle(model.preprocessor.featurizer) or find_encoder_obstacle(model.encoder)


@torch.inference_mode()
def find_difference(frontend: Frontend, model: Any, device: torch.device) -> str | None:
    """Return how a `Frontend` encodes otherwise than the fp32 NeMo model that it was made of, or `None`.

    A batch of two is compared on `device`. An exception, such as a library's that has no kernel, is a difference.
    """
    batch = [buzz(1.7), buzz(1.2)]
    expected, lengths = NemoAcoustics(model, device, torch.float32)(batch)
    try:
        found, found_lengths = EagerAcoustics(frontend, device)(batch)
    except RuntimeError as error:
        return str(error)
    if not torch.equal(found_lengths, lengths):
        return f"lengths {found_lengths.tolist()}, not {lengths.tolist()}"
    frames = int(lengths.min())
    difference = found[:, :frames].float() - expected[:, :frames]
    part = float(difference.square().mean().sqrt() / expected[:, :frames].square().mean().sqrt())
    return None if part <= MOST_ERROR[frontend.dtype] else f"an error of {part:.1%}"


def longest_frames(model: Any, max_samples: int) -> int:
    """Return the encoder frames of an utterance of `max_samples`, as a multiple of `ALIGNMENT`."""
    frame_samples = SAMPLE_RATE_HZ * model.cfg.preprocessor.window_stride * model.encoder.subsampling_factor
    return align(-(-max_samples // round(frame_samples)))
