"""A worker that is told to stop first finishes what it has accepted, and tells newcomers to go elsewhere.

Uvicorn closes its listening socket as soon as it is told to stop, while the parent process keeps a copy open: clients
would wait in a queue that nobody serves. So the signal starts a drain first, and reaches uvicorn when that is over.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_log = logging.getLogger(__name__)

NOTICE_S = 1.0
"""A drain lasts at least this long, so that clients with open connections hear of it before these are closed."""

GIVE_UP_S = 1.0
"""Time to tell those whose requests took too long."""

_Handler = Callable[[int, FrameType | None], Any]


class Drain:
    """Whether this worker is stopping, and the work that it finishes first, for `limit_s` seconds at most."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._work: set[asyncio.Task[Any]] = set()
        self._drained: asyncio.Task[None] | None = None
        self.draining = False
        self.expired = False

    @contextmanager
    def work(self) -> Iterator[None]:
        """Let the drain wait for the current task; past the limit the task is cancelled and `expired` is true."""
        task = asyncio.current_task()
        assert task is not None
        self._work.add(task)
        try:
            yield
        finally:
            self._work.discard(task)

    def begin(self, then: Callable[[], Any]) -> None:
        """Start the drain and call `then` at its end; does nothing when it has already begun."""
        if self._drained is None:
            self.draining = True
            _log.info("stopping: %d requests are finished first", len(self._work))
            self._drained = asyncio.create_task(self._finish(then))

    async def _finish(self, then: Callable[[], Any]) -> None:
        notice = asyncio.create_task(asyncio.sleep(NOTICE_S))
        _, late = await asyncio.wait({notice, *self._work}, timeout=max(self._limit_s, NOTICE_S))
        if late:
            self.expired = True
            _log.warning("stopping: %d requests took too long and are told to come back", len(late))
            for task in late:
                task.cancel()
            await asyncio.wait(late, timeout=GIVE_UP_S)
        then()


@contextmanager
def drain_on_signals(drain: Drain) -> Iterator[None]:
    """Let SIGTERM and SIGINT start the drain, and hand the signal to the present handler, uvicorn's, at its end.

    A second SIGINT is handed on at once. Does nothing outside the main thread, where no signal can be handled.
    """
    present = _present_handlers()
    loop = asyncio.get_running_loop()
    for number, handler in present.items():
        signal.signal(number, _draining_handler(drain, loop, handler))
    try:
        yield
    finally:
        for number, handler in present.items():
            signal.signal(number, handler)


def _present_handlers() -> dict[signal.Signals, _Handler]:
    if threading.current_thread() is not threading.main_thread():
        return {}
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    return {number: handler for number, handler in handlers.items() if callable(handler)}


def _draining_handler(drain: Drain, loop: asyncio.AbstractEventLoop, handler: _Handler) -> _Handler:
    def handle(number: int, frame: FrameType | None) -> None:
        if drain.draining and number == signal.SIGINT:
            handler(number, frame)
        else:
            loop.call_soon_threadsafe(drain.begin, lambda: handler(number, frame))

    return handle
