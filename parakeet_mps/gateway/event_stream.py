"""Server-sent events: a response whose parts leave as they come.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from fastapi.responses import Response
from fastapi.sse import format_sse_event
from starlette.types import Receive, Scope, Send

from parakeet_mps.errors import ServiceError
from parakeet_mps.gateway import account, failures

CONTENT_TYPE = "text/event-stream"

_UNBUFFERED = {"cache-control": "no-cache", "x-accel-buffering": "no"}
"""Ask caches and proxies (nginx by its own header) to pass every event on at once."""


class EventStream(Response):
    """Sends events, at least one, as they come. All of it happens in the task that calls it.

    An error before the first event is raised, so that it gets its own status. A later one is the last event: named
    `error`, with the OpenAI error document.
    """

    media_type = CONTENT_TYPE

    def __init__(self, events: AsyncGenerator[dict[str, Any], None], headers: Mapping[str, str] | None = None) -> None:
        self.status_code = 200
        self.background = None
        self._events = events
        self.init_headers({**_UNBUFFERED, **(headers or {})})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  ASGI's signature
        """Send the response."""
        async with aclosing(self._events) as events:
            first = await anext(events)
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send(_chunk(first))
            await self._send_rest(events, send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_rest(self, events: AsyncGenerator[dict[str, Any], None], send: Send) -> None:
        try:
            async for event in events:
                await send(_chunk(event))
        except ServiceError as error:
            await send(_error_chunk(error))
        except Exception:  # noqa: BLE001  the status is sent: the client must hear of it in the stream
            await send(_error_chunk(failures.unexpected(account.current().request_id)))


def _chunk(document: dict[str, Any], event: str | None = None) -> dict[str, Any]:
    data = json.dumps(document, ensure_ascii=False)
    return {"type": "http.response.body", "body": format_sse_event(data_str=data, event=event), "more_body": True}


def _error_chunk(error: ServiceError) -> dict[str, Any]:
    return _chunk(failures.noted(error).body(), "error")
