"""Services started in order, watched, restarted together when one fails, and stopped in reverse order.

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
        """Stop it and all it started; does nothing when it is not running."""

    def log_tail(self) -> str:
        """Return the last lines that it wrote."""


class Restarts:
    """The allowance of restarts: delays of 1, 2, 4 ... seconds, and an end after `most` within `window_s`."""

    def __init__(
        self, most: int = MOST_RESTARTS, window_s: float = RESTART_WINDOW_S, first_delay_s: float = FIRST_DELAY_S
    ) -> None:
        self._most, self._window_s, self._first_delay_s = most, window_s, first_delay_s
        self._times: deque[float] = deque()

    def next_delay_s(self, now_s: float) -> float | None:
        """Record a failure at `now_s` and return the seconds to wait before restarting; None means give up."""
        while self._times and now_s - self._times[0] > self._window_s:
            self._times.popleft()
        if len(self._times) >= self._most:
            return None
        self._times.append(now_s)
        return self._first_delay_s * 2.0 ** (len(self._times) - 1)

    def __str__(self) -> str:
        return f"it failed again after {self._most} restarts within {self._window_s:g} s"


class Supervisor:
    """Runs `services`. `ready` is called each time all of them are ready, `unready` whenever that ends."""

    def __init__(
        self,
        services: Sequence[Service],
        *,
        startup_timeout_s: float,
        restarts: Restarts,
        ready: Callable[[float], None] = lambda _: None,
        unready: Callable[[], None] = lambda: None,
    ) -> None:
        self._services = services
        self._startup_timeout_s = startup_timeout_s
        self._restarts = restarts
        self._ready, self._unready = ready, unready
        self._ever_ready = False

    async def run(self, stop: asyncio.Event) -> int:
        """Run until `stop` is set (returns 0) or a failure that restarting does not mend (returns 1)."""
        while (failure := await self._serve(stop)) is not None:
            LOG.error("%s%s", failure, f"; its last lines:\n{failure.tail}" if failure.tail else "")
            delay_s = self._restarts.next_delay_s(time.monotonic()) if self._ever_ready else None
            if delay_s is None:
                LOG.error("giving up: %s", self._restarts if self._ever_ready else "the service never became ready")
                return 1
            LOG.warning("restarting everything in %g s", delay_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), delay_s)
        return 0

    async def _serve(self, stop: asyncio.Event) -> ServiceFailure | None:
        """Run all services once; return what failed, or None when `stop` was set. Nothing runs afterwards."""
        if stop.is_set():
            return None
        try:
            return await first_of(_stopped(stop), self._start_and_watch())
        except ServiceFailure as failure:
            return failure
        finally:
            self._unready()
            await self._stop_all()

    async def _start_and_watch(self) -> ServiceFailure:
        begin = time.monotonic()
        for service in self._services:
            await service.start()
        watches = [service.wait_failed() for service in self._services]
        return await first_of(*watches, self._become_ready(begin))

    async def _become_ready(self, begin: float) -> NoReturn:
        """Wait for all services, which load side by side, and report; then wait to be cancelled."""
        waiting = {service.name for service in self._services}
        try:
            async with asyncio.timeout(self._startup_timeout_s):
                await asyncio.gather(*(self._wait_ready(service, begin, waiting) for service in self._services))
        except TimeoutError:
            raise self._late(waiting) from None
        self._ever_ready = True
        self._ready(time.monotonic() - begin)
        await asyncio.Event().wait()
        raise AssertionError("nobody sets this event")

    async def _wait_ready(self, service: Service, begin: float, waiting: set[str]) -> None:
        await service.wait_ready()
        waiting.discard(service.name)
        LOG.info("%s is ready after %.1f s", service.name, time.monotonic() - begin)

    def _late(self, waiting: set[str]) -> ServiceFailure:
        late = [service for service in self._services if service.name in waiting]
        tails = "\n".join(service.log_tail() for service in late)
        names = " and ".join(service.name for service in late)
        return ServiceFailure(names, f"not ready within STARTUP_TIMEOUT_S={self._startup_timeout_s:g} s", tails)

    async def _stop_all(self) -> None:
        for service in reversed(self._services):
            begin = time.monotonic()
            await service.stop()
            LOG.info("%s stopped in %.1f s", service.name, time.monotonic() - begin)


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
