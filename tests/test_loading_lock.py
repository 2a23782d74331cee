"""Recognisers load one at a time, and a dead one does not keep the others waiting."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from multiprocessing.synchronize import Event
from pathlib import Path

from gateways import wait_until
from parakeet_mps.choices import make_plan
from parakeet_mps.contract import ASR_MODEL
from parakeet_mps.file_lock import turn
from parakeet_mps.hardware import Hardware
from parakeet_mps.heartbeat import read_pulses
from parakeet_mps.model_config import Locations, model_parameters
from parakeet_mps.settings import Settings
from processes import ROOT

RECOGNISER = """
import importlib.util, json, sys
from unittest.mock import MagicMock

sys.modules["triton_python_backend_utils"] = MagicMock()
spec = importlib.util.spec_from_file_location("adapter", sys.argv[1])
adapter = importlib.util.module_from_spec(spec)
spec.loader.exec_module(adapter)
parameters = {key: {"string_value": value} for key, value in json.loads(sys.argv[2]).items()}
config = json.dumps({"parameters": parameters, "max_batch_size": 2})
adapter.TritonPythonModel().initialize({"model_config": config, "model_instance_name": sys.argv[3]})
"""
"""Loads as Triton's adapter does, without Triton, and ends."""

LIMIT_S = 90.0
SPAWN = multiprocessing.get_context("spawn")


def test_a_dead_holder_frees_the_loading_turn(tmp_path: Path) -> None:
    held = SPAWN.Event()
    holder = SPAWN.Process(target=_hold, args=(tmp_path / "lock", held))
    holder.start()
    assert held.wait(60)
    os.kill(holder.pid or 0, signal.SIGKILL)
    with turn(tmp_path / "lock"):
        holder.join()


def _hold(path: Path, held: Event) -> None:
    with turn(path):
        held.set()
        signal.pause()


def test_one_process_loads_at_a_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    loaders = [SPAWN.Process(target=_load, args=(tmp_path / "lock", log)) for _ in range(3)]
    for loader in loaders:
        loader.start()
    for loader in loaders:
        loader.join(60)
    assert log.read_text().split() == ["begin", "end"] * 3


def _load(path: Path, log: Path) -> None:
    with turn(path):
        for line in ("begin\n", "end\n"):
            with log.open("a") as file:
                file.write(line)


def test_a_recogniser_reads_beside_others_and_loads_in_its_turn(tmp_path: Path, checkpoint: Path) -> None:
    parameters = model_parameters(
        make_plan(Settings(), Hardware(2, 8192, 1024)),
        Locations(*map(str, (checkpoint, tmp_path / "files", ROOT, tmp_path / "lock", tmp_path / "beats"))),
    )
    adapter = ROOT / "triton_model_repo" / ASR_MODEL / "1" / "model.py"
    command = [sys.executable, "-c", RECOGNISER, str(adapter), json.dumps(parameters)]
    loaders = []
    try:
        with turn(tmp_path / "lock"):
            loaders = [subprocess.Popen([*command, name]) for name in ("first", "second")]
            wait_until(lambda: phases(tmp_path) == [["imports", "reading", "groundwork"]] * 2, LIMIT_S)
            time.sleep(1)
            assert phases(tmp_path) == [["imports", "reading", "groundwork"]] * 2
            assert all(loader.poll() is None for loader in loaders)
        assert [loader.wait(LIMIT_S) for loader in loaders] == [0, 0]
    finally:
        for loader in loaders:
            loader.kill()
            loader.wait()
    whole = ["imports", "reading", "groundwork", "waiting", "placing", "encoder", "warm-up"]
    assert phases(tmp_path) == [whole] * 2


def phases(folder: Path) -> list[list[str]]:
    """Return the phases of loading that each recogniser has passed."""
    pulses = read_pulses(folder / "beats")
    return [[phase.partition(" ")[0] for phase in pulse.phases.split(", ")] for pulse in pulses]
