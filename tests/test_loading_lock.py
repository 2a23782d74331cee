"""Recognisers load one at a time, and a dead one does not keep the others waiting."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.synchronize import Event
from pathlib import Path

from parakeet_mps.file_lock import turn

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
