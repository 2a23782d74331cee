import asyncio
import io
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from parakeet_mps.process import Check, ChildProcess, ServiceFailure, run_to_end
from processes import ROOT, group_members, http_server, runs

ENVIRON = {"PATH": os.environ["PATH"]}


async def started(process: ChildProcess) -> int:
    await process.start()
    await asyncio.wait_for(process.wait_ready(), 20)
    assert process.pid is not None
    return process.pid


def test_a_process_becomes_ready_when_its_check_holds_and_stops_when_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = http_server("one", tmp_path)
        pid = await started(process)
        await process.stop()
        assert not runs(pid)
        assert process.pid is None

    asyncio.run(scenario())


def test_a_killed_process_is_reported_with_its_signal_and_last_lines(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = http_server("one", tmp_path)
        os.kill(await started(process), signal.SIGKILL)
        failure = await asyncio.wait_for(process.wait_failed(), 10)
        assert str(failure) == "one was ended by SIGKILL"
        assert failure.tail == "serving"
        await process.stop()

    asyncio.run(scenario())


def test_a_process_that_ends_is_reported_with_its_status(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = ChildProcess("one", ["sh", "-c", "echo broken >&2; exit 3"], ENVIRON, tmp_path)
        await process.start()
        failure = await process.wait_failed()
        assert (str(failure), failure.tail) == ("one ended with status 3", "broken")
        await process.stop()

    asyncio.run(scenario())


def test_a_stopped_process_is_reported_and_can_still_be_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        heard = asyncio.Event()
        process = http_server("one", tmp_path, heard=heard, grace_s=0.2)
        pid = await started(process)
        failed = asyncio.create_task(process.wait_failed())
        await heard.wait()
        os.kill(pid, signal.SIGSTOP)
        assert str(await asyncio.wait_for(failed, 10)) == "one was stopped by a signal"
        await process.stop()
        assert not runs(pid)

    asyncio.run(scenario())


async def never_called_silent(folder: Path, alive: Check, unresponsive_after_s: float, for_s: float) -> None:
    """Fail when a process of which `alive` tells is given up within `for_s` seconds."""
    process = ChildProcess(
        "one",
        ["sleep", "60"],
        ENVIRON,
        folder,
        alive=alive,
        alive_poll_s=0.01,
        unresponsive_after_s=unresponsive_after_s,
    )
    await process.start()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(process.wait_failed(), for_s)
    await process.stop()


def test_a_process_that_still_loads_is_not_called_silent(tmp_path: Path) -> None:
    async def alive() -> bool:
        return False

    asyncio.run(never_called_silent(tmp_path, alive, unresponsive_after_s=0.02, for_s=0.3))


def test_a_process_that_was_frozen_together_with_this_one_is_not_called_silent(tmp_path: Path) -> None:
    looks = iter((True, False))

    async def alive() -> bool:
        if answered := next(looks, True):
            return answered
        time.sleep(0.6)  # this process is frozen while it asks, and then finds its time up
        return False

    asyncio.run(never_called_silent(tmp_path, alive, unresponsive_after_s=0.5, for_s=1.2))


def test_a_process_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = http_server("one", tmp_path, {"STUBBORN": "1"}, grace_s=0.2)
        pid = await started(process)
        begin = time.monotonic()
        await process.stop()
        assert not runs(pid)
        assert time.monotonic() - begin < 5

    asyncio.run(scenario())


def test_a_process_that_has_no_work_before_it_is_ready_is_ended_at_once_until_then(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = http_server("one", tmp_path, {"STUBBORN": "1"}, grace_s=1.0, idle_until_ready=True)
        for ready, least_s, most_s in ((False, 0.0, 0.9), (True, 1.0, 6.0), (False, 0.0, 0.9)):
            await process.start()
            if ready:
                await asyncio.wait_for(process.wait_ready(), 20)
            begin = time.monotonic()
            await process.stop()
            assert least_s <= time.monotonic() - begin < most_s
            assert process.pid is None

    asyncio.run(scenario())


def test_what_a_process_started_goes_with_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = http_server("one", tmp_path, {"WORKER": "600"})
        pid = await started(process)
        assert len(group_members(pid)) == 2
        os.kill(pid, signal.SIGKILL)
        await process.wait_failed()
        await process.stop()
        assert not [member for member in group_members(pid) if runs(member)]

    asyncio.run(scenario())


LEAVES_A_ZOMBIE = """
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        time.sleep(600)  # stays in the group, and nobody collects it
    os.setsid()
    print(os.getpid(), flush=True)
    time.sleep(600)
time.sleep(600)
"""


def test_a_process_that_sigkill_does_not_remove_is_left_with_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        command = [sys.executable, "-c", LEAVES_A_ZOMBIE]
        process = ChildProcess("one", command, ENVIRON, tmp_path, output=io.BytesIO(), kill_limit_s=0.2)
        await process.start()
        while not (keeper := process.log_tail()):
            await asyncio.sleep(0.01)
        await process.abort()
        assert process.pid is None
        os.kill(int(keeper), signal.SIGKILL)

    asyncio.run(scenario())
    assert "does not end, 0.2 s after SIGKILL" in caplog.text


def test_a_process_can_be_started_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = http_server("one", tmp_path)
        first = await started(process)
        await process.stop()
        assert await started(process) != first
        await process.stop()
        await process.stop()

    asyncio.run(scenario())


def test_output_is_passed_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = http_server("one", tmp_path)
        await started(process)
        await process.stop()
        assert isinstance(process.output, io.BytesIO)
        assert process.output.getvalue() == b"serving\n"

    asyncio.run(scenario())


def test_a_closed_output_does_not_end_the_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = http_server("one", tmp_path)
        process.output.close()
        pid = await started(process)
        assert runs(pid)
        await process.stop()

    asyncio.run(scenario())


def test_a_missing_program_is_a_failure(tmp_path: Path) -> None:
    async def scenario() -> ServiceFailure:
        process = ChildProcess("one", ["/nonexistent/program"], ENVIRON, tmp_path)
        await process.start()
        failure = await process.wait_failed()
        await process.stop()
        return failure

    assert "/nonexistent/program" in asyncio.run(scenario()).tail


STARTS_A_SERVICE = """
child = ChildProcess("one", ["sleep", "600"], os.environ, pathlib.Path("/"))
await child.start()
print(child.pid, flush=True)
await asyncio.sleep(600)
"""

RUNS_A_COMMAND = """
await run_to_end("one", ["sh", "-c", "echo $$ >&2; exec sleep 600"], os.environ, pathlib.Path("/"))
"""


@pytest.mark.parametrize("body", [STARTS_A_SERVICE, RUNS_A_COMMAND], ids=["service", "command"])
def test_children_end_when_the_parent_is_killed(body: str) -> None:
    program = f"""
import asyncio, os, pathlib, sys
sys.path.insert(0, {str(ROOT)!r})
from parakeet_mps.process import ChildProcess, run_to_end
async def main():
{textwrap.indent(body, "    ")}
asyncio.run(main())
"""
    command = [sys.executable, "-c", program]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert runs(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while runs(child) and time.monotonic() < deadline:
        pass
    assert not runs(child)


def test_a_command_run_to_its_end_gives_its_output() -> None:
    assert asyncio.run(run_to_end("one", ["echo", "text"], ENVIRON, ROOT)) == "text\n"


def test_a_command_that_fails_is_a_failure() -> None:
    with pytest.raises(ServiceFailure, match="one ended with status 4"):
        asyncio.run(run_to_end("one", ["sh", "-c", "exit 4"], ENVIRON, ROOT))


def test_a_command_that_is_given_up_is_ended(tmp_path: Path) -> None:
    command = ["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 600"]

    async def scenario() -> None:
        running = asyncio.create_task(run_to_end("one", command, ENVIRON, ROOT))
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(scenario())
    assert not runs(int((tmp_path / "pid").read_text()))
