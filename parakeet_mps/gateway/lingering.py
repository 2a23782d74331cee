"""Refusals that reach their client although its body was never read.

A server that answers and closes while the client still sends makes the client's system throw the answer away (a TCP
reset). So the answer goes out, with `connection: close`, and the rest of the body is discarded for a while.
https://nginx.org/en/docs/http/ngx_http_core_module.html#lingering_close
"""

from __future__ import annotations

import asyncio
import contextlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parakeet_mps.gateway.draining import Drain

LINGER_S = 2.0
"""Time for which the rest of a refused body is read."""


class LingeringLayer:
    """ASGI middleware, the outermost: holds back the end of a response while its request's body still comes in.

    Every response of a draining worker closes its connection too.
    """

    def __init__(self, app: ASGIApp, drain: Drain) -> None:
        self._app = app
        self._drain = drain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one ASGI scope on."""
        if scope["type"] == "http":
            ending = _Ending(scope, receive, send, self._drain)
            await self._app(scope, ending.receive, ending.send)
            await ending.linger()
        else:
            await self._app(scope, receive, send)


class _Ending:
    """The end of one request's body and of its response, whichever comes first."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, drain: Drain) -> None:
        self._receive = receive
        self._send = send
        self._drain = drain
        self._body_is_open = _has_body(Headers(scope=scope))
        self._held_back = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._body_is_open = False
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and (self._body_is_open or self._drain.draining):
            MutableHeaders(scope=message)["connection"] = "close"
        if self._body_is_open and message["type"] == "http.response.body" and not message.get("more_body", False):
            self._held_back = True
            message = {**message, "more_body": True}
        await self._send(message)

    async def linger(self) -> None:
        if not self._held_back:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while self._body_is_open:
                    await self.receive()
        await self._send({"type": "http.response.body", "body": b""})


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
