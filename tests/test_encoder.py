"""Our encoder and features compute what NeMo's do, whatever an utterance shares its batch with."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # NeMo and what it imports warn of their own dependencies
    from nemo.collections.asr.modules import AudioToMelSpectrogramPreprocessor, ConformerEncoder

    from parakeet_mps.engine.encoder.conformer import Encoder
    from parakeet_mps.engine.encoder.reference import PLAIN
    from parakeet_mps.engine.encoder.support import find_obstacle
    from parakeet_mps.engine.features import MelFeatures
    from parakeet_mps.engine.features import find_obstacle as find_feature_obstacle

if TYPE_CHECKING:
    from pathlib import Path

TOLERANCE = 1e-4
"""Largest difference allowed, as a part of the largest value."""

MIXES_S = {
    "one": [2.0],
    "equal": [1.0, 1.0],
    "mixed": [2.0, 0.1, 1.37, 0.991, 1.6, 1.601, 1.609, 1.61, 1.619, 1.62, 1.63, 1.67],
    "one that fills nothing": [1.0, 0.0],
}
PARAKEET = {"d_model": 1024, "n_heads": 8, "subsampling_conv_channels": 256, "use_bias": False, "xscaling": False}
SMALL = {"d_model": 48, "n_heads": 4, "subsampling_conv_channels": 16}
VARIANTS = {
    "Parakeet's shape": PARAKEET,
    "biases": {**SMALL, "use_bias": True},
    "scaled input": {**SMALL, "xscaling": True},
    "tied biases of positions": {**SMALL, "untie_biases": False},
    "long convolutions": {**SMALL, "conv_kernel_size": 31},
}
UNSUPPORTED = {
    "local attention": (
        {"self_attention_model": "rel_pos_local_attn", "att_context_size": [8, 8]},
        "rel_pos_local_attn",
    ),
    "limited context": ({"att_context_size": [16, 0]}, "limited"),
    "causal subsampling": ({"causal_downsampling": True}, "subsampling"),
    "another subsampling": ({"subsampling": "striding"}, "striding"),
    "layer norm in convolutions": ({"conv_norm_type": "layer_norm"}, "layer_norm"),
    "causal convolutions": ({"conv_context_size": "causal"}, "one side"),
    "projected output": ({"feat_out": 7}, "projects"),
}


def featurizer(**options: Any) -> Any:
    preprocessor = AudioToMelSpectrogramPreprocessor(
        **{"features": 128, "window_size": 0.025, "n_fft": 512, "dither": 0.0, "pad_to": 0, **options}
    )
    return preprocessor.eval().featurizer


def encoder(**options: Any) -> ConformerEncoder:
    """A frozen encoder of two layers whose weights, biases and statistics are all random."""
    torch.manual_seed(0)
    defaults = {"feat_in": 128, "n_layers": 2, "subsampling": "dw_striding", "subsampling_factor": 8}
    module = ConformerEncoder(**{**defaults, "conv_kernel_size": 9, **options}).eval()
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if "running_var" in name or ("norm" in name and "weight" in name):
            tensor.data = torch.rand_like(tensor) + 0.5
        elif name.endswith("bias") or "pos_bias" in name or "running_mean" in name:
            tensor.data = torch.randn_like(tensor) * 0.3
    module.freeze()
    return module


def mix(durations_s: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    """Signals [utterances, whole encoder frames] with rubbish beyond their lengths, and those lengths."""
    samples = torch.tensor([round(seconds * 16_000) for seconds in durations_s])
    signals = torch.randn(
        len(samples), -(-int(samples.max()) // 1280) * 1280, generator=torch.Generator().manual_seed(1)
    )
    for signal, length in zip(signals, samples, strict=True):
        signal[length:] = 7.7
    return signals, samples


def greatest_difference(ours: torch.Tensor, theirs: torch.Tensor, lengths: torch.Tensor) -> float:
    """Greatest difference of [utterances, frames, ...] at true frames, as a part of the greatest value."""
    pairs = [(a[:n], b[:n]) for a, b, n in zip(ours, theirs, lengths.tolist(), strict=True) if n]
    return max(float((a - b).abs().max()) for a, b in pairs) / max(float(b.abs().max()) for _, b in pairs)


@pytest.mark.parametrize("durations_s", MIXES_S.values(), ids=MIXES_S)
@pytest.mark.parametrize("options", [{}, {"features": 80, "preemph": None, "log_zero_guard_type": "clamp"}])
def test_features_are_nemos(durations_s: list[float], options: dict[str, Any]) -> None:
    theirs = featurizer(**options)
    ours = MelFeatures(theirs)
    assert find_feature_obstacle(theirs) is None
    signals, samples = mix(durations_s)
    beyond = torch.arange(signals.shape[1]) >= samples[:, None]  # NeMo without pre-emphasis does not ignore it
    expected, frames = theirs(signals.masked_fill(beyond, 0.0)[:, : int(samples.max())], samples)
    found = ours(signals, samples)
    assert torch.equal(ours.count(samples), frames)
    assert found.isfinite().all()
    assert greatest_difference(found, expected.transpose(1, 2), frames) < TOLERANCE
    assert all(not features[count:].any() for features, count in zip(found, frames.tolist(), strict=True))


@pytest.mark.parametrize("options", [{"normalize": "NA"}, {"exact_pad": True}, {"log": False}])
def test_unusual_features_are_left_to_nemo(options: dict[str, Any]) -> None:
    assert find_feature_obstacle(featurizer(**options))


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_what_is_encoded_is_nemos(options: dict[str, Any]) -> None:
    module = encoder(**options)
    assert find_obstacle(module) is None
    features, frames = _features(MIXES_S["mixed"])
    expected, lengths = module(audio_signal=features.transpose(1, 2), length=frames)
    found, found_lengths = Encoder(module, 32, torch.float32, PLAIN)(features, frames)
    assert torch.equal(found_lengths, lengths)
    assert greatest_difference(found, expected.transpose(1, 2), lengths) < TOLERANCE


def test_more_padding_changes_nothing() -> None:
    ours = Encoder(encoder(**SMALL), 64, torch.float32, PLAIN)
    features, frames = _features(MIXES_S["mixed"])
    expected, lengths = ours(features, frames)
    wide = torch.nn.functional.pad(features, (0, 0, 0, 30 * 8, 0, 3))
    found, found_lengths = ours(wide, torch.nn.functional.pad(frames, (0, 3)))
    assert found_lengths.tolist() == [*lengths.tolist(), 0, 0, 0]
    assert found.isfinite().all()
    assert greatest_difference(found[: len(lengths)], expected, lengths) < TOLERANCE


def _features(durations_s: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    signals, samples = mix(durations_s)
    ours = MelFeatures(featurizer())
    return ours(signals, samples), ours.count(samples)


@pytest.mark.parametrize(("options", "reason"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_an_encoder_with_other_options_is_left_to_nemo(options: dict[str, Any], reason: str) -> None:
    assert reason in (find_obstacle(encoder(**{**SMALL, **options})) or "")


def test_the_demo_encoder_is_encoded_as_nemo_does(checkpoint: Path, clips: list[torch.Tensor]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from parakeet_mps.engine.loading import load_model

        model = load_model(checkpoint, torch.device("cpu"))
    samples = torch.tensor([clip.numel() for clip in clips[:8]])
    signals = torch.nn.utils.rnn.pad_sequence(clips[:8], batch_first=True)
    padded = torch.nn.functional.pad(signals, (0, -signals.shape[1] % 1280))
    features, frames = model.preprocessor(input_signal=signals, length=samples)
    expected, lengths = model.encoder(audio_signal=features, length=frames)
    mel = MelFeatures(model.preprocessor.featurizer)
    ours = Encoder(model.encoder, 752, torch.float32, PLAIN)
    found, found_lengths = ours(mel(padded, samples), mel.count(samples))
    assert torch.equal(found_lengths, lengths)
    assert greatest_difference(found, expected.transpose(1, 2), lengths) < TOLERANCE
