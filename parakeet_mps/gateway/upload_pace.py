"""Uploads that hardly come in are given up."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parakeet_mps.errors import SlowUploadError
from parakeet_mps.gateway import failures


class UploadPace:
    """ASGI middleware: 408 when a body comes in slower than `min_kib_s` KiB/s and falls behind by `grace_s` seconds.

    Only the time spent waiting for the client counts, not what the server takes to store what came.
    """

    def __init__(self, app: ASGIApp, grace_s: float, min_kib_s: int) -> None:
        self._app = app
        self._grace_s = grace_s
        self._bytes_per_s = min_kib_s << 10

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one ASGI scope on, its body timed."""
        await self._app(scope, self._timed(receive) if scope["type"] == "http" else receive, send)

    def _timed(self, receive: Receive) -> Receive:
        patience_s: float | None = self._grace_s  # None once the body is complete: then only the client's end can come

        async def receive_timed() -> Message:
            nonlocal patience_s
            began_at = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(patience_s):
                    message = await receive()
            except TimeoutError:
                error = SlowUploadError("The upload came in too slowly.")
                raise failures.through_framework(error) from error
            if patience_s is not None:
                earned_s = len(message.get("body", b"")) / self._bytes_per_s
                waited_s = asyncio.get_running_loop().time() - began_at
                left_s = min(patience_s + earned_s - waited_s, self._grace_s)
                patience_s = left_s if message.get("more_body", False) else None
            return message

        return receive_timed
