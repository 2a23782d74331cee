"""Requests outlive the recogniser's absence and its crashes: they wait until it is there, and are sent again.

Recognition changes nothing anywhere, so a request may be recognised twice. It is sent again once only: a request that
kills recognisers would otherwise kill every one of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import torch

from parakeet_mps.contract import Recognition
from parakeet_mps.errors import LostError, UnavailableError, UnreachableError
from parakeet_mps.gateway.transcriber import Transcriber

ARRIVAL_PATIENCE_S = 2.0
"""Time that a request waits for a recogniser that is not there: enough to connect, less than a restart takes."""

CRASH_SETTLES_S = 1.0
"""Pause after a crash. When one of several recognisers has died, Triton calls itself ready; by then its watch has left
the sentinel, or the request goes to another recogniser."""

ANSWER_S = 0.5
"""Time that must be left for an answer when a request is sent again."""

POLL_S = 0.2
PROBE_TIMEOUT_S = 1.0

T = TypeVar("T")


class RetryingTranscriber:
    """A `Transcriber` around another one.

    `recovering` says that a recovery is under way, so that nothing is sent again yet; `retried` is called for every
    request that is sent again after a crash.
    """

    def __init__(
        self,
        transcriber: Transcriber,
        recovering: Callable[[], bool] = lambda: False,
        retried: Callable[[], None] = lambda: None,
        settles_s: float = CRASH_SETTLES_S,
    ) -> None:
        self._transcriber = transcriber
        self._recovering = recovering
        self._retried = retried
        self._settles_s = settles_s
        self._asking = asyncio.Lock()

    async def transcribe(self, waveform: torch.Tensor, timeout_s: float, hotwords: Sequence[str] = ()) -> Recognition:
        """See `Transcriber`. Raises the first `LostError` when the recogniser is not back in time."""
        deadline = time.monotonic() + timeout_s

        async def send() -> Recognition:
            left_s = deadline - time.monotonic()
            return await self._transcriber.transcribe(waveform, max(left_s, 1e-3), hotwords)

        try:
            return await self._once_there(send, deadline)
        except LostError as lost:
            await self._recovered(lost, deadline)
        self._retried()
        return await self._once_there(send, deadline)

    async def live(self, timeout_s: float) -> bool:
        """See `Transcriber`."""
        return await self._transcriber.live(timeout_s)

    async def ready(self, timeout_s: float) -> bool:
        """See `Transcriber`."""
        return await self._transcriber.ready(timeout_s)

    async def close(self) -> None:
        """Close the other transcriber."""
        await self._transcriber.close()

    async def _once_there(self, send: Callable[[], Awaitable[T]], deadline: float) -> T:
        """Send. What could not leave is sent once the recogniser is there, if that is soon."""
        try:
            return await send()
        except UnreachableError as unreachable:
            arrival = time.monotonic() + ARRIVAL_PATIENCE_S
            await self._ready_by(min(arrival, deadline - ANSWER_S), unreachable)
        return await send()

    async def _recovered(self, lost: LostError, deadline: float) -> None:
        if time.monotonic() + self._settles_s > deadline - ANSWER_S:
            raise lost
        await asyncio.sleep(self._settles_s)
        await self._ready_by(deadline - ANSWER_S, lost)

    async def _ready_by(self, when: float, otherwise: UnavailableError) -> None:
        """Return when the recogniser is ready; raise `otherwise` when it is not by `when` (monotonic, s).

        One request asks at a time, the others wait behind it: a server that is starting has other things to do.
        """
        try:
            async with asyncio.timeout(when - time.monotonic()), self._asking:
                while self._recovering() or not await self._transcriber.ready(PROBE_TIMEOUT_S):
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise otherwise from None
