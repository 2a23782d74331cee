"""Requests without a good API key end here, when keys are asked for."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from parakeet_mps.api_keys import ApiKeys
from parakeet_mps.errors import UnauthorizedError
from parakeet_mps.gateway import endpoints, failures
from parakeet_mps.settings import Settings

_CHALLENGE = {"www-authenticate": 'Bearer realm="parakeet-mps"'}


class KeyLayer:
    """ASGI middleware: 401 for a missing or wrong key, before anything of the body is read.

    Everything but the `open_paths` is closed, also what does not exist.
    """

    def __init__(self, app: ASGIApp, keys: ApiKeys, open_paths: frozenset[str]) -> None:
        self._app = app
        self._keys = keys
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one ASGI scope on, or refuse it."""
        if scope["type"] == "http" and self._keys.required and scope["path"] not in self._open_paths:
            refusal = self._refusal(Headers(scope=scope).getlist("authorization"))
            if refusal is not None:
                await failures.response(refusal, _CHALLENGE)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, offered: list[str]) -> UnauthorizedError | None:
        scheme, _, key = (offered[0] if len(offered) == 1 else "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            return UnauthorizedError("An API key is needed: send the header `Authorization: Bearer KEY`.")
        if not self._keys.accept(key.strip()):
            return UnauthorizedError("The API key is wrong.")
        return None


def open_paths(settings: Settings) -> frozenset[str]:
    """Return the paths that need no key, by their switches."""
    switched = (
        (settings.open_health, {endpoints.HEALTH}),
        (settings.open_metrics, {endpoints.METRICS}),
        (settings.open_page, endpoints.PAGE),
        (settings.open_docs, endpoints.DOCUMENTATION),
    )
    return frozenset(path for switch, paths in switched if switch == "on" for path in paths)
