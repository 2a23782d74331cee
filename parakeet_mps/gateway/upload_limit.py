"""A limit on request bodies: before reading when the length is declared, and while reading otherwise.

FastAPI's own `max_body_size` answers in plain text; here the answer has the OpenAI error shape.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parakeet_mps.errors import UploadTooLargeError
from parakeet_mps.gateway import failures

_FORM_ROOM_BYTES = 64 << 10
"""What the other form fields and the multipart boundaries may add to a file of the largest size."""


class UploadLimit:
    """ASGI middleware that answers 413 to bodies above `max_upload_mb` MiB."""

    def __init__(self, app: ASGIApp, max_upload_mb: int) -> None:
        self._app = app
        self._max_bytes = (max_upload_mb << 20) + _FORM_ROOM_BYTES
        self._error = UploadTooLargeError(f"The upload is too large; at most {max_upload_mb} MiB are accepted.")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one ASGI scope on, its body counted."""
        if scope["type"] == "http" and self._declares_too_much(Headers(scope=scope)):
            await failures.response(self._error)(scope, receive, send)
        else:
            await self._app(scope, self._counted(receive), send)

    def _declares_too_much(self, headers: Headers) -> bool:
        declared = headers.get("content-length", "")
        return declared.isdigit() and int(declared) > self._max_bytes

    def _counted(self, receive: Receive) -> Receive:
        left = self._max_bytes

        async def receive_counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise failures.through_framework(self._error)
            return message

        return receive_counted
