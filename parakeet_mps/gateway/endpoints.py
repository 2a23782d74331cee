"""Paths that layers must know before a request is routed."""

from __future__ import annotations

WORK = frozenset({"/v1/audio/transcriptions", "/v1/audio/translations"})
"""What occupies a recogniser; POST only."""

HEALTH = "/health"
METRICS = "/metrics"
ROOT = "/"
_MODULES = (
    "downloads",
    "elements",
    "page",
    "picture",
    "player",
    "recorder",
    "renderings",
    "service",
    "service_state",
    "times",
    "transcript_view",
)
PAGE = frozenset({ROOT, "/page/page.css", *(f"/page/{module}.js" for module in _MODULES)})
"""The page and every file that it loads."""

DOCUMENTATION = frozenset({"/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json"})

KNOWN = WORK | PAGE | DOCUMENTATION | {HEALTH, METRICS, "/v1/models"}
"""Every path without a variable part."""


def is_work(method: str, path: str) -> bool:
    """Whether a request would occupy a recogniser."""
    return method == "POST" and path in WORK
