"""Traces sent to a collector by OpenTelemetry's protocol over HTTP.

OpenTelemetry's own variables are obeyed: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER,
OTEL_EXPORTER_OTLP_HEADERS and so on. https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from http import HTTPStatus

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from parakeet_mps import __version__
from parakeet_mps.gateway.account import Account, Outcome
from parakeet_mps.gateway.tracing import Tracer, outgoing_headers

EXPORT_TIMEOUT_S = 5
"""A collector that is away is given up after that, so that it does not hold up the service's end."""


class OpenTelemetryTracer(Tracer):
    """One trace for each request: a span for all of it, and below that one for each stage and piece."""

    def __init__(self, url: str) -> None:
        named = {} if "OTEL_SERVICE_NAME" in os.environ else {SERVICE_NAME: "parakeet-gateway"}
        resource = Resource.create({SERVICE_VERSION: __version__, **named})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(url, timeout=EXPORT_TIMEOUT_S)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("parakeet_mps", __version__)
        self._format = TraceContextTextMapPropagator()

    @contextmanager
    def request(self, route: str, account: Account, headers: Mapping[str, str]) -> Iterator[None]:
        """See `Tracer`."""
        parent = self._format.extract(headers)
        began_ns = time.time_ns() - int(account.seconds * 1e9)
        with self._current(f"POST {route}", SpanKind.SERVER, parent, began_ns) as span:
            span.set_attributes({"http.request.method": "POST", "http.route": route})
            try:
                yield
            finally:
                _describe(span, account)

    @contextmanager
    def span(self, stage: str) -> Iterator[None]:
        """See `Tracer`."""
        with self._current(stage, SpanKind.CLIENT if stage == "inference" else SpanKind.INTERNAL):
            carrier: dict[str, str] = {}
            self._format.inject(carrier)
            token = outgoing_headers.set(carrier)
            try:
                yield
            finally:
                outgoing_headers.reset(token)

    def past(self, stage: str, began_ns: int, ended_ns: int) -> None:
        """See `Tracer`."""
        self._tracer.start_span(stage, start_time=began_ns).end(ended_ns)

    def close(self) -> None:
        """See `Tracer`. Takes at most `EXPORT_TIMEOUT_S`."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(EXPORT_TIMEOUT_S)

    def _current(
        self, name: str, kind: SpanKind, parent: Context | None = None, began_ns: int | None = None
    ) -> AbstractContextManager[Span]:
        """Start a span below the current one. Exceptions are not recorded: their texts are not meant for others."""
        return self._tracer.start_as_current_span(
            name, parent, kind, start_time=began_ns, record_exception=False, set_status_on_exception=False
        )


def _describe(span: Span, account: Account) -> None:
    span.set_attributes(
        {
            "parakeet.request_id": account.request_id,
            "parakeet.outcome": str(account.outcome),
            "parakeet.audio_seconds": account.audio_s,
        }
    )
    if account.status is not None:
        span.set_attribute("http.response.status_code", account.status)
    if account.reason:
        span.set_attribute("error.type", account.reason)
    failed = account.status is None or account.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    if failed and account.outcome is Outcome.REFUSED:
        span.set_status(StatusCode.ERROR)
