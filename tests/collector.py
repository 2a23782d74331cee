"""A receiver of OpenTelemetry's traces over HTTP, as collectors are: protobuf from the gateway, JSON from Triton.

https://opentelemetry.io/docs/specs/otlp/#otlphttp
"""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Received:
    """One span."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    began_ns: int
    ended_ns: int


@dataclass
class Collector:
    """What has come in so far."""

    url: str
    spans: list[Received] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def take(self, body: bytes, content_type: str) -> None:
        self.bodies.append(body)
        is_json = content_type.startswith("application/json")
        document = json.loads(body) if is_json else MessageToDict(_with_hexadecimal_ids(body))
        for resource in document["resourceSpans"]:
            service = _attributes(resource["resource"])["service.name"]
            for scope in resource["scopeSpans"]:
                self.spans += [_span(service, span) for span in scope["spans"]]

    def of_trace(self, trace: str) -> list[Received]:
        return [span for span in self.spans if span.trace == trace]


@contextmanager
def collector() -> Iterator[Collector]:
    """One that listens on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            received.take(body, self.headers["content-type"])
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _with_hexadecimal_ids(body: bytes) -> ExportTraceServiceRequest:
    """Protobuf's JSON has ids in base 64; OTLP's has hexadecimal ones. They are put into the names' place."""
    request = ExportTraceServiceRequest.FromString(body)
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                ids = {"traceId": span.trace_id, "spanId": span.span_id, "parentSpanId": span.parent_span_id}
                span.trace_state = json.dumps({name: value.hex() for name, value in ids.items()})
    return request


def _span(service: str, span: dict[str, Any]) -> Received:
    ids = json.loads(span["traceState"]) if "traceState" in span else span
    times = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
    parent = ids.get("parentSpanId", "")
    return Received(service, span["name"], ids["traceId"], ids["spanId"], parent, _attributes(span), *times)


def _attributes(owner: dict[str, Any]) -> dict[str, Any]:
    return {item["key"]: next(iter(item["value"].values())) for item in owner.get("attributes", ())}
