"""What the gateway counts and times.

`prometheus_client` shares values between processes through memory-mapped files in the folder that the environment
variable `PROMETHEUS_MULTIPROC_DIR` names. Whoever starts the workers empties that folder first and sets the variable,
since the library reads it when it is imported. Without it the metrics are those of one process. How they are shown is
`metrics_page`. https://prometheus.github.io/client_python/multiprocess/
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary

from parakeet_mps import errors
from parakeet_mps.gateway import account
from parakeet_mps.gateway.account import Account, Outcome
from parakeet_mps.gateway.catalogue import MODEL_ID
from parakeet_mps.gateway.endpoints import WORK
from parakeet_mps.gateway.latency_window import LatencyWindow
from parakeet_mps.gateway.stopwatch import Stopwatch
from parakeet_mps.gateway.tracing import Tracer

STAGES = ("upload", "decode", "inference", "render")
TRANSPORTS = ("shm", "grpc")
"""How audio reaches Triton: through shared memory, or inside the request."""

_INF = float("inf")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 30, 60, 300, 1800, _INF)
_RECORDING_SECONDS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, _INF)
_RTFX = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, _INF)


class Metrics:
    """Counts and times of everything that one worker does; `folder` is shared by all workers.

    What is timed is traced, too.
    """

    def __init__(self, folder: Path | None = None, tracer: Tracer | None = None) -> None:
        self.folder = folder
        self.tracer = tracer or Tracer()
        self.registry = CollectorRegistry()
        self.window = LatencyWindow(folder)
        self._count_requests(self.registry)
        self._time_requests(self.registry)
        self._count_work(self.registry)
        self._workers.set(1)

    def _count_requests(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "parakeet_requests", "HTTP requests that ended.", ("endpoint", "status"), registry=registry
        )
        self._accepted = Counter("parakeet_accepted", "HTTP requests that came in.", registry=registry)
        self._outcomes = Counter(
            "parakeet_outcomes",
            "How requests ended: answered, refused (for a reason, the error's code) or cancelled by the client."
            " accepted = answered + refused + cancelled + in flight, but for those that a killed worker took.",
            ("outcome", "reason"),
            registry=registry,
        )
        self._transcriptions = Counter(
            "parakeet_transcriptions",
            "How requests for a transcription ended, as in parakeet_outcomes_total.",
            ("outcome", "reason"),
            registry=registry,
        )
        for outcome, reason in _foreseen_outcomes():  # a series that begins above zero hides its first events
            self._transcriptions.labels(outcome, reason)
        self._in_flight = _gauge("parakeet_requests_in_flight", "HTTP requests being answered.", registry)
        self._work_in_flight = _gauge(
            "parakeet_transcriptions_in_flight", "Requests for a transcription being answered.", registry
        )
        self._workers = _gauge("parakeet_gateway_workers", "Gateway processes that run.", registry)

    def _time_requests(self, registry: CollectorRegistry) -> None:
        self._durations = Histogram(
            "parakeet_request_seconds",
            "Time from a request's first byte to its answer's last.",
            ("endpoint", "outcome"),
            buckets=_SECONDS,
            registry=registry,
        )
        for outcome, endpoint in itertools.product(Outcome, WORK):
            self._durations.labels(endpoint, outcome)
        self._latency = Summary(
            "parakeet_request_latency_seconds",
            "Time from a transcription's first byte to its answer's last, of those answered in the last 5 minutes.",
            registry=registry,
        )
        self._stages = Histogram(
            "parakeet_stage_seconds",
            "Time of a stage: upload, decode (all of a recording), inference (of one piece, queue included), render.",
            ("stage",),
            buckets=_SECONDS,
            registry=registry,
        )
        for stage in STAGES:
            self._stages.labels(stage)
        self._rtfx = Histogram(
            "parakeet_request_rtfx_ratio",
            "Seconds of audio transcribed per second of a request that was answered.",
            buckets=_RTFX,
            registry=registry,
        )

    def _count_work(self, registry: CollectorRegistry) -> None:
        self._audio = Counter("parakeet_audio_seconds", "Seconds of audio transcribed.", registry=registry)
        self._recordings = Histogram(
            "parakeet_recording_seconds",
            "Duration of the recordings whose transcription was answered.",
            buckets=_RECORDING_SECONDS,
            registry=registry,
        )
        self._pieces = _gauge("parakeet_pieces_in_flight", "Pieces of recordings that are with Triton.", registry)
        self._empty = Counter(
            "parakeet_empty_voiced", "Pieces without a word although they plainly hold sound.", registry=registry
        )
        self._retries = Counter(
            "parakeet_retries", "Pieces sent to Triton once more after it lost them.", registry=registry
        )
        self._sent = Counter(
            "parakeet_audio_sent_bytes",
            "Bytes of audio handed to Triton through shared memory (shm) or inside the request (grpc).",
            ("transport",),
            registry=registry,
        )
        for transport in TRANSPORTS:
            self._sent.labels(transport)

    def began(self, *, is_work: bool) -> None:
        """Count a request in; `is_work` when it asks for a transcription."""
        self._accepted.inc()
        self._in_flight.inc()
        if is_work:
            self._work_in_flight.inc()

    def ended(self, request: Account, endpoint: str, status: int, reason: str, *, is_work: bool) -> None:
        """Count a request out."""
        seconds, outcome = request.seconds, request.outcome
        self._in_flight.dec()
        self._outcomes.labels(outcome, reason).inc()
        self._requests.labels(endpoint, str(status)).inc()
        self._durations.labels(endpoint, outcome).observe(seconds)
        if is_work:
            self._work_in_flight.dec()
            self._transcriptions.labels(outcome, reason).inc()
            if outcome is Outcome.ANSWERED:
                self._answered(seconds, request.audio_s)

    def _answered(self, seconds: float, audio_s: float) -> None:
        self.window.observe(seconds)
        self._latency.observe(seconds)
        self._recordings.observe(audio_s)
        self._rtfx.observe(audio_s / max(seconds, 1e-6))

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage of a transcription, also for the account and the trace of the current request."""
        stopwatch = Stopwatch()
        try:
            with self.tracer.span(name), stopwatch.running():
                yield
        finally:
            self._took(name, stopwatch.seconds)

    @contextmanager
    def stopwatch(self, name: str) -> Iterator[Stopwatch]:
        """Time one stage that is done bit by bit: what the stopwatch has measured in the end."""
        stopwatch = Stopwatch()
        try:
            yield stopwatch
        finally:
            self._took(name, stopwatch.seconds)
            self.tracer.past(name, stopwatch.began_ns, stopwatch.ended_ns)

    def uploaded(self, seconds: float) -> None:
        """Note that the body of the current request has come in, `seconds` after the request began."""
        now_ns = time.time_ns()
        self._took("upload", seconds)
        self.tracer.past("upload", now_ns - int(seconds * 1e9), now_ns)

    def _took(self, stage: str, seconds: float) -> None:
        self._stages.labels(stage).observe(seconds)
        account.current().add_stage(stage, seconds)

    @contextmanager
    def piece(self) -> Iterator[None]:
        """Time the inference of one piece, and count it as in flight meanwhile."""
        with self._pieces.track_inprogress(), self.stage("inference"):
            yield

    def transcribed(self, audio_s: float) -> None:
        """Count `audio_s` seconds of audio as transcribed, also in the account of the current request."""
        self._audio.inc(audio_s)
        account.current().transcribed(audio_s, MODEL_ID)

    def empty_though_voiced(self) -> None:
        """Count a piece without a word in which `voiced` hears sound."""
        self._empty.inc()

    def retried(self) -> None:
        """Count one more attempt for a piece that Triton lost."""
        self._retries.inc()

    def sent_audio(self, transport: str, size_bytes: int) -> None:
        """Count audio as handed to Triton through one of `TRANSPORTS`."""
        self._sent.labels(transport).inc(size_bytes)


def _gauge(name: str, text: str, registry: CollectorRegistry) -> Gauge:
    """A gauge that sums up the workers that are alive."""
    return Gauge(name, text, registry=registry, multiprocess_mode="livesum")


def _foreseen_outcomes() -> Iterator[tuple[str, str]]:
    yield from ((Outcome.ANSWERED, ""), (Outcome.CANCELLED, ""))
    classes = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ServiceError)
    ]
    yield from sorted({(str(Outcome.REFUSED), kind.code) for kind in classes})
