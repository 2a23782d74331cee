"""The outermost layer: request ids in and out, counts and times of every request, and the last resort for failures."""

from __future__ import annotations

import logging
import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parakeet_mps.gateway import failures
from parakeet_mps.gateway.metrics import Metrics

_log = logging.getLogger(__name__)

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_CLIENT_WENT_AWAY = 499


class AccessLayer:
    """ASGI middleware. A client's well-formed `x-request-id` is kept, else one is made; it is sent back."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one ASGI scope on."""
        if scope["type"] == "http":
            await _Exchange(scope, send).run(self._app, receive, self._metrics)
        else:
            await self._app(scope, receive, send)


class _Exchange:
    """One request and its response."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._request_id = _request_id(Headers(scope=scope).get("x-request-id"))
        self._status = _CLIENT_WENT_AWAY

    async def run(self, app: ASGIApp, receive: Receive, metrics: Metrics) -> None:
        metrics.began()
        began_at = time.perf_counter()
        try:
            await app(self._scope, receive, self._send_noting)
        except Exception:  # noqa: BLE001  the last resort
            await self._fail(receive)
        finally:
            self._note(metrics, time.perf_counter() - began_at)

    def _note(self, metrics: Metrics, seconds: float) -> None:
        endpoint = self._endpoint
        metrics.ended(endpoint, self._status, seconds)
        level = logging.INFO if endpoint.startswith("/v1/") else logging.DEBUG  # probes would drown the rest
        _log.log(level, "request %s: %s %d in %.3f s", self._request_id, endpoint, self._status, seconds)

    async def _fail(self, receive: Receive) -> None:
        answer = failures.unexpected(self._request_id)
        if self._status == _CLIENT_WENT_AWAY:  # no part of a response has been sent yet
            await answer(self._scope, receive, self._send_noting)

    async def _send_noting(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            MutableHeaders(scope=message)["x-request-id"] = self._request_id
        await self._send(message)

    @property
    def _endpoint(self) -> str:
        """The route's pattern, so that made-up paths cannot grow the metrics."""
        return str(getattr(self._scope.get("route"), "path", "unmatched"))


def _request_id(offered: str | None) -> str:
    return offered if offered and _REQUEST_ID.fullmatch(offered) else uuid.uuid4().hex
