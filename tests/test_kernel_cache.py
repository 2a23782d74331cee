"""Compiled kernels outlive a container, and nobody else's are executed."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from parakeet_mps.choices import make_plan
from parakeet_mps.hardware import Gpu, Hardware
from parakeet_mps.kernel_cache import kernel_cache_environ
from parakeet_mps.run_folder import RunFolder
from parakeet_mps.settings import Settings
from parakeet_mps.units import triton_service

CARD = Gpu(0, "GPU-0", "NVIDIA H200", 143771, "Default", 132)
MACHINE = Hardware(cpu_cores=16, memory_mb=131072, shm_mb=65536, gpus=(CARD,), mps_control=True)


def test_kernels_lie_with_the_models_in_a_folder_of_their_own(tmp_path: Path) -> None:
    environ = kernel_cache_environ(tmp_path / "models")
    assert environ == {"TRITON_CACHE_DIR": str(tmp_path / "models/kernels")}
    assert (tmp_path / "models/kernels").stat().st_mode & 0o077 == 0
    assert kernel_cache_environ(tmp_path / "models") == environ


def test_a_folder_that_another_user_made_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernels").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert kernel_cache_environ(tmp_path) == {}


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "kernels").symlink_to(tmp_path / "elsewhere")
    assert kernel_cache_environ(tmp_path) == {}


def test_where_nothing_may_be_executed_the_compiler_keeps_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    actual = os.statvfs
    monkeypatch.setattr(os, "statvfs", lambda path: _without_execution(actual(path)))
    assert kernel_cache_environ(tmp_path) == {}


def _without_execution(found: os.statvfs_result) -> os.statvfs_result:
    values = list(found)
    values[8] |= os.ST_NOEXEC
    return os.statvfs_result(values)


def test_where_nothing_can_be_written_the_compiler_keeps_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file")
    assert kernel_cache_environ(tmp_path / "models") == {}


@pytest.mark.parametrize(("own", "kept"), [({}, "models/kernels"), ({"TRITON_CACHE_DIR": "mine"}, "mine")])
def test_recognisers_on_a_gpu_are_told_unless_somebody_else_has(own: dict[str, str], kept: str, tmp_path: Path) -> None:
    settings = Settings(model_cache=str(tmp_path / "models"))
    triton = triton_service(settings, make_plan(settings, MACHINE), RunFolder(tmp_path / "run"), own, {})
    assert triton.environ["TRITON_CACHE_DIR"].endswith(kept)


def test_on_a_cpu_nothing_is_made(tmp_path: Path) -> None:
    settings, machine = Settings(model_cache=str(tmp_path / "models")), dataclasses.replace(MACHINE, gpus=())
    triton_service(settings, make_plan(settings, machine), RunFolder(tmp_path / "run"), {}, {})
    assert not (tmp_path / "models").exists()
