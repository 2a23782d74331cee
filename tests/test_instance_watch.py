"""The watch over recognisers, with real processes that beat."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from parakeet_mps.heartbeat import read_pulses, remove_pulses
from parakeet_mps.instance_watch import InstanceWatch
from processes import ROOT

RECOGNISER = """
import ctypes, pathlib, sys, time
sys.path.insert(0, {root!r})
from parakeet_mps.heartbeat import Heartbeat
heartbeat = Heartbeat(pathlib.Path({folder!r}), "asr_0_0", period_s=0.05)
{body}
time.sleep(600)
"""

SERVES = "heartbeat.serve(lambda: None)"
LOADS_WITHOUT_A_BEAT = "ctypes.PyDLL(None).sleep(600)"
KEEPS_PYTHONS_LOCK = f"{SERVES}; ctypes.PyDLL(None).sleep(600)"
HANGS = f"{SERVES}\nwith heartbeat.busy(): time.sleep(600)"
WORKS = f"{SERVES}\nwhile True:\n    with heartbeat.busy(): time.sleep(0.01)"
FAULTS = f"{SERVES}; heartbeat.fail('CUDA error: misaligned address')"

Start = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def start(body: str) -> subprocess.Popen[bytes]:
        program = RECOGNISER.format(root=str(ROOT), folder=str(tmp_path), body=body)
        with (tmp_path / "log").open("wb") as log:
            started.append(subprocess.Popen([sys.executable, "-c", program], stderr=log))
        while not read_pulses(tmp_path):
            time.sleep(0.01)
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def watch(folder: Path, execute_limit_s: float = 60, beat_limit_s: float = 60) -> InstanceWatch:
    return InstanceWatch(folder, 1, execute_limit_s, beat_limit_s=beat_limit_s, poll_s=0.02)


def failure(watch: InstanceWatch) -> str:
    async def scenario() -> str:
        await asyncio.wait_for(watch.wait_ready(), 20)
        return str(await asyncio.wait_for(watch.wait_failed(), 20))

    return asyncio.run(scenario())


def kept_serving(watch: InstanceWatch, seconds: float) -> bool:
    async def scenario() -> bool:
        try:
            await asyncio.wait_for(watch.wait_failed(), seconds)
        except TimeoutError:
            return True
        return False

    return asyncio.run(scenario())


def test_what_a_recogniser_spent_its_loading_on_is_logged(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="supervisor")
    start(f"heartbeat.passed('imports'); {SERVES}")
    asyncio.run(asyncio.wait_for(watch(tmp_path).wait_ready(), 20))
    assert re.search(r"asr_0_0 has loaded: imports \d\.\d s$", caplog.text, re.MULTILINE)


@pytest.mark.parametrize(
    ("number", "what"),
    [
        (signal.SIGKILL, "was ended by SIGKILL"),
        (signal.SIGSEGV, "was ended by SIGSEGV"),
        (signal.SIGSTOP, "was stopped by a signal"),
    ],
)
def test_a_recogniser_that_is_hit_by_a_signal_is_named_with_it(
    start: Start, tmp_path: Path, number: signal.Signals, what: str
) -> None:
    process = start(SERVES)
    while not read_pulses(tmp_path)[0].serving:
        pass
    process.send_signal(number)
    assert failure(watch(tmp_path)) == f"asr_0_0 (process {process.pid}) {what}"


def test_one_that_is_gone_is_seen(start: Start, tmp_path: Path) -> None:
    process = start(SERVES)
    while not read_pulses(tmp_path)[0].serving:
        pass
    process.kill()
    process.wait()
    assert failure(watch(tmp_path)).endswith("is gone")


def test_one_that_ends_by_itself_is_named_with_its_status(start: Start, tmp_path: Path) -> None:
    start(f"{SERVES}; sys.exit(3)")
    assert failure(watch(tmp_path)).endswith("ended with status 3")


def test_a_batch_that_takes_too_long_is_a_failure_and_its_place_is_logged(start: Start, tmp_path: Path) -> None:
    start(HANGS)
    hung = watch(tmp_path, execute_limit_s=0.3)
    assert failure(hung).endswith("has been busy with one batch for more than EXECUTE_LIMIT_S=0.3 s")
    asyncio.run(hung.abort())
    assert re.search(r'File "<string>", line \d+ in <module>', (tmp_path / "log").read_text())


def test_one_that_runs_no_python_any_more_is_a_failure(start: Start, tmp_path: Path) -> None:
    start(KEEPS_PYTHONS_LOCK)
    assert failure(watch(tmp_path, beat_limit_s=0.5)).endswith("gave no sign of life for 0.5 s")


def test_one_that_is_back_before_anything_is_done_goes_on(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="supervisor")
    start(f"{SERVES}\nfor _ in range(40): ctypes.PyDLL(None).usleep(650_000); time.sleep(0.6)")
    assert kept_serving(watch(tmp_path, beat_limit_s=0.5), 3)
    assert "gave no sign of life for 0.5 s, but is back" in caplog.text


def test_a_fault_that_it_reports_is_a_failure(start: Start, tmp_path: Path) -> None:
    start(FAULTS)
    assert failure(watch(tmp_path)).endswith("reports CUDA error: misaligned address")


def test_many_short_batches_are_no_failure(start: Start, tmp_path: Path) -> None:
    start(WORKS)
    assert kept_serving(watch(tmp_path, execute_limit_s=30, beat_limit_s=30), 0.5)


def test_after_the_whole_machine_was_frozen_all_get_their_time_again(start: Start, tmp_path: Path) -> None:
    start(KEEPS_PYTHONS_LOCK)
    frozen = InstanceWatch(tmp_path, 1, 60, beat_limit_s=0.8, poll_s=0.02, pause_s=0.5)

    async def scenario() -> float:
        await asyncio.wait_for(frozen.wait_ready(), 20)
        failed = asyncio.create_task(frozen.wait_failed())
        await asyncio.sleep(0)
        time.sleep(1)  # this process is frozen, too
        thawed = time.monotonic()
        await asyncio.wait_for(failed, 20)
        return time.monotonic() - thawed

    assert asyncio.run(scenario()) >= 0.8


def test_one_that_loads_may_be_silent_but_is_not_ready(start: Start, tmp_path: Path) -> None:
    start(LOADS_WITHOUT_A_BEAT)
    assert kept_serving(watch(tmp_path, beat_limit_s=0.05), 0.5)
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(watch(tmp_path).wait_ready(), 0.2))


def test_it_waits_for_all_recognisers_and_says_once_that_they_have_loaded(start: Start, tmp_path: Path) -> None:
    start(SERVES)
    told: list[str] = []
    both = InstanceWatch(tmp_path, 2, 60, poll_s=0.02, loaded=lambda: told.append("both"))
    one = InstanceWatch(tmp_path, 1, 60, poll_s=0.02, loaded=lambda: told.append("one"))
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(both.wait_ready(), 0.3))
    assert not told
    asyncio.run(asyncio.wait_for(one.wait_ready(), 20))
    assert told == ["one"]


def test_one_that_cannot_be_watched_any_more_is_a_failure(start: Start, tmp_path: Path) -> None:
    """Something cleaned up: its end would not be seen."""
    start(SERVES)
    watching = watch(tmp_path)

    async def scenario() -> str:
        await asyncio.wait_for(watching.wait_ready(), 20)
        failed = asyncio.create_task(watching.wait_failed())
        await asyncio.sleep(0.2)
        remove_pulses(tmp_path)
        return str(await asyncio.wait_for(failed, 20))

    assert "asr_0_0 cannot be watched: its file in" in asyncio.run(scenario())


def test_cuda_mps_is_asked_to_let_go_and_not_waited_for_long(start: Start, tmp_path: Path) -> None:
    asked: list[int] = []
    releasing = InstanceWatch(tmp_path, 1, 60, release=lambda: asked.append(os.getpid()))
    asyncio.run(releasing.abort())
    assert asked == [os.getpid()]


def test_a_recogniser_that_ended_with_its_server_is_the_servers_to_tell(tmp_path: Path, start: Start) -> None:
    os.kill(start(SERVES).pid, signal.SIGKILL)
    without = InstanceWatch(tmp_path, 1, 60, poll_s=0.02, server_runs=lambda: False)

    async def told() -> bool:
        waiting = asyncio.create_task(without.wait_failed())
        done, _ = await asyncio.wait([waiting], timeout=1)
        waiting.cancel()
        return bool(done)

    assert not asyncio.run(told())
