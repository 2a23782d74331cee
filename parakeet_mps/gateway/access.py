"""Request ids in and out, one count and one log line for every request, and the last resort for failures."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from contextlib import AbstractContextManager, nullcontext

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parakeet_mps.errors import UnavailableError
from parakeet_mps.gateway import endpoints, failures
from parakeet_mps.gateway.account import Account, Outcome, open_account
from parakeet_mps.gateway.metrics import Metrics

_log = logging.getLogger(__name__)

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})

CLIENT_LEFT = 499
"""Status in logs and metrics of a request whose client left before its answer was complete; nginx's number."""

_NO_ANSWER = 500
"""Status in logs and metrics of a request that ended without any response, through no fault of its client."""


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
        self._is_work = endpoints.is_work(scope["method"], scope["path"])
        self._account = open_account(_request_id(Headers(scope=scope).get("x-request-id")))

    async def run(self, app: ASGIApp, receive: Receive, metrics: Metrics) -> None:
        metrics.began(is_work=self._is_work)
        try:
            with self._traced(metrics):
                await app(self._scope, self._receive_timing(receive, metrics), self._send_noting)
        except asyncio.CancelledError:
            await self._answer(failures.response(UnavailableError("The server was stopped; try again later.")), receive)
        except Exception:  # noqa: BLE001  the last resort
            await self._answer(failures.response(failures.unexpected(self._account.request_id)), receive)
        finally:
            self._close(metrics)

    def _close(self, metrics: Metrics) -> None:
        account = self._account
        status = CLIENT_LEFT if account.client_left else account.status or _NO_ANSWER
        reason = (account.reason or str(status)) if account.outcome is Outcome.REFUSED else ""
        metrics.ended(account, self._endpoint, status, reason, is_work=self._is_work)
        _log_line(account, self._method, self._endpoint, status, reason)

    def _traced(self, metrics: Metrics) -> AbstractContextManager[None]:
        if not self._is_work:
            return nullcontext()
        return metrics.tracer.request(self._scope["path"], self._account, Headers(scope=self._scope))

    def _receive_timing(self, receive: Receive, metrics: Metrics) -> Receive:
        """Return `receive`; notes how long the body of a transcription takes to come in."""
        if not self._is_work:
            return receive

        async def receive_timing() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                metrics.uploaded(self._account.seconds)
            return message

        return receive_timing

    async def _answer(self, answer: Response, receive: Receive) -> None:
        if self._account.status is None and not self._account.client_left:
            await answer(self._scope, receive, self._send_noting)

    async def _send_noting(self, message: Message) -> None:
        account = self._account
        if message["type"] == "http.response.start":
            account.status = message["status"]
            MutableHeaders(scope=message)["x-request-id"] = account.request_id
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            account.complete = not account.client_left

    @property
    def _endpoint(self) -> str:
        """The route's pattern, so that made-up paths cannot grow the metrics."""
        path = self._scope["path"]
        return str(getattr(self._scope.get("route"), "path", path if path in endpoints.KNOWN else "unmatched"))

    @property
    def _method(self) -> str:
        method = str(self._scope["method"])
        return method if method in _METHODS else "other"


def _log_line(account: Account, method: str, endpoint: str, status: int, reason: str) -> None:
    """One line for each request: no path as sent, no query, no name, nothing that was said."""
    fields = {
        "request_id": account.request_id,
        "method": method,
        "route": endpoint,
        "status": status,
        "outcome": str(account.outcome),
        "reason": reason or None,
        "seconds": round(account.seconds, 4),
        **{f"{name}_seconds": round(seconds, 4) for name, seconds in account.stages.items()},
        "audio_seconds": round(account.audio_s, 3) if account.audio_s else None,
        "model": account.model,
    }
    told = {name: value for name, value in fields.items() if value is not None}
    level = logging.INFO if endpoint.startswith("/v1/") else logging.DEBUG  # probes would drown the rest
    text = f"request %s: {method} {endpoint} {status} in {account.seconds:.3f} s"
    _log.log(level, text, account.request_id, extra={"fields": told})


def _request_id(offered: str | None) -> str:
    return offered if offered and _REQUEST_ID.fullmatch(offered) else uuid.uuid4().hex
