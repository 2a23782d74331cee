"""Traces of single requests: what the gateway does for one, and when. Off by default, and then without any cost.

This is the part that is always there; `open_telemetry` is loaded when a collector is named. Spans carry times, counts
and names of routes and stages; never the name of a file, nor anything that was said.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

from parakeet_mps.gateway.account import Account
from parakeet_mps.settings import Settings

outgoing_headers: ContextVar[dict[str, str] | None] = ContextVar("outgoing_headers", default=None)
"""Headers that continue the current trace in the process that is asked now; None when there is no trace."""

_NOTHING: AbstractContextManager[None] = nullcontext()


class Tracer:
    """Traces nothing; what its arguments are for, `OpenTelemetryTracer` shows."""

    def request(
        self,
        route: str,  # noqa: ARG002
        account: Account,  # noqa: ARG002
        headers: Mapping[str, str],  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """Trace a request for the length of the block; `headers` are its own, and may name the client's trace."""
        return _NOTHING

    def span(self, stage: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """Trace a stage of the current request for the length of the block."""
        return _NOTHING

    def past(self, stage: str, began_ns: int, ended_ns: int) -> None:
        """Trace a stage of the current request that is over: times in ns since 1970."""

    def close(self) -> None:
        """Send what is left."""


def tracer_of(settings: Settings) -> Tracer:
    """Return the tracer that the settings ask for."""
    if settings.traces_url is None:
        return Tracer()
    from parakeet_mps.gateway.open_telemetry import OpenTelemetryTracer

    return OpenTelemetryTracer(settings.traces_url)
