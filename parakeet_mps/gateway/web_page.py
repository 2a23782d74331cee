"""The page that people see at `/`, and what it is made of: files of this package, for which nothing is built.

Their headers let the page load and ask nothing but this service. Caches may keep the files but ask each time whether
they are still good, so that an update is seen at once. https://developer.mozilla.org/docs/Web/HTTP/Guides/CSP
"""

from __future__ import annotations

import hashlib
import html
import string
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import JSONResponse, Response

from parakeet_mps.gateway import endpoints
from parakeet_mps.settings import Settings

HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src data:; media-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "microphone=(self), camera=(), geolocation=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

DEMO = (
    "This is the demo recogniser: it has only heard synthetic voices speak about a thousand English words, and it"
    " does not understand people."
)
"""Its model card in one sentence."""

_DOCUMENTATION = {"service": "parakeet-mps", "documentation": "/docs", "openapi": "/openapi.json"}
_CONTENT_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}


class WebPage:
    """The page, with this service's limits written into it."""

    def __init__(self, settings: Settings, asks_key: bool) -> None:
        self._page = _File("index.html", _facts(settings, asks_key))
        self._assets = {path: _File(path.rpartition("/")[2]) for path in endpoints.PAGE - {endpoints.ROOT}}

    def router(self) -> APIRouter:
        """Return the routes, to be included in an app."""
        router = APIRouter(include_in_schema=False)
        router.add_api_route(endpoints.ROOT, self.root, response_class=Response)
        # One route for all of them, so that they count as one endpoint.
        router.add_api_route("/page/{name}", self.asset, response_class=Response)
        return router

    async def root(self, request: Request) -> Response:
        """Return the page to those who ask for HTML, and point others to the documentation."""
        wants_html = _wants_html(request.headers.get("accept", ""))
        answer = self._page.answer(request) if wants_html else JSONResponse(_DOCUMENTATION)
        answer.headers["vary"] = "accept"
        return answer

    async def asset(self, request: Request) -> Response:
        """Return one of the page's other files."""
        file = self._assets.get(request.url.path)
        if file is None:
            raise HTTPException(404)
        return file.answer(request)


class _File:
    """One file in memory, its `facts` written in; its tag changes with its bytes, whichever process serves it."""

    def __init__(self, name: str, facts: dict[str, str] | None = None) -> None:
        text = (files("parakeet_mps.gateway") / "page" / name).read_text("utf-8")
        self._body = (string.Template(text).substitute(facts) if facts else text).encode()
        self._type = _CONTENT_TYPES[Path(name).suffix]
        self._tag = f'"{hashlib.sha256(self._body).hexdigest()[:32]}"'

    def answer(self, request: Request) -> Response:
        headers = HEADERS | {"etag": self._tag}
        known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if self._tag in known:
            return Response(status_code=304, headers=headers)
        return Response(self._body, headers=headers, media_type=self._type)


def _wants_html(accept: str) -> bool:
    """Whether HTML is named: browsers do, when a person goes to a page; a client that takes anything does not."""
    return any(part.partition(";")[0].strip().lower() == "text/html" for part in accept.split(","))


def _facts(settings: Settings, asks_key: bool) -> dict[str, str]:
    # Which model a Triton elsewhere serves is not known here.
    is_demo = settings.triton_is_local and Path(settings.model).name == Path(Settings.model).name
    facts = {
        "max_upload_mb": str(settings.max_upload_mb),
        "asks_key": "yes" if asks_key else "no",
        "longest": _duration(settings.max_audio_s),
        "recogniser": DEMO if is_demo else "The recogniser understands English.",
    }
    return {name: html.escape(value) for name, value in facts.items()}


def _duration(seconds: int) -> str:
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds} seconds"
