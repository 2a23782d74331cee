"""Uvicorn's HTTP protocol with what it lacks: limits on the time and size of a request's head, and errors in our shape.

Uvicorn waits without end for a client that connects and says nothing, or never ends its headers, and stores whatever
it sends as headers.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from parakeet_mps.errors import RequestError

HEAD_TIMEOUT_S = 20.0
"""Time that a client may take from connecting, or from a request's first byte, to the end of the headers."""

MAX_HEAD_BYTES = 64 << 10
"""The most that a request line and its headers may take."""


class GatewayProtocol(HttpToolsProtocol):
    """One connection."""

    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        super().data_received(data)
        if self._awaits_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request's headers are too large.")
            elif self._head_timer is None and self.timeout_keep_alive_task is None:
                self._expect_head()

    def on_headers_complete(self) -> None:
        """See `httptools.HttpRequestParser`."""
        self._head_came()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, in the OpenAI error shape."""
        self._refuse(HTTPStatus.BAD_REQUEST, msg)

    @property
    def _awaits_head(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._head_is_late)

    def _head_came(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        body = RequestError(message).body()
        body["error"]["code"] = status.name.lower()
        content = json.dumps(body).encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\nconnection: close\r\n"
            f"content-length: {len(content)}\r\nx-request-id: {uuid.uuid4().hex}\r\n\r\n"
        )
        self.transport.write(head.encode() + content)
        self.transport.close()
