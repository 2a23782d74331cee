"""Each recogniser's share of the GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from parakeet_mps.contract import ASR_MODEL
from parakeet_mps.partition import PartitionError, check_partition, client_environ, expected_multiprocessors
from processes import ROOT

FIRST_CALL = """
import importlib.util, os, sys
from unittest.mock import MagicMock

class BeforeNemo:
    def find_spec(name, path, target=None):
        if name == "nemo":
            asked = ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")
            print(*map(os.environ.get, asked), flush=True)
            os._exit(0)

sys.meta_path.insert(0, BeforeNemo)
sys.modules["triton_python_backend_utils"] = MagicMock()
spec = importlib.util.spec_from_file_location("adapter", sys.argv[1])
adapter = importlib.util.module_from_spec(spec)
spec.loader.exec_module(adapter)
adapter.TritonPythonModel().initialize({"model_config": sys.argv[2], "model_instance_name": "one"})
"""
"""Loads as Triton's stub does until NeMo is imported, which asks CUDA's driver whether there is a GPU."""


def parameters(percentage: int = 25, total: int = 132, limit_mb: int = 0) -> dict[str, str]:
    return {
        "active_thread_percentage": str(percentage),
        "multiprocessors": str(total),
        "memory_limit_mb": str(limit_mb),
    }


@pytest.mark.parametrize(("percentage", "total", "seen"), [(25, 132, 32), (12, 132, 14), (100, 132, 132), (2, 132, 2)])
def test_a_percentage_is_rounded_down_to_pairs_as_an_h200_does(percentage: int, total: int, seen: int) -> None:
    assert expected_multiprocessors(percentage, total) == seen
    check_partition(parameters(percentage, total), seen)


@pytest.mark.parametrize("percentage", [2, 12, 25, 50, 99])
def test_a_process_that_does_not_reach_the_daemon_sees_all_and_is_refused(percentage: int) -> None:
    with pytest.raises(PartitionError, match=r"132 of 132 multiprocessors; .* does not reach the MPS daemon"):
        check_partition(parameters(percentage), 132)


def test_another_share_than_planned_is_refused() -> None:
    with pytest.raises(PartitionError, match="66 of 132 multiprocessors; 25 % should be 32"):
        check_partition(parameters(25), 66)


def test_other_cards_may_round_otherwise() -> None:
    check_partition(parameters(25, 142), 36)
    check_partition(parameters(33, 108), 36)


def test_where_nobody_knows_the_total_nothing_is_refused() -> None:
    check_partition(parameters(25, 0), 132)


def test_share_and_memory_limit_are_asked_for_in_the_environment() -> None:
    assert client_environ(parameters(25, limit_mb=35430)) == {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=35430M",
    }
    assert client_environ(parameters(100)) == {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"}


def test_the_share_is_asked_for_before_what_is_imported_calls_cuda(tmp_path: Path) -> None:
    settings = parameters(25, 132, 33000) | {"package_path": str(ROOT), "heartbeats": str(tmp_path), "device": "cuda"}
    config = json.dumps({"parameters": {name: {"string_value": value} for name, value in settings.items()}})
    adapter = ROOT / "triton_model_repo" / ASR_MODEL / "1" / "model.py"
    found = subprocess.run([sys.executable, "-c", FIRST_CALL, adapter, config], capture_output=True, text=True)
    assert found.stdout == "25 0=33000M\n", found.stderr
