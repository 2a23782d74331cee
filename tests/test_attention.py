"""Checkpoints rewritten for local attention, as the images' build does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from parakeet_mps.contract import Recognition
from parakeet_mps.engine.attention import main

if TYPE_CHECKING:
    from parakeet_mps.engine.recognizer import Recognizer


@pytest.fixture(scope="module")
def local_checkpoint(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("attention") / "local.nemo"
    assert main(["local", str(checkpoint), str(target)]) == 0
    return target


@pytest.mark.filterwarnings("ignore")  # NeMo and what it imports warn of their own dependencies
def test_with_local_attention_short_utterances_are_recognised_as_before(
    local_checkpoint: Path, recognizer: Recognizer, clips: list[torch.Tensor]
) -> None:
    from parakeet_mps.engine.loading import load_model
    from parakeet_mps.engine.recognizer import Recognizer

    assert load_model(local_checkpoint, torch.device("cpu")).cfg.encoder.self_attention_model == "rel_pos_local_attn"
    local = Recognizer.load(local_checkpoint, "cpu", threads=2).recognize(clips[:10])
    full = recognizer.recognize(clips[:10])
    assert [r.text for r in local if isinstance(r, Recognition)] == [r.text for r in full if isinstance(r, Recognition)]


@pytest.mark.filterwarnings("ignore")
def test_full_attention_keeps_the_checkpoint_as_it_is(checkpoint: Path, tmp_path: Path) -> None:
    assert main(["full", str(checkpoint), str(tmp_path / "full.nemo")]) == 0
    assert (tmp_path / "full.nemo").read_bytes() == checkpoint.read_bytes()


@pytest.mark.parametrize("arguments", [[], ["none", "a.nemo", "b.nemo"], ["local", "a.nemo"]])
def test_other_arguments_are_refused_with_the_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "full|local SOURCE TARGET" in capsys.readouterr().err


def test_a_file_that_is_no_checkpoint_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "no.nemo").write_bytes(b"no archive")
    assert main(["local", str(tmp_path / "no.nemo"), str(tmp_path / "out.nemo")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
