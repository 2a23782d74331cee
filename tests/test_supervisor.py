import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from parakeet_mps.process import ChildProcess, ServiceFailure
from parakeet_mps.supervisor import Restarts, Service, Unit, supervise
from parakeet_mps.wedge import History, Journal, Sentinel
from processes import http_server, runs


class FakeService:
    """Records what the supervisor does to it; fails when told to."""

    def __init__(self, name: str, events: list[str]) -> None:
        self.name = name
        self._events = events
        self.failed: asyncio.Future[ServiceFailure] = asyncio.get_running_loop().create_future()
        self.ready_gate = asyncio.Event()
        self.ready_gate.set()

    async def start(self) -> None:
        self._events.append(f"start {self.name}")
        self.failed = asyncio.get_running_loop().create_future()

    async def wait_ready(self) -> None:
        await self.ready_gate.wait()
        self._events.append(f"ready {self.name}")

    async def wait_failed(self) -> ServiceFailure:
        return await asyncio.shield(self.failed)

    async def stop(self) -> None:
        self._events.append(f"stop {self.name}")

    async def abort(self) -> None:
        self._events.append(f"abort {self.name}")

    def log_tail(self) -> str:
        return f"last words of {self.name}"


class Running:
    """Units at work in the background, and how often all of them were ready."""

    def __init__(
        self,
        *units: Sequence[Service],
        restarts: Restarts | None = None,
        startup_timeout_s: float = 20,
        journal: Journal | None = None,
    ) -> None:
        self.stop = asyncio.Event()
        self.ready = 0
        self.ended = 0
        self.units: list[Unit] = []
        for services in units:
            notes = journal or Journal(History(Path("/dev/null")))
            needs = self.units[-1] if self.units else None
            unit = Unit(services, notes, restarts or Restarts(), startup_timeout_s=startup_timeout_s, needs=needs)
            self.units.append(unit)
        self.status = asyncio.create_task(supervise(self.units, self.stop, self._count))

    def _count(self, ready: bool) -> None:
        self.ready += ready
        self.ended += not ready

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
        running = Running([FakeService(name, events) for name in ("mps", "triton")], [FakeService("gateway", events)])
        await running.until_ready()
        assert await running.finish() == 0
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
        running = Running([FakeService("a", events)])
        assert await running.finish() == 0
        assert events == []

    run(scenario)


def test_when_one_is_killed_its_unit_is_restarted_and_the_others_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        services = [http_server(name, tmp_path) for name in ("mps", "triton", "gateway")]
        running = Running(services[:2], services[2:])
        await running.until_ready()
        before = [service.pid for service in services]
        os.kill(before[0] or 0, signal.SIGKILL)
        await running.until_ready(times=2)
        after = [service.pid for service in services]
        assert None not in after
        assert not set(before[:2]) & set(after)
        assert before[2] == after[2]
        assert await running.finish() == 0
        assert not [pid for pid in (*before, *after) if pid and runs(pid)]

    run(scenario)


def test_a_unit_that_fails_is_ended_at_once_from_the_top(tmp_path: Path) -> None:
    async def scenario() -> None:
        events: list[str] = []
        services = [FakeService(name, events) for name in ("mps", "triton", "watch")]
        running = Running(services)
        await running.until_ready()
        events.clear()
        services[1].failed.set_result(ServiceFailure("triton", "ended"))
        await running.until_ready(times=2)
        assert events[:4] == ["abort watch", "abort triton", "abort mps", "start mps"]
        await running.finish()

    run(scenario)


def test_when_the_gateway_fails_it_alone_is_restarted() -> None:
    async def scenario() -> None:
        events: list[str] = []
        triton, gateway = FakeService("triton", events), FakeService("gateway", events)
        running = Running([triton], [gateway])
        await running.until_ready()
        events.clear()
        gateway.failed.set_result(ServiceFailure("gateway", "ended"))
        await running.until_ready(times=2)
        assert events == ["abort gateway", "start gateway", "ready gateway"]
        await running.finish()

    run(scenario)


def test_a_unit_is_not_late_while_the_one_it_needs_loads(tmp_path: Path) -> None:
    async def scenario() -> None:
        triton = http_server("triton", tmp_path, {"STATUS": "503"})
        running = Running([triton], [http_server("gateway", tmp_path, {"STATUS": "503"})], startup_timeout_s=1)
        assert await running.status == 1

    run(scenario)


