"""What is prepared before a recogniser's turn to load: the files of its checkpoint, its kernels, its attention."""

from __future__ import annotations

import shutil
import threading
import warnings
from typing import TYPE_CHECKING

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # NeMo and what it imports warn of their own dependencies
    from parakeet_mps.engine import groundwork, unpacking
    from parakeet_mps.engine.acoustics import find_obstacle
    from parakeet_mps.engine.encoder.reference import PLAIN
    from parakeet_mps.engine.loading import read_model
    from parakeet_mps.engine.recognizer import Recognizer

if TYPE_CHECKING:
    from pathlib import Path

CPU = torch.device("cpu")


def test_several_readers_unpack_a_checkpoint_once(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extract, times = unpacking._extract, []
    monkeypatch.setattr(unpacking, "_extract", lambda *paths: (times.append(paths), extract(*paths)))
    folder = tmp_path / "checkpoint"
    readers = [threading.Thread(target=unpacking.unpack_once, args=(checkpoint, folder)) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert len(times) == 1
    assert (unpacking.unpack_once(checkpoint, folder) / "model_config.yaml").exists()


def test_another_checkpoint_of_the_same_name_is_unpacked_anew(checkpoint: Path, tmp_path: Path) -> None:
    name = tmp_path / "model.nemo"
    shutil.copyfile(checkpoint, name)
    first = unpacking.unpack_once(name, tmp_path / "checkpoint")
    with name.open("ab") as file:
        file.write(bytes(512))
    second = unpacking.unpack_once(name, tmp_path / "checkpoint")
    assert second != first
    assert sorted(file.name for file in first.iterdir()) == sorted(file.name for file in second.iterdir())


def test_what_a_killed_reader_left_is_not_taken_for_a_checkpoint(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(_: Path, folder: Path) -> None:
        (folder / "model_weights.ckpt").write_bytes(b"PK")
        raise OSError("no space left on device")

    folder = tmp_path / "checkpoint"
    with monkeypatch.context() as patch:
        patch.setattr(unpacking, "_extract", half)
        with pytest.raises(OSError, match="no space"):
            unpacking.unpack_once(checkpoint, folder)
    assert (unpacking.unpack_once(checkpoint, folder) / "model_weights.ckpt").stat().st_size > 1e6


def test_a_model_outlives_the_folder_that_it_was_read_from(
    checkpoint: Path, tmp_path: Path, clips: list[torch.Tensor], recognizer: Recognizer
) -> None:
    folder = unpacking.unpack_once(checkpoint, tmp_path / "checkpoint")
    model = read_model(checkpoint, folder)
    shutil.rmtree(folder)
    again = Recognizer.start(model, groundwork.lay_groundwork(model, CPU))
    assert again.recognize(clips[:2]) == recognizer.recognize(clips[:2])


def test_weights_that_cannot_be_mapped_are_read(checkpoint: Path, tmp_path: Path) -> None:
    """As PyTorch wrote them before version 1.6."""
    folder = unpacking.unpack_once(checkpoint, tmp_path / "checkpoint")
    mapped, weights = read_model(checkpoint, folder), folder / "model_weights.ckpt"
    torch.save(torch.load(weights, map_location="cpu"), tmp_path / "old", _use_new_zipfile_serialization=False)
    (tmp_path / "old").replace(weights)
    again = read_model(checkpoint, folder)
    assert all(map(torch.equal, mapped.state_dict().values(), again.state_dict().values()))


def test_nothing_of_a_model_that_was_read_stands_in_the_way_of_our_encoder(checkpoint: Path, tmp_path: Path) -> None:
    assert find_obstacle(read_model(checkpoint, unpacking.unpack_once(checkpoint, tmp_path / "checkpoint"))) is None


def test_without_cuda_everything_is_computed_plainly(checkpoint: Path, tmp_path: Path) -> None:
    model = read_model(checkpoint, unpacking.unpack_once(checkpoint, tmp_path / "checkpoint"))
    laid = groundwork.lay_groundwork(model, CPU)
    assert (laid.operations, laid.dtype) == (PLAIN, torch.float32)
