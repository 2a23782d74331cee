"""A client that goes away takes its work with it: the handler is cancelled, and with it decoding and recognition.

Starlette leaves a plain handler running when its client is gone. Uvicorn tells of it only to whoever waits in
`receive`, so once the body is complete this layer is the one that waits.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parakeet_mps.gateway.account import current


class DisconnectLayer:
    """ASGI middleware, the innermost: cancels the handler when `receive` says that the client is gone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one ASGI scope on; returns when nothing of its work is left."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = _Client(receive, send)
        handler = asyncio.ensure_future(self._app(scope, client.receive, client.send))
        try:
            await asyncio.wait({handler, client.watch}, return_when=asyncio.FIRST_COMPLETED)
            if client.has_its_answer:
                await asyncio.wait({handler})
        finally:
            await _end(client.watch)
            await _end(handler)
        if not client.is_gone:
            handler.result()


class _Client:
    """The client's side of one request. `watch` ends when the client is gone, or has its answer."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._body_is_complete = asyncio.Event()
        self._gone = asyncio.Event()
        self._account = current()
        self.has_its_answer = False
        self.watch = asyncio.ensure_future(self._watch())

    @property
    def is_gone(self) -> bool:
        """Whether the client left without its answer."""
        return self._gone.is_set() and not self.has_its_answer

    async def receive(self) -> Message:
        """Give the handler the body; after that, wait until the client is gone."""
        if self._body_is_complete.is_set():
            await self._gone.wait()
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._leave()
        if not message.get("more_body", False):
            self._body_is_complete.set()
        return message

    async def send(self, message: Message) -> None:
        """Pass a part of the response on."""
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.has_its_answer = True

    async def _watch(self) -> None:
        await self._body_is_complete.wait()
        while not self._gone.is_set():
            if (await self._receive())["type"] == "http.disconnect":
                self._leave()

    def _leave(self) -> None:
        self._account.leave()
        self._gone.set()


async def _end(task: asyncio.Future[None]) -> None:
    """Cancel a task that still runs, and wait until it has ended, however it ends."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not complain of it
