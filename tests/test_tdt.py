"""Our decoder finds NeMo's tokens, and its kernels do what the plain step does."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch

from parakeet_mps.checkpoint import ROOT

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # NeMo and what it imports warn of their own dependencies
    from parakeet_mps.engine.acoustics import EagerAcoustics, Frontend
    from parakeet_mps.engine.counters import Counters
    from parakeet_mps.engine.encoder.reference import PLAIN
    from parakeet_mps.engine.label_looping import LabelLooping
    from parakeet_mps.engine.loading import load_model
    from parakeet_mps.engine.tdt.decoder import TdtDecoder
    from parakeet_mps.engine.tdt.reference import ReferenceSteps
    from parakeet_mps.engine.tdt.self_check import find_difference
    from parakeet_mps.engine.tdt.state import State
    from parakeet_mps.engine.tdt.weights import LstmLayer, Weights, find_obstacle, read_weights

if TYPE_CHECKING:
    from pathlib import Path

    from parakeet_mps.engine.hypotheses import Hypothesis

CPU = torch.device("cpu")
HIDDEN, JOINT, TOKENS, CHANNELS = 32, 48, 21, 24


def weights(layers: int, dtype: torch.dtype = torch.float32, max_symbols: int = 3) -> Weights:
    """Random weights with which about as many steps find a token as do not."""
    generator = torch.Generator().manual_seed(layers)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    bias = random(TOKENS + 1 + 5)
    bias[TOKENS] += 2.0
    upper = [LstmLayer(random(4 * HIDDEN, HIDDEN).to(dtype), random(4 * HIDDEN, HIDDEN).to(dtype), random(4 * HIDDEN))]
    return Weights(
        table=random(TOKENS + 1, 4 * HIDDEN),
        first=random(4 * HIDDEN, HIDDEN).to(dtype),
        layers=tuple(upper * (layers - 1)),
        predict=random(JOINT, HIDDEN).to(dtype),
        predict_bias=random(JOINT),
        project=random(JOINT, CHANNELS).to(dtype),
        project_bias=random(JOINT).to(dtype),
        join=random(TOKENS + 1 + 5, JOINT).to(dtype) / JOINT**0.5,
        join_bias=bias,
        durations=torch.arange(5, dtype=torch.int32),
        max_symbols=max_symbols,
    )


@pytest.mark.parametrize(("layers", "dtype"), [(1, torch.float32), (2, torch.float16)])  # the interpreter has no bf16
def test_the_kernels_do_what_the_plain_step_does(layers: int, dtype: torch.dtype) -> None:
    pytest.importorskip("triton")
    from parakeet_mps.engine.tdt.kernels import KernelSteps

    of = weights(layers, dtype)
    assert find_difference(of, KernelSteps(of), ReferenceSteps(of), steps=5) is None


class Forgetful(ReferenceSteps):
    """Steps that never advance the prediction network."""

    def predict(self, state: State, side: int) -> None:
        """Leave all as it is."""


def test_steps_that_are_wrong_are_found_out() -> None:
    of = weights(2)
    assert find_difference(of, Forgetful(of), ReferenceSteps(of))


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> Any:
    return load_model(checkpoint, CPU)


@pytest.fixture(scope="module")
def encoded(model: Any, clips: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    acoustics = EagerAcoustics(Frontend(model, 128, torch.float32, PLAIN), CPU)
    with torch.inference_mode():
        return acoustics([*clips[:6], clips[0][:3200]])


@pytest.fixture(scope="module")
def expected(model: Any, encoded: tuple[torch.Tensor, torch.Tensor]) -> list[Hypothesis]:
    """What NeMo finds in each utterance alone: in company its eager decoder confuses the durations of tokens."""
    looping = LabelLooping(model.decoding.decoding.decoding_computer, Counters())
    with torch.inference_mode():
        pairs = zip(*encoded, strict=True)
        return [looping(frames[None], length[None])[0] for frames, length in pairs]


def decoder(model: Any) -> TdtDecoder:
    of = read_weights(model, torch.float32)
    return TdtDecoder(of, ReferenceSteps(of), 7, 128, lambda work: work)


def assert_alike(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.tokens, ours.frames, ours.durations) == (theirs.tokens, theirs.frames, theirs.durations)
        assert ours.confidences == pytest.approx(theirs.confidences, abs=1e-4)


def test_a_batch_is_decoded_as_nemo_decodes_each_of_it(
    model: Any, encoded: tuple[torch.Tensor, torch.Tensor], expected: list[Hypothesis]
) -> None:
    assert find_obstacle(model) is None
    decode = decoder(model)
    assert sum(len(hypothesis.tokens) for hypothesis in expected) > 50
    for _ in range(2):
        assert_alike(decode(*encoded), expected)


def test_what_was_decoded_before_changes_nothing(
    model: Any, encoded: tuple[torch.Tensor, torch.Tensor], expected: list[Hypothesis]
) -> None:
    decode = decoder(model)
    frames, lengths = encoded
    decode(frames, lengths)
    for number in (6, 2, 0):
        short = frames[number : number + 1, : int(lengths[number])]
        assert_alike(decode(short, lengths[number : number + 1]), expected[number : number + 1])


def test_the_decoder_knows_what_it_has_room_for(model: Any) -> None:
    decode = decoder(model)
    assert decode.fits(torch.empty(7, 128, 1))
    assert not decode.fits(torch.empty(8, 128, 1))
    assert not decode.fits(torch.empty(7, 129, 1))


def test_another_network_is_left_to_nemo(model: Any) -> None:
    layers = model.joint.joint_net
    layers[0], activation = torch.nn.Tanh(), layers[0]
    try:
        assert "Tanh" in (find_obstacle(model) or "")
    finally:
        layers[0] = activation


def test_the_kernels_compile_for_the_gpu() -> None:
    pytest.importorskip("triton")
    environ = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(ROOT / "tests" / "gpu" / "compile_kernels.py")]
    subprocess.run(command, check=True, env=environ, capture_output=True)
