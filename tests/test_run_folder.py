import os
import shutil
from pathlib import Path

import pytest

from parakeet_mps.run_folder import RunFolder, RunFolderInUseError


def test_a_second_service_is_kept_out_and_told_what_to_set(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run").acquire(), pytest.raises(RunFolderInUseError, match="RUN_DIR"):
        RunFolder(tmp_path / "run").acquire()


def test_only_the_service_itself_may_configure_the_folder_that_it_runs_from(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.check_not_others(1)
    with run.acquire():
        run.check_not_others(os.getpid())
        with pytest.raises(RunFolderInUseError, match="RUN_DIR"):
            run.check_not_others(1)
        with pytest.raises(RunFolderInUseError):
            run.acquire()
        run.check_not_others(os.getpid())
    run.check_not_others(1)


def test_the_folder_is_free_again_when_its_service_ended(tmp_path: Path) -> None:
    RunFolder(tmp_path).acquire().close()
    RunFolder(tmp_path).acquire().close()


def test_only_this_services_shared_memory_is_removed(tmp_path: Path) -> None:
    run, other = RunFolder(tmp_path / "a", tmp_path), RunFolder(tmp_path / "b", tmp_path)
    for name in (f"{run.shm_prefix}1", f"{run.shm_prefix}2", f"{other.shm_prefix}1", "someone_elses"):
        (tmp_path / name).touch()
    (tmp_path / f"{run.triton_shm_prefix}3").touch()
    run.remove_triton_memory()
    assert not (tmp_path / f"{run.triton_shm_prefix}3").exists()
    assert (tmp_path / f"{run.shm_prefix}1").exists()
    run.remove_shared_memory()
    assert {file.name for file in tmp_path.iterdir()} == {f"{other.shm_prefix}1", "someone_elses"}


def test_the_files_of_a_checkpoint_are_removed_once_it_is_loaded(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.remove_unpacked()
    run.unpacked.mkdir()
    (run.unpacked / "model_weights.ckpt").touch()
    run.remove_unpacked()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_takes_no_notes_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = RunFolder(tmp_path / "none")
    run.mark_ready(True)
    assert "cannot be written" in caplog.text
    run.mark_ready(False)
    run.root.mkdir()
    run.mark_ready(True)
    assert run.ready.exists()
    run.mark_ready(False)
    assert not run.ready.exists()


def test_what_was_removed_of_plan_and_models_is_written_once_more_and_nothing_else(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    model = run.model_repository / "asr/1/model.py"
    model.parent.mkdir(parents=True)
    model.write_text("a model")
    run.plan.write_text("a plan")
    restore = run.remembered()
    model.write_text("a newer model")
    restore()
    assert model.read_text() == "a newer model"
    shutil.rmtree(run.root)
    restore()
    assert (model.read_text(), run.plan.read_text()) == ("a model", "a plan")
