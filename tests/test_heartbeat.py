"""A recogniser's signs of life, written and read."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from parakeet_mps.device_probe import device_probe
from parakeet_mps.heartbeat import Heartbeat, Pulse, read_pulses, remove_pulses


@pytest.fixture
def heartbeat(tmp_path: Path) -> Iterator[Heartbeat]:
    heartbeat = Heartbeat(tmp_path, "asr_0_0", period_s=0.01)
    yield heartbeat
    heartbeat.stop()


def pulse(folder: Path) -> Pulse:
    (pulse,) = read_pulses(folder)
    return pulse


def test_while_it_loads_it_is_there_but_does_not_serve(heartbeat: Heartbeat, tmp_path: Path) -> None:
    seen = pulse(tmp_path)
    assert (seen.name, seen.pid, seen.serving, seen.busy_since, seen.fault) == ("asr_0_0", os.getpid(), False, None, "")


def test_it_beats_while_its_probe_succeeds(heartbeat: Heartbeat, tmp_path: Path) -> None:
    heartbeat.serve(device_probe("cpu"))
    first = pulse(tmp_path)
    assert first.serving
    while pulse(tmp_path).beat == first.beat:
        pass
    assert first.beat < pulse(tmp_path).beat <= time.monotonic()


def test_it_shows_since_when_it_is_busy(heartbeat: Heartbeat, tmp_path: Path) -> None:
    before = time.monotonic()
    with heartbeat.busy():
        since = pulse(tmp_path).busy_since
        assert since is not None
        assert before <= since <= time.monotonic()
    assert pulse(tmp_path).busy_since is None


def test_of_two_works_the_older_shows_until_it_ends(heartbeat: Heartbeat, tmp_path: Path) -> None:
    older, younger = heartbeat.busy(), heartbeat.busy()
    older.__enter__()
    first = pulse(tmp_path).busy_since
    younger.__enter__()
    assert pulse(tmp_path).busy_since == first
    older.__exit__(None, None, None)
    second = pulse(tmp_path).busy_since
    younger.__exit__(None, None, None)
    assert first is not None
    assert second is not None
    assert first < second
    assert pulse(tmp_path).busy_since is None


def test_an_error_ends_being_busy(heartbeat: Heartbeat, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), heartbeat.busy():
        _ = 1 / 0
    assert pulse(tmp_path).busy_since is None


def test_a_probe_that_fails_is_a_fault_with_its_first_line_and_no_beat(heartbeat: Heartbeat, tmp_path: Path) -> None:
    broken: list[str] = []

    def probe() -> None:
        if broken:
            raise RuntimeError("CUDA error: an illegal memory access\nwas encountered, see " + "x" * 500)

    heartbeat.serve(probe)
    assert heartbeat.healthy
    broken.append("from here on")
    assert not heartbeat.check()
    assert not heartbeat.healthy
    assert pulse(tmp_path).fault == "RuntimeError: CUDA error: an illegal memory access"


def test_what_ends_loading_is_a_fault_and_logged_with_its_traceback(
    heartbeat: Heartbeat, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RuntimeError), heartbeat.loading():
        raise RuntimeError("CUDA error: out of memory\nCompile with ...")

    (pulse,) = read_pulses(tmp_path)
    assert pulse.fault == "RuntimeError: CUDA error: out of memory"
    assert not pulse.serving
    assert "Traceback" in caplog.text


def test_the_phases_of_loading_are_there_as_they_end(heartbeat: Heartbeat, tmp_path: Path) -> None:
    heartbeat.passed("imports")
    assert re.fullmatch(r"imports \d\.\d s", read_pulses(tmp_path)[0].phases)
    heartbeat.passed("checkpoint")
    assert re.fullmatch(r"imports \d\.\d s, checkpoint \d\.\d s", read_pulses(tmp_path)[0].phases)


def test_a_long_fault_is_cut(heartbeat: Heartbeat, tmp_path: Path) -> None:
    heartbeat.fail("é" * 500)
    assert pulse(tmp_path).fault.startswith("é" * 100)


def test_all_recognisers_are_read_and_forgotten(tmp_path: Path) -> None:
    beats = [Heartbeat(tmp_path, name) for name in ("b", "a")]
    (tmp_path / "c.beat").write_bytes(b"half a rec")
    assert [pulse.name for pulse in read_pulses(tmp_path)] == ["a", "b"]
    remove_pulses(tmp_path)
    assert read_pulses(tmp_path) == []
    for beat in beats:
        beat.check()


def test_without_a_folder_there_are_none(tmp_path: Path) -> None:
    assert read_pulses(tmp_path / "none") == []
