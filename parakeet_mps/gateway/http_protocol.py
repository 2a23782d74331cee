"""Uvicorn's HTTP protocol with what it lacks: limits on what a client sends or leaves unread, and errors in our shape.

Uvicorn waits without end for a client that connects and says nothing, or never ends its headers, and stores whatever
it sends as headers, also in front of the next request and behind a body. And it waits for one that reads nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from parakeet_mps.errors import RequestError
from parakeet_mps.gateway.request_parser import RequestParser

_log = logging.getLogger(__name__)

HEAD_TIMEOUT_S = 20.0
"""Time that a client may take from connecting, or from a request's first byte, to the end of the headers."""

MAX_HEAD_BYTES = 64 << 10
"""The most that a request line and its headers may take, and what a client may send that is no body."""

READING_TIMEOUT_S = 30.0
"""Time that a client may take to read 48 KiB of its answer, once so much waits for it: what it asked for is held."""


class GatewayProtocol(HttpToolsProtocol):
    """One connection."""

    _head_timer: asyncio.TimerHandle | None = None
    _reading_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self.parser = RequestParser(self)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._head_came()
        self._reader_went_on()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request's headers are too large.")
        elif self._awaits_head and self._head_timer is None and self.timeout_keep_alive_task is None:
            self._expect_head()

    def on_headers_complete(self) -> None:
        """See `httptools.HttpRequestParser`."""
        if not self.parser.should_upgrade():  # else they come again, see `RequestParser`
            self._head_came()
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """See `httptools.HttpRequestParser`."""
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """See `httptools.HttpRequestParser`."""
        if not self.parser.should_upgrade():
            self._head_bytes = 0
            super().on_message_complete()

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`: the client reads more slowly than it is answered."""
        super().pause_writing()
        self._reading_timer = self.loop.call_later(READING_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        super().resume_writing()
        self._reader_went_on()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, in the OpenAI error shape."""
        self._refuse(HTTPStatus.BAD_REQUEST, msg)

    @property
    def _awaits_head(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def _may_answer(self) -> bool:
        """Whether what is sent now would be read as an answer to what was wrong, not as a part of another answer."""
        nothing_begun = self._awaits_head or (self.cycle.more_body and not self.cycle.response_started)
        return nothing_begun and not self.pipeline

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._head_is_late)

    def _head_came(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _reader_went_on(self) -> None:
        if self._reading_timer is not None:
            self._reading_timer.cancel()
            self._reading_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        if not self._may_answer:
            self.transport.abort()
            return
        request_id = uuid.uuid4().hex
        _log.warning("request %s refused: %s", request_id, message)
        body = RequestError(message).body()
        body["error"]["code"] = status.name.lower()
        content = json.dumps(body).encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\nconnection: close\r\n"
            f"content-length: {len(content)}\r\nx-request-id: {request_id}\r\n\r\n"
        )
        self.transport.write(head.encode() + content)
        self.transport.close()
