import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from parakeet_mps.process import ChildProcess, ServiceFailure
from parakeet_mps.supervisor import Restarts, Supervisor
from processes import http_server, runs

NO_WAIT = {"first_delay_s": 0.0}


class FakeService:
    """Records what the supervisor does to it; fails when told to."""

    def __init__(self, name: str, events: list[str]) -> None:
        self.name = name
        self._events = events
        self.failed: asyncio.Future[ServiceFailure] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        self._events.append(f"start {self.name}")
        self.failed = asyncio.get_running_loop().create_future()

    async def wait_ready(self) -> None:
        self._events.append(f"ready {self.name}")

    async def wait_failed(self) -> ServiceFailure:
        return await asyncio.shield(self.failed)

    async def stop(self) -> None:
        self._events.append(f"stop {self.name}")

    def log_tail(self) -> str:
        return f"last words of {self.name}"


class Running:
    """A supervisor at work in the background, and how often it was ready."""

    def __init__(self, services: list[ChildProcess], restarts: Restarts, startup_timeout_s: float = 20) -> None:
        self.stop = asyncio.Event()
        self.ready = 0
        self.ended = 0
        supervisor = Supervisor(
            services,
            startup_timeout_s=startup_timeout_s,
            restarts=restarts,
            ready=lambda _: self._count_ready(),
            unready=self._count_end,
        )
        self.status = asyncio.create_task(supervisor.run(self.stop))

    def _count_ready(self) -> None:
        self.ready += 1

    def _count_end(self) -> None:
        self.ended += 1

    async def until_ready(self, times: int = 1) -> None:
        while self.ready < times and not self.status.done():
            await asyncio.sleep(0.02)
        assert self.ready == times

    async def finish(self) -> int:
        self.stop.set()
        return await asyncio.wait_for(self.status, 20)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(bounded())


def test_services_start_in_order_and_stop_in_reverse() -> None:
    async def scenario() -> None:
        events: list[str] = []
        stop = asyncio.Event()
        services = [FakeService(name, events) for name in ("mps", "triton", "gateway")]
        supervisor = Supervisor(services, startup_timeout_s=5, restarts=Restarts(), ready=lambda _: stop.set())
        assert await supervisor.run(stop) == 0
        assert [event for event in events if event.startswith("start")] == [
            "start mps",
            "start triton",
            "start gateway",
        ]
        assert events[-3:] == ["stop gateway", "stop triton", "stop mps"]

    run(scenario)


def test_a_stop_before_the_start_starts_nothing() -> None:
    async def scenario() -> None:
        events: list[str] = []
        stop = asyncio.Event()
        stop.set()
        assert await Supervisor([FakeService("a", events)], startup_timeout_s=5, restarts=Restarts()).run(stop) == 0
        assert events == []

    run(scenario)


def test_when_one_is_killed_all_are_restarted(tmp_path: Path) -> None:
    async def scenario() -> None:
        services = [http_server(name, tmp_path) for name in ("triton", "gateway")]
        running = Running(services, Restarts(**NO_WAIT))
        await running.until_ready()
        before = [service.pid for service in services]
        os.kill(before[0] or 0, signal.SIGKILL)
        await running.until_ready(times=2)
        after = [service.pid for service in services]
        assert None not in after
        assert not set(before) & set(after)
        assert await running.finish() == 0
        assert not [pid for pid in (*before, *after) if pid and runs(pid)]
        assert running.ended == 2

    run(scenario)


def test_when_one_falls_silent_all_are_restarted(tmp_path: Path) -> None:
    async def scenario() -> None:
        heard = asyncio.Event()
        service = http_server("triton", tmp_path, heard=heard, unresponsive_after_s=0.3, grace_s=0.2)
        running = Running([service], Restarts(**NO_WAIT))
        await running.until_ready()
        await heard.wait()
        stopped = service.pid or 0
        os.kill(stopped, signal.SIGSTOP)
        await running.until_ready(times=2)
        assert not runs(stopped)
        assert await running.finish() == 0

    run(scenario)


def test_a_service_that_dies_while_another_loads_is_noticed_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        loading = http_server("loading", tmp_path, {"STATUS": "503"})
        dying = ChildProcess("dying", ["sh", "-c", "echo out of memory; exit 9"], dict(os.environ), tmp_path)
        running = Running([loading, dying], Restarts())
        assert await asyncio.wait_for(running.status, 15) == 1

    run(scenario)
    assert "dying ended with status 9; its last lines:\nout of memory" in caplog.text
    assert "never became ready" in caplog.text


def test_a_service_that_is_not_ready_in_time_ends_the_start_with_its_last_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        services = [http_server("gateway", tmp_path), http_server("triton", tmp_path, {"STATUS": "503"})]
        running = Running(services, Restarts(), startup_timeout_s=3)
        assert await running.status == 1
        assert all(service.pid is None for service in services)

    run(scenario)
    assert "triton not ready within STARTUP_TIMEOUT_S=3 s; its last lines:\nserving" in caplog.text


def test_it_gives_up_loudly_when_restarting_does_not_help(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        service = http_server("triton", tmp_path)
        running = Running([service], Restarts(most=2, **NO_WAIT))
        for times in (1, 2, 3):
            await running.until_ready(times)
            os.kill(service.pid or 0, signal.SIGKILL)
        assert await running.status == 1

    run(scenario)
    assert "giving up: it failed again after 2 restarts within 600 s" in caplog.text


def test_a_stop_during_the_pause_before_a_restart_is_obeyed_at_once() -> None:
    async def scenario() -> None:
        services = [FakeService("a", [])]
        running = Running(services, Restarts(first_delay_s=600))  # type: ignore[arg-type]
        await running.until_ready()
        services[0].failed.set_result(ServiceFailure("a", "failed"))
        while running.ended == 0:
            await asyncio.sleep(0.01)
        assert await asyncio.wait_for(running.finish(), 5) == 0

    run(scenario)


def test_restarts_wait_longer_each_time_and_the_allowance_comes_back() -> None:
    restarts = Restarts(most=5, window_s=600)
    assert [restarts.next_delay_s(float(now)) for now in range(6)] == [1, 2, 4, 8, 16, None]
    assert restarts.next_delay_s(700.0) == 1
