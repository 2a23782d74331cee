"""Quantiles of the last five minutes: how exact, over which processes, and for how long."""

from __future__ import annotations

import math
import multiprocessing
import os
import random
from pathlib import Path

import pytest

from parakeet_mps.gateway.latency_window import LEAST_S, MOST_S, RELATIVE_ERROR, SLOT_S, SLOTS, LatencyWindow
from parakeet_mps.gateway.worker_files import writer_is_alive

LEVELS = (0.5, 0.9, 0.95, 0.99)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def exact(values: list[float], level: float) -> float:
    return sorted(values)[math.ceil(level * len(values)) - 1]


def draw(seed: int, count: int) -> list[float]:
    rng = random.Random(seed)
    return [rng.lognormvariate(-1, 1.5) for _ in range(count)]


def serve(folder: Path, seed: int) -> None:
    """One worker: counts its latencies and dies without a word."""
    window = LatencyWindow(folder)
    for seconds in draw(seed, 2000):
        window.observe(seconds)
    os.kill(os.getpid(), 9)


def test_quantiles_over_four_workers_that_were_killed_are_within_the_stated_error(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=serve, args=(tmp_path, seed)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    everything = [seconds for seed in range(4) for seconds in draw(seed, 2000)]
    for level, seconds in LatencyWindow(tmp_path).quantiles(LEVELS).items():
        assert seconds == pytest.approx(exact(everything, level), rel=RELATIVE_ERROR * 1.001)


def test_a_latency_is_forgotten_after_the_window() -> None:
    clock = Clock()
    window = LatencyWindow(clock=clock)
    window.observe(3.0)
    clock.now += SLOT_S * (SLOTS - 1)
    window.observe(1.0)
    assert window.quantiles([1.0])[1.0] == pytest.approx(3.0, rel=RELATIVE_ERROR)
    clock.now += SLOT_S
    assert window.quantiles([1.0])[1.0] == pytest.approx(1.0, rel=RELATIVE_ERROR)
    clock.now += SLOT_S * SLOTS
    assert math.isnan(window.quantiles([1.0])[1.0])


def test_a_slot_is_used_again_for_its_next_turn_only() -> None:
    clock = Clock()
    window = LatencyWindow(clock=clock)
    for seconds in (9.0, 9.0, 1.0):
        window.observe(seconds)
        clock.now += SLOT_S * SLOTS
    clock.now -= SLOT_S * SLOTS
    assert window.quantiles([0.5, 1.0]) == pytest.approx({0.5: 1.0, 1.0: 1.0}, rel=RELATIVE_ERROR)


def test_without_requests_there_are_no_quantiles() -> None:
    assert all(map(math.isnan, LatencyWindow().quantiles(LEVELS).values()))


@pytest.mark.parametrize(("seconds", "counted"), [(0.0, LEAST_S), (1e-9, LEAST_S), (MOST_S, MOST_S), (1e9, MOST_S)])
def test_the_ends_of_the_range_take_what_is_outside(seconds: float, counted: float) -> None:
    window = LatencyWindow()
    window.observe(seconds)
    assert window.quantiles([0.5])[0.5] == pytest.approx(counted, rel=RELATIVE_ERROR * 1.001)


def test_what_a_dead_worker_left_is_removed_when_it_is_too_old_to_count(tmp_path: Path) -> None:
    clock = Clock()
    own = LatencyWindow(tmp_path, clock)
    own.observe(1.0)
    (left,) = tmp_path.iterdir()
    dead = left.rename(tmp_path / "latencies_4194305.table")  # no process has so high a number
    assert own.quantiles([0.5])[0.5] == pytest.approx(1.0, rel=RELATIVE_ERROR)
    clock.now += SLOT_S * SLOTS
    own.quantiles([0.5])
    assert not dead.exists()


def test_a_worker_that_gets_the_number_of_a_dead_one_counts_on(tmp_path: Path) -> None:
    LatencyWindow(tmp_path).observe(1.0)
    LatencyWindow(tmp_path).observe(4.0)
    assert LatencyWindow(tmp_path).quantiles([0.5, 1.0]) == pytest.approx({0.5: 1.0, 1.0: 4.0}, rel=RELATIVE_ERROR)


def test_a_table_that_another_worker_has_just_removed_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = LatencyWindow(tmp_path)
    window.observe(1.0)
    monkeypatch.setattr(Path, "glob", lambda folder, _: [tmp_path / "latencies_1.table", *folder.iterdir()])
    assert window.quantiles([0.5])[0.5] == pytest.approx(1.0, rel=0.1)


def test_a_number_that_is_another_users_now_counts_as_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert writer_is_alive(Path("counter_12.db"))


def test_a_table_that_is_just_being_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / f"latencies_{os.getpid() + 1}.table").write_bytes(b"\0" * 40)
    assert math.isnan(LatencyWindow(tmp_path).quantiles([0.5])[0.5])
