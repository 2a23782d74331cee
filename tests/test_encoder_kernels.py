"""The encoder's kernels do what its plain operations do, and only those that do are used."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # NeMo and what it imports warn of their own dependencies
    from nemo.collections.asr.modules import ConformerEncoder

    from parakeet_mps.engine import groundwork
    from parakeet_mps.engine.buckets import Bucket
    from parakeet_mps.engine.counters import Counters
    from parakeet_mps.engine.encoder.batch import MASKED, Batch
    from parakeet_mps.engine.encoder.choice import choose_operations, keep_right
    from parakeet_mps.engine.encoder.layer import Layer
    from parakeet_mps.engine.encoder.operations import Operations, Positions
    from parakeet_mps.engine.encoder.reference import PLAIN
    from parakeet_mps.engine.encoder.self_check import Sizes
    from parakeet_mps.engine.encoder.subsampling import Subsampling

DTYPES = (torch.float32, torch.float16)  # the interpreter has no products in bf16
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3}
"""Largest difference allowed, as a part of the largest value."""


@pytest.fixture(scope="module")
def kernels() -> Operations:
    pytest.importorskip("triton")
    from parakeet_mps.engine.encoder.kernels import KERNELS

    return KERNELS


@pytest.fixture(autouse=True)
def _poison() -> Iterator[None]:
    """Fill new tensors with not-a-number, so that what a kernel leaves out is seen."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def random(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    most = TOLERANCE[found.dtype] * max(1.0, float(expected.abs().max()) if expected.numel() else 0.0)
    torch.testing.assert_close(found, expected, rtol=0.0, atol=most)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "channels"), [(1, 1), (3, 48), (2, 1024), (2, 1000)])
def test_normalising(kernels: Operations, rows: int, channels: int, dtype: torch.dtype) -> None:
    arguments = (
        random(dtype, rows, channels) * 5 + 2,
        random(dtype, channels),
        random(dtype, channels + 1)[1:].clone(),
        1e-5,
    )
    assert_close(kernels.normalise(*arguments), PLAIN.normalise(*arguments))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("lengths", "frames", "channels", "taps"),
    [
        ([1], 1, 16, 9),
        ([16, 16], 16, 40, 9),
        ([19, 0, 7, 1], 19, 40, 9),
        ([17, 16], 17, 300, 5),
        ([13, 24], 24, 24, 31),
        ([3, 2], 3, 7, 3),
    ],
)
def test_convolving(
    kernels: Operations, lengths: list[int], frames: int, channels: int, taps: int, dtype: torch.dtype
) -> None:
    """Neither what is beyond an utterance, be it not-a-number, nor what is in the next one reaches it."""
    batch = Batch(len(lengths), frames, torch.tensor(lengths), dtype)
    gates = random(dtype, len(lengths) * frames, 2 * channels)
    weights = random(dtype, taps, channels), random(dtype, channels)
    expected = PLAIN.convolve(gates, batch, *weights)
    gates.masked_fill_(batch.true.view(-1, 1) == 0, torch.nan)
    assert_close(kernels.convolve(gates, batch, *weights), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("lengths", "frames", "longest", "heads"),
    [([1], 1, 8, 1), ([19, 0, 7, 1], 19, 24, 2), ([16, 5], 16, 16, 3), ([131, 128], 131, 136, 1)],
)
def test_scoring_positions(
    kernels: Operations, lengths: list[int], frames: int, longest: int, heads: int, dtype: torch.dtype
) -> None:
    size = 8
    batch = Batch(len(lengths), frames, torch.tensor(lengths), dtype)
    joint = random(dtype, len(lengths) * frames, 3 * heads * size)
    rows, shift = random(dtype, heads, 2 * longest, size), random(dtype, heads, size)
    offsets = torch.einsum("hps,hs->hp", rows.float(), shift.float())
    found = kernels.score_positions(joint, batch, Positions(rows, shift, offsets))
    expected = PLAIN.score_positions(joint, batch, Positions(rows, shift, offsets))
    assert found.shape == (len(lengths), heads, frames, frames)
    assert found.stride(2) % 8 == 0
    assert found.isfinite().all()
    for ours, theirs, length in zip(found, expected, lengths, strict=True):
        assert_close(ours[:, :length, :length], theirs[:, :length, :length])
        assert (ours[:, :, length:] == MASKED).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("lengths", "frames", "mels", "channels"),
    [([1], 1, 5, 16), ([10, 0, 5, 9], 10, 20, 24), ([7, 6], 7, 13, 3), ([9], 9, 40, 130), ([13], 13, 80, 16)],
)
def test_subsampling_features(
    kernels: Operations, lengths: list[int], frames: int, mels: int, channels: int, dtype: torch.dtype
) -> None:
    features = random(dtype, len(lengths), frames, mels)
    for own, length in zip(features, lengths, strict=True):
        own[length:] = 0.0
    halves = (torch.tensor(lengths) + 1) // 2
    arguments = (features, halves, random(dtype, 10, channels), random(dtype, 9, channels))
    assert_alike(kernels.subsample_features(*arguments), PLAIN.subsample_features(*arguments), halves)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("lengths", "frames", "mels", "channels"),
    [([1], 1, 5, 16), ([4, 0, 1, 3], 4, 18, 24), ([7, 6], 7, 13, 3), ([2], 2, 34, 300), ([2], 2, 80, 16)],
)
def test_subsampling(
    kernels: Operations, lengths: list[int], frames: int, mels: int, channels: int, dtype: torch.dtype
) -> None:
    """What is beyond an utterance, be it not-a-number, does not reach it."""
    x, taps = random(dtype, len(lengths), frames, mels, channels), random(dtype, 9, channels)
    expected = PLAIN.subsample(x.clone(), torch.tensor(lengths), taps)
    for own, length in zip(x, lengths, strict=True):
        own[length:] = torch.nan
    assert_alike(kernels.subsample(x, torch.tensor(lengths), taps), expected, torch.tensor(lengths))


