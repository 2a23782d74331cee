"""Units of recovery: services started in order, watched, restarted together when one fails, and stopped in reverse.

It knows neither Triton nor MPS nor HTTP: a service is anything that can start, become ready, fail and stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn, Protocol, TypeVar

from parakeet_mps.process import ServiceFailure
from parakeet_mps.wedge import Journal

LOG = logging.getLogger("supervisor")

MOST_RESTARTS = 5
RESTART_WINDOW_S = 600.0
FIRST_DELAY_S = 1.0

T = TypeVar("T")


class Service(Protocol):
    """What the supervisor starts and watches. Every method may raise `ServiceFailure`."""

    @property
    def name(self) -> str:
        """Name in log lines."""

    async def start(self) -> None:
        """Start it, without waiting until it is ready."""

    async def wait_ready(self) -> None:
        """Return when it serves."""

    async def wait_failed(self) -> ServiceFailure:
        """Return when it no longer serves, with the reason."""

    async def stop(self) -> None:
        """Stop it and all it started, letting it finish its work; does nothing when it is not running."""

    async def abort(self) -> None:
        """End it and all it started at once, since it or another of its unit failed."""

    def log_tail(self) -> str:
        """Return the last lines that it wrote."""


class Restarts:
    """The allowance of restarts: one at once, then after 1, 2, 4 ... s.

    It ends after `most` within `window_s`, and after `most` in a row that never became ready, however long each took.
    """

    def __init__(
        self, most: int = MOST_RESTARTS, window_s: float = RESTART_WINDOW_S, first_delay_s: float = FIRST_DELAY_S
    ) -> None:
        self._most, self._window_s, self._first_delay_s = most, window_s, first_delay_s
        self._times: deque[float] = deque()
        self._in_vain = 0

    def next_delay_s(self, now_s: float) -> float | None:
        """Record a failure at `now_s` and return the seconds to wait before restarting; None means give up."""
        while self._times and now_s - self._times[0] > self._window_s:
            self._times.popleft()
        if max(len(self._times), self._in_vain) >= self._most:
            return None
        self._in_vain += 1
        self._times.append(now_s)
        repeats = len(self._times) - 1
        return self._first_delay_s * 2.0 ** (repeats - 1) if repeats else 0.0

    def succeeded(self) -> None:
        """Note that what was restarted is ready."""
        self._in_vain = 0

    def __str__(self) -> str:
        if self._in_vain >= self._most:
            return f"none of {self._most} restarts became ready"
        return f"it failed again after {self._most} restarts within {self._window_s:g} s"


class Unit:
    """Runs `services`, which are restarted together; other units go on meanwhile. Its `name` lists them.

    The time to become ready counts from when the unit that it `needs` is ready. `changed` is called when it becomes
    ready or ceases to be. What happens to it is noted in `journal`.
    """

    def __init__(
        self,
        services: Sequence[Service],
        journal: Journal,
        restarts: Restarts,
        *,
        startup_timeout_s: float,
        needs: Unit | None = None,
    ) -> None:
        self.ready = asyncio.Event()
        self.changed: Callable[[], None] = lambda: None
        self._services = services
        self.name = ", ".join(service.name for service in services)
        self._startup_timeout_s = startup_timeout_s
        self._journal, self._restarts = journal, restarts
        self._needs = needs
        self._ever_ready = False

    async def run(self, stop: asyncio.Event) -> int:
        """Run until `stop` is set (returns 0) or a failure that restarting does not mend (returns 1)."""
        while (failure := await self._serve(stop)) is not None:
            delay_s = self._restarts.next_delay_s(time.monotonic()) if self._ever_ready else None
            if delay_s is None:
                why = str(self._restarts) if self._ever_ready else "the service never became ready"
                LOG.error("giving up: %s", why)
                self._journal.gave_up(failure.name, f"{failure.what}; {why}")
                return 1
            LOG.warning("restarting %s in %g s", self.name, delay_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), delay_s)
        return 0

    async def _serve(self, stop: asyncio.Event) -> ServiceFailure | None:
        """Run all services once; return what failed, or None when `stop` was set. Nothing runs afterwards."""
        if stop.is_set():
            return None
        failure: ServiceFailure | None = None
        try:
            failure = await first_of(_stopped(stop), self._start_and_watch())
        except ServiceFailure as raised:
            failure = raised
        finally:
            self._set_ready(False)
            if failure:
                self._note(failure)
            await self._end_all(at_once=failure is not None)
        return failure

    def _note(self, failure: ServiceFailure) -> None:
        if self._ever_ready:
            self._journal.failed(failure.name, failure.what)
        LOG.error("%s%s", failure, f"; its last lines:\n{failure.tail}" if failure.tail else "")

    async def _start_and_watch(self) -> ServiceFailure:
        begin = time.monotonic()
        for service in self._services:
            await service.start()
        watches = [service.wait_failed() for service in self._services]
        return await first_of(*watches, self._become_ready(begin))

    async def _become_ready(self, begin: float) -> NoReturn:
        """Wait for all services, which load side by side, and report; then wait to be cancelled."""
        if self._needs:
            await self._needs.ready.wait()
        waiting = {service.name for service in self._services}
        try:
            async with asyncio.timeout(self._startup_timeout_s):
                await asyncio.gather(*(self._wait_ready(service, begin, waiting) for service in self._services))
        except TimeoutError:
            raise self._late(waiting) from None
        self._ever_ready = True
        self._restarts.succeeded()
        seconds = self._journal.recovered()
        if seconds is not None:
            LOG.warning("recovered %.1f s after the failure: %s", seconds, self.name)
        self._set_ready(True)
        await asyncio.Event().wait()
        raise AssertionError("nobody sets this event")

    async def _wait_ready(self, service: Service, begin: float, waiting: set[str]) -> None:
        await service.wait_ready()
        waiting.discard(service.name)
        LOG.info("%s is ready after %.1f s", service.name, time.monotonic() - begin)

    def _late(self, waiting: set[str]) -> ServiceFailure:
        late = [service for service in self._services if service.name in waiting]
        tails = "\n".join(filter(None, (service.log_tail() for service in late)))
        names = " and ".join(service.name for service in late)
        return ServiceFailure(names, f"not ready within STARTUP_TIMEOUT_S={self._startup_timeout_s:g} s", tails)

    def _set_ready(self, ready: bool) -> None:
        if ready:
            self.ready.set()
        else:
            self.ready.clear()
        self.changed()

    async def _end_all(self, *, at_once: bool) -> None:
        for service in reversed(self._services):
            begin = time.monotonic()
            await (service.abort() if at_once else service.stop())
            LOG.info("%s stopped in %.1f s", service.name, time.monotonic() - begin)


async def supervise(
    units: Sequence[Unit], stop: asyncio.Event, changed: Callable[[bool], None] = lambda _: None
) -> int:
    """Run all `units` until `stop` is set or one of them gives up, then stop them in reverse order.

    `changed` is called with whether all units are ready. Returns the exit status: 1 when one gave up.
    """

    def look() -> None:
        changed(all(unit.ready.is_set() for unit in units))

    for unit in units:
        unit.changed = look
    if stop.is_set():
        return 0
    stops = [asyncio.Event() for _ in units]
    runs = [asyncio.create_task(unit.run(event)) for unit, event in zip(units, stops, strict=True)]
    stopped = asyncio.create_task(_stopped(stop))
    try:
        await asyncio.wait([stopped, *runs], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        for event, run in reversed(list(zip(stops, runs, strict=True))):
            event.set()
            await asyncio.wait([run])
    return max(run.result() for run in runs)


async def first_of(*waits: Awaitable[T]) -> T:
    """Return the result of what ends first, or raise its error; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task in done).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _stopped(stop: asyncio.Event) -> None:
    await stop.wait()
