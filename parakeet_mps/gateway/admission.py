"""How much work is in flight: what is too much is refused before its body is read.

An upload that dawdles lends its slot to others while it comes in, so slow clients keep nobody out; it needs a slot
again when it is complete. The number of such uploads is bounded too: beyond it they keep their slots.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parakeet_mps.errors import OverloadedError, ServiceError, UnavailableError
from parakeet_mps.gateway import failures
from parakeet_mps.gateway.account import current
from parakeet_mps.gateway.draining import Drain
from parakeet_mps.gateway.endpoints import is_work
from parakeet_mps.gateway.slots import Slots

DAWDLES_AFTER_S = 1.0
"""An upload that takes longer lends its slot."""

DAWDLERS_PER_SLOT = 4
"""Uploads that may dawdle without a slot, for each slot."""

RETURN_PATIENCE_S = 10.0
"""Time that a complete upload may wait for a slot, since sending it again costs more than waiting."""

_RETURN_POLL_S = 0.05  # the slot may be another process's, which cannot wake this one


class Admission:
    """The slots of this worker: `most` over all workers that share `folder`, or of this one alone."""

    def __init__(self, most: int, folder: Path | None = None) -> None:
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
        self.working = Slots(most, folder / "working" if folder else None)
        self.dawdling = Slots(most * DAWDLERS_PER_SLOT, folder / "dawdling" if folder else None)

    def close(self) -> None:
        """Free everything that this worker holds."""
        self.working.close()
        self.dawdling.close()


class AdmissionLayer:
    """ASGI middleware: 429 when all slots are taken, 503 while draining; other endpoints pass freely."""

    def __init__(self, app: ASGIApp, admission: Admission, drain: Drain) -> None:
        self._app = app
        self._admission = admission
        self._drain = drain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one ASGI scope on, or refuse it."""
        if scope["type"] != "http" or not is_work(scope["method"], scope["path"]):
            await self._app(scope, receive, send)
        elif self._drain.draining:
            await failures.response(_stopping())(scope, receive, send)
        else:
            await self._admit(scope, receive, send)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        place = _Place(self._admission)
        if not place.take():
            await failures.response(_overloaded())(scope, receive, send)
            return
        try:
            with self._drain.work():
                await self._app(scope, place.watching(receive), place.leaving(send))
        except asyncio.CancelledError:
            if not self._drain.expired or current().status is not None:
                raise
            await failures.response(_stopping())(scope, receive, send)
        finally:
            place.leave()


class _Place:
    """One request's slot: taken, lent while its upload dawdles, taken again."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._slot: int | None = None
        self._dawdler: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._left = False

    def take(self) -> bool:
        self._slot = self._admission.working.take()
        return self._slot is not None

    def watching(self, receive: Receive) -> Receive:
        """Return `receive`; lends the slot while the body takes its time."""
        self._timer = asyncio.get_running_loop().call_later(DAWDLES_AFTER_S, self._lend)

        async def receive_and_return() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                await self._settle()
            return message

        return receive_and_return

    def leaving(self, send: Send) -> Send:
        """Return `send`; leaves before the answer's end goes out, so that who has it finds the slot free."""

        async def leave_and_send(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                self.leave()
            await send(message)

        return leave_and_send

    def leave(self) -> None:
        self._left = True
        self._stop_timer()
        if self._slot is not None:
            self._admission.working.give_back(self._slot)
            self._slot = None
        self._stop_dawdling()

    def _lend(self) -> None:
        self._timer = None
        self._dawdler = self._admission.dawdling.take()
        if self._dawdler is not None and self._slot is not None:
            self._admission.working.give_back(self._slot)
            self._slot = None

    async def _settle(self) -> None:
        """The body is complete: have a slot. Raises the refusal when none becomes free in time."""
        self._stop_timer()
        if self._left:
            return
        deadline = asyncio.get_running_loop().time() + RETURN_PATIENCE_S
        while self._slot is None and not self.take():
            if asyncio.get_running_loop().time() > deadline:
                raise failures.through_framework(_overloaded())
            await asyncio.sleep(_RETURN_POLL_S)
        self._stop_dawdling()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_dawdling(self) -> None:
        if self._dawdler is not None:
            self._admission.dawdling.give_back(self._dawdler)
            self._dawdler = None


def _overloaded() -> ServiceError:
    return OverloadedError("Too many requests are in flight; try again later.")


def _stopping() -> ServiceError:
    return UnavailableError("This server is stopping; send the request again.")