def test_failures_and_recoveries_are_noted_with_a_sentinel_in_between(tmp_path: Path) -> None:
    async def scenario() -> None:
        service = FakeService("triton", [])
        sentinel, history = Sentinel(tmp_path / "wedged"), History(tmp_path / "wedged")
        running = Running([service], journal=Journal(history, sentinel), restarts=Restarts(first_delay_s=0))
        await running.until_ready()
        assert sentinel.read() is None
        service.ready_gate.clear()
        service.failed.set_result(ServiceFailure("recogniser 1", "was ended by SIGKILL"))
        while running.ended == 0:
            await asyncio.sleep(0.01)
        wedge = sentinel.read()
        assert wedge is not None
        assert (wedge.who, wedge.why) == ("recogniser 1", "was ended by SIGKILL")
        service.ready_gate.set()
        await running.until_ready(times=2)
        assert sentinel.read() is None
        await running.finish()
        events = [json.loads(line) for line in history.path.read_text().splitlines()]
        assert [(event["event"], event["who"]) for event in events] == [
            ("wedge", "recogniser 1"),
            ("recovery", "recogniser 1"),
        ]
        assert events[1]["seconds"] > 0

    run(scenario)


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_one_that_is_stopped_or_killed_is_replaced(number: signal.Signals, tmp_path: Path) -> None:
    async def scenario() -> None:
        service = http_server("triton", tmp_path)
        running = Running([service])
        await running.until_ready()
        hit = service.pid or 0
        os.kill(hit, number)
        await running.until_ready(times=2)
        assert not runs(hit)
        assert await running.finish() == 0

    run(scenario)


def test_a_service_that_dies_while_another_loads_is_noticed_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        loading = http_server("loading", tmp_path, {"STATUS": "503"})
        dying = ChildProcess("dying", ["sh", "-c", "echo out of memory; exit 9"], dict(os.environ), tmp_path)
        running = Running([loading, dying])
        assert await asyncio.wait_for(running.status, 15) == 1

    run(scenario)
    assert "dying ended with status 9; its last lines:\nout of memory" in caplog.text
    assert "never became ready" in caplog.text


def test_a_service_that_is_not_ready_in_time_ends_the_start_with_its_last_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        services = [http_server("gateway", tmp_path), http_server("triton", tmp_path, {"STATUS": "503"})]
        running = Running(services, startup_timeout_s=3)
        assert await running.status == 1
        assert all(service.pid is None for service in services)

    run(scenario)
    assert "triton not ready within STARTUP_TIMEOUT_S=3 s; its last lines:\nserving" in caplog.text


def test_it_gives_up_loudly_when_restarting_does_not_help(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sentinel = tmp_path / "wedged"

    async def scenario() -> None:
        services = [http_server("triton", tmp_path), http_server("gateway", tmp_path)]
        journal = Journal(History(sentinel), Sentinel(sentinel))
        running = Running(services[:1], services[1:], restarts=Restarts(most=2, first_delay_s=0), journal=journal)
        for times in (1, 2, 3):
            await running.until_ready(times)
            os.kill(services[0].pid or 0, signal.SIGKILL)
        assert await running.status == 1
        assert services[1].pid is None

    run(scenario)
    assert "giving up: it failed again after 2 restarts within 600 s" in caplog.text
    last = json.loads((tmp_path / "wedged.history").read_text().splitlines()[-1])
    assert (last["event"], last["who"]) == ("give_up", "triton")
    assert sentinel.exists()


def test_a_stop_during_the_pause_before_a_restart_is_obeyed_at_once() -> None:
    async def scenario() -> None:
        services = [FakeService("a", [])]
        running = Running(services, restarts=Restarts(first_delay_s=600))
        for times in (1, 2):
            await running.until_ready(times)
            services[0].failed.set_result(ServiceFailure("a", "failed"))
            while running.ended < times:
                await asyncio.sleep(0.01)
        assert await asyncio.wait_for(running.finish(), 5) == 0

    run(scenario)


def test_restarts_wait_longer_each_time_and_the_allowance_comes_back() -> None:
    restarts = Restarts(most=5, window_s=600)
    assert [restarts.next_delay_s(float(now)) for now in range(6)] == [0, 1, 2, 4, 8, None]
    restarts.succeeded()
    assert restarts.next_delay_s(700.0) == 0


def test_restarts_that_never_become_ready_come_to_an_end_however_long_each_takes() -> None:
    restarts = Restarts(most=3, window_s=600)
    assert restarts.next_delay_s(0) == 0
    restarts.succeeded()
    delays = [restarts.next_delay_s(1000.0 * attempt) for attempt in range(1, 5)]
    assert delays == [0, 0, 0, None]
    assert str(restarts) == "none of 3 restarts became ready"
