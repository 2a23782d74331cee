import subprocess
import sys
from pathlib import Path

import pytest

import auto_config
from parakeet_mps.plan import Plan
from parakeet_mps.run_folder import RunFolder

ROOT = Path(__file__).parent.parent
NO_GPU = {"PATH": "/nonexistent"}


def test_what_a_service_runs_from_is_not_rewritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunFolder(tmp_path / "run")
    with run.acquire():
        assert auto_config.main(["models/demo.nemo"], {**NO_GPU, "RUN_DIR": str(run.root)}) == 2
    assert "another service runs from" in capsys.readouterr().err
    assert not run.plan.exists()


def test_it_writes_the_run_folder_and_prints_every_choice_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = auto_config.main(["models/demo.nemo"], {**NO_GPU, "RUN_DIR": str(tmp_path / "run")})
    printed = capsys.readouterr().out
    assert status == 0
    assert "auto_config: device = cpu: no NVIDIA GPU is visible" in printed
    assert (tmp_path / "run/model_repo/parakeet_asr/config.pbtxt").exists()
    plan = Plan.from_json((tmp_path / "run/plan.json").read_text())
    assert len(printed.splitlines()) == len(plan.lines())


def test_the_checkpoint_reaches_the_model_as_an_absolute_path(tmp_path: Path) -> None:
    auto_config.main(["some/where.nemo"], {**NO_GPU, "RUN_DIR": str(tmp_path)})
    config = (tmp_path / "model_repo/parakeet_asr/config.pbtxt").read_text()
    assert f'"{Path("some/where.nemo").absolute()}"' in config


def test_a_bad_setting_stops_it_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = auto_config.main([], {**NO_GPU, "RUN_DIR": str(tmp_path), "MPS": "on"})
    assert status == 2
    assert capsys.readouterr().err.startswith("auto_config: MPS='on' is not allowed here")


def test_it_needs_the_standard_library_only(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); import auto_config"]
    assert subprocess.run(command, capture_output=True, env={}).returncode == 0
