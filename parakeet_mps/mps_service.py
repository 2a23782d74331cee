"""The MPS daemon as a supervised service: its blocking commands run beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from parakeet_mps.mps import MpsDaemon, MpsError
from parakeet_mps.process import ServiceFailure

POLL_S = 0.2


class MpsService:
    """Starts, watches and stops `daemon`. It is ready as soon as it is started, since starting verifies it."""

    name = "mps"

    def __init__(self, daemon: MpsDaemon, poll_s: float = POLL_S) -> None:
        self._daemon = daemon
        self._poll_s = poll_s
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Start and verify the daemon. Raises `ServiceFailure`."""
        try:
            await asyncio.shield(self._in_turn(self._daemon.start))
        except MpsError as error:
            raise ServiceFailure(self.name, f"did not start: {error}", self.log_tail()) from error

    async def wait_ready(self) -> None:
        """Return at once."""

    async def wait_failed(self) -> ServiceFailure:
        """Return when the daemon is gone. Triton's instances would go on without it, taking turns."""
        while self._daemon.pid is not None:
            await asyncio.sleep(self._poll_s)
        return ServiceFailure(self.name, "ended", self.log_tail())

    async def stop(self) -> None:
        """Stop the daemon."""
        await self._in_turn(self._daemon.stop)

    async def abort(self) -> None:
        """Stop the daemon: by now its clients are gone, so it has nothing to wait for."""
        await self.stop()

    def log_tail(self) -> str:
        """Return the last lines of the daemon's log."""
        return self._daemon.log_tail()

    async def _in_turn(self, action: Callable[[], None]) -> None:
        # A start that was given up goes on in its thread: stopping waits for it, or it would leave a daemon behind.
        async with self._turn:
            await asyncio.to_thread(action)