def assert_alike(found: torch.Tensor, expected: torch.Tensor, lengths: torch.Tensor) -> None:
    """Assert that all is finite and true frames, half of `lengths`, are close."""
    assert found.isfinite().all()
    for ours, theirs, length in zip(found, expected, ((lengths + 1) // 2).tolist(), strict=True):
        assert_close(ours[:length], theirs[:length])


@torch.inference_mode()
def test_an_encoder_with_kernels_encodes_as_it_does_plainly(kernels: Operations) -> None:
    options = {"subsampling": "dw_striding", "subsampling_factor": 8, "subsampling_conv_channels": 16, "feat_in": 20}
    module = ConformerEncoder(**options, n_layers=1, d_model=24, n_heads=4, conv_kernel_size=9).eval()
    module.freeze()
    features, table = random(torch.float32, 3, 24, 20), random(torch.float32, 16, 24)
    frames = torch.tensor([24, 0, 13])
    features[1], features[2, 13:] = 0.0, 0.0
    encoded = []
    for operations in (kernels, PLAIN):
        x, lengths = Subsampling(module.pre_encode, 1.0, torch.float32, operations)(features, frames)
        layer = Layer(module.layers[0], table, torch.float32, operations)
        encoded.append(layer(x.flatten(0, 1), Batch(3, 3, lengths, torch.float32)).view_as(x))
    assert lengths.tolist() == [3, 0, 2]
    assert_close(encoded[0][0], encoded[1][0])
    assert_close(encoded[0][2, :2], encoded[1][2, :2])


def test_attention_is_planned_in_the_layout_in_which_the_encoder_asks_for_it(
    kernels: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cuDNN keeps a plan for each set of sizes and strides; one for others would be made for nothing."""
    module = ConformerEncoder(
        feat_in=20, subsampling_conv_channels=16, n_layers=1, d_model=24, n_heads=4, conv_kernel_size=9
    ).eval()
    module.freeze()
    attention, asked = torch.nn.functional.scaled_dot_product_attention, []

    def note(*tensors: torch.Tensor, attn_mask: torch.Tensor) -> torch.Tensor:
        asked.append([(tensor.shape, tensor.stride()) for tensor in (*tensors, attn_mask)])
        return attention(*tensors, attn_mask=attn_mask)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", note)
    monkeypatch.setattr(groundwork, "make_grid", lambda *_: [Bucket(3, 16)])
    groundwork.plan_attention(Sizes.of(module), 16, torch.empty(0))
    layer = Layer(module.layers[0], random(torch.float32, 64, 24), torch.float32, kernels)
    layer(random(torch.float32, 3 * 16, 24), Batch(3, 16, torch.tensor([16, 3, 9]), torch.float32))
    planned, needed = asked
    assert planned == needed


def test_attention_that_cannot_be_planned_is_warned_of_and_no_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    caplog.set_level("WARNING", logger=groundwork.__name__)
    monkeypatch.setattr(groundwork, "attend", fail)
    groundwork.plan_attention(SIZES, 16, torch.empty(0))
    assert caplog.messages == ["Attention was not planned: CUDA out of memory"]


SIZES = Sizes(mels=9, subsampling_channels=16, channels=16, heads=2, taps=3)


def test_kernels_that_are_right_are_used(kernels: Operations) -> None:
    assert keep_right(kernels, SIZES, torch.empty(0), Counters()) == kernels


def off_by_a_frame(gates: torch.Tensor, batch: Batch, taps: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return PLAIN.convolve(gates.roll(1, 0), batch, taps, bias)


def unmasked(joint: torch.Tensor, batch: Batch, positions: Positions) -> torch.Tensor:
    return PLAIN.score_positions(joint, replace(batch, lengths=torch.full_like(batch.lengths, batch.frames)), positions)


def unable(*_: object) -> torch.Tensor:
    raise OSError("no compiler")


def without_numbers(x: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.full_like(x, torch.nan)


@pytest.mark.parametrize(
    ("name", "wrong", "reason"),
    [
        ("convolve", off_by_a_frame, "error"),
        ("score_positions", unmasked, "error"),
        ("subsample", unable, "OSError"),
        ("subsample_features", without_numbers, "shape"),
        ("normalise", without_numbers, "nan"),
    ],
)
def test_one_that_is_wrong_or_fails_is_replaced_by_the_plain_one_with_a_warning(
    name: str, wrong: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger=keep_right.__module__)
    counters = Counters()
    assert keep_right(replace(PLAIN, **{name: wrong}), SIZES, torch.empty(0), counters) == PLAIN
    assert counters.read()["self_test_failed"] == 1
    (warning,) = caplog.messages
    assert name in warning
    assert reason in warning


def test_a_cpu_computes_plainly() -> None:
    assert choose_operations(SIZES, torch.empty(0, dtype=torch.bfloat16), Counters()) == PLAIN
