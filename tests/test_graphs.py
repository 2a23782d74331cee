"""What is computed in buckets, through captures that stand for CUDA's, is what is computed without them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from parakeet_mps.contract import SAMPLE_RATE_HZ, Recognition

if TYPE_CHECKING:
    from parakeet_mps.engine.recognizer import Recognizer

LONGEST_S = 6

Work = Callable[[], None]


class Calls:
    """A capture that repeats work by calling it, and counts how often it was asked to capture."""

    def __init__(self) -> None:
        self.captured = 0

    def __call__(self, work: Work) -> Work:
        self.captured += 1
        return work


def forgetful(work: Work) -> Work:
    """A capture whose replay does nothing, as when a graph reads and writes memory that nobody else does."""
    return lambda: None


def impossible(work: Work) -> Work:
    """A capture that fails as CUDA's does."""
    raise RuntimeError("operation not permitted when stream is capturing")


@pytest.fixture(scope="module")
def load(checkpoint: Path) -> Callable[[Any], Recognizer]:
    """Loads the recogniser with a capture."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NeMo and what it imports warn of their own dependencies
        from parakeet_mps.engine.loading import load_model
        from parakeet_mps.engine.recognizer import Recognizer

    def load(capture: Any) -> Recognizer:
        model = load_model(checkpoint, torch.device("cpu"))
        return Recognizer(model, LONGEST_S * SAMPLE_RATE_HZ, capture=capture)

    return load


@pytest.fixture(scope="module")
def company(clips: list[torch.Tensor]) -> list[torch.Tensor]:
    short = [clip for clip in clips if clip.numel() <= LONGEST_S * SAMPLE_RATE_HZ]
    return [*short[:7], short[0][:1600], *short[7:14]]


def texts(recognizer: Recognizer, utterances: list[torch.Tensor]) -> list[str]:
    return [result.text for result in recognizer.recognize(utterances) if isinstance(result, Recognition)]


@pytest.fixture(scope="module")
def expected(recognizer: Recognizer, company: list[torch.Tensor]) -> list[str]:
    found = texts(recognizer, company)
    assert len(found) == len(company)
    return found


def test_graphs_give_the_same_text_and_are_captured_before_the_first_request(
    load: Callable[[Any], Recognizer], company: list[torch.Tensor], expected: list[str]
) -> None:
    calls = Calls()
    graphed = load(calls)
    captured = calls.captured
    assert texts(graphed, company) == expected
    assert [texts(graphed, [utterance])[0] for utterance in company] == expected
    assert calls.captured == captured
    counters = graphed.counters()
    assert counters["utterances"] == 2 * len(company)
    assert counters["graph_hits"] == counters["batches"]
    assert counters["self_test_failed"] == 0
    assert 0 < counters["true_frames"] < counters["padded_frames"]


@pytest.mark.parametrize("capture", [forgetful, impossible])
def test_graphs_that_are_wrong_are_not_used_and_counted(
    capture: Any, load: Callable[[Any], Recognizer], company: list[torch.Tensor], expected: list[str]
) -> None:
    recognizer = load(capture)
    assert recognizer.counters()["self_test_failed"] == 2  # the encoder's and the decoder's
    assert texts(recognizer, company) == expected
    assert recognizer.counters()["graph_hits"] == 0


def test_a_batch_that_no_bucket_holds_is_encoded_eagerly_and_counted(
    checkpoint: Path, company: list[torch.Tensor]
) -> None:
    from parakeet_mps.engine.acoustics import EagerAcoustics, Frontend
    from parakeet_mps.engine.buckets import Bucket
    from parakeet_mps.engine.counters import Counters
    from parakeet_mps.engine.encoder.reference import PLAIN
    from parakeet_mps.engine.graphs import GraphedAcoustics
    from parakeet_mps.engine.loading import load_model

    device, counters = torch.device("cpu"), Counters()
    frontend = Frontend(load_model(checkpoint, device), 80, torch.float32, PLAIN)
    eager = EagerAcoustics(frontend, device)
    graphed = GraphedAcoustics(eager, [Bucket(2, 64)], device, Calls(), counters)
    short = [clip for clip in company if clip.numel() <= 5 * SAMPLE_RATE_HZ]
    with torch.inference_mode():
        for batch, hits, misses in (
            (short[:2], 1, 0),
            (short[:3], 1, 1),
            ([torch.zeros(90_000)], 1, 2),
            (short[1:2], 2, 2),
        ):
            encoded, lengths = graphed(batch)
            expected, expected_lengths = eager(batch)
            assert torch.equal(lengths, expected_lengths)
            assert (counters.read()["graph_hits"], counters.read()["graph_misses"]) == (hits, misses)
            for ours, theirs, length in zip(encoded, expected, lengths.tolist(), strict=True):
                torch.testing.assert_close(ours[:length], theirs[:length], atol=1e-4, rtol=1e-4)


def test_what_a_batch_holds_comes_to_the_host_unchanged() -> None:
    from parakeet_mps.engine.hypotheses import Hypothesis, pack, unpack

    columns = tuple(torch.arange(8).view(2, 4) + 100_000 * column for column in range(3))
    confidence = torch.tensor([[0.25, 0.5, 0.75, 1.0], [0.1, -0.001, 0.3, 0.4]])
    first, second = unpack(pack(torch.tensor([3, 0]), columns, confidence))
    assert first == Hypothesis([0, 1, 2], [100_000, 100_001, 100_002], [200_000, 200_001, 200_002], [0.25, 0.5, 0.75])
    assert second == Hypothesis([], [], [], [])


def test_an_encoder_that_computes_wrongly_is_not_used(checkpoint: Path) -> None:
    from parakeet_mps.engine.acoustics import Frontend, find_difference
    from parakeet_mps.engine.encoder.reference import PLAIN
    from parakeet_mps.engine.loading import load_model

    device = torch.device("cpu")
    model = load_model(checkpoint, device)
    frontend = Frontend(model, 80, torch.float32, PLAIN)
    assert find_difference(frontend, model, device) is None
    with torch.no_grad():
        model.encoder.layers[3].self_attn.pos_bias_v.add_(3.0)  # not what the frontend was made of
    assert "error" in (find_difference(frontend, model, device) or "")


def test_a_model_with_local_attention_runs_through_nemos_encoder(
    checkpoint: Path, tmp_path: Path, company: list[torch.Tensor], expected: list[str]
) -> None:
    from parakeet_mps.engine.acoustics import NemoAcoustics
    from parakeet_mps.engine.attention import write
    from parakeet_mps.engine.loading import load_model
    from parakeet_mps.engine.recognizer import Recognizer

    write("local", checkpoint, tmp_path / "local.nemo")
    model = load_model(tmp_path / "local.nemo", torch.device("cpu"))
    local = Recognizer(model, LONGEST_S * SAMPLE_RATE_HZ, capture=Calls())
    assert isinstance(local.pipeline.acoustics, NemoAcoustics)
    assert texts(local, company) == expected
