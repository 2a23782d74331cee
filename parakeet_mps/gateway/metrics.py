"""The gateway's Prometheus metrics, summed over all worker processes.

`prometheus_client` shares values between processes through memory-mapped files in the folder that the environment
variable `PROMETHEUS_MULTIPROC_DIR` names. Whoever starts the workers empties that folder first and sets the variable,
since the library reads it when it is imported. Without it the metrics are those of one process.
https://prometheus.github.io/client_python/multiprocess/
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from parakeet_mps.gateway import account
from parakeet_mps.gateway.catalogue import MODEL_ID

CONTENT_TYPE = CONTENT_TYPE_LATEST
_LATENCY_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, float("inf"))


class Stopwatch:
    """Adds up the times that it runs, in `seconds`."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run for the length of the block."""
        began_at = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began_at


class Metrics:
    """Counts and times of everything that the gateway does."""

    def __init__(self, shared_folder: Path | None = None) -> None:
        self._shared_folder = shared_folder
        self._registry = registry = CollectorRegistry()
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
        self._latency = Histogram(
            "parakeet_request_seconds",
            "Time from a request's first byte to its answer's last.",
            ("endpoint",),
            buckets=_LATENCY_BUCKETS_S,
            registry=registry,
        )
        self._stages = Histogram(
            "parakeet_stage_seconds",
            "Time of each stage: decode (all of a recording) and inference (of one piece).",
            ("stage",),
            buckets=_LATENCY_BUCKETS_S,
            registry=registry,
        )
        self._audio = Counter("parakeet_audio_seconds", "Seconds of audio transcribed.", registry=registry)
        self._in_flight = Gauge(
            "parakeet_requests_in_flight",
            "HTTP requests being answered.",
            registry=registry,
            multiprocess_mode="livesum",
        )

    def began(self) -> None:
        """Count a request in."""
        self._accepted.inc()
        self._in_flight.inc()

    def ended(self, endpoint: str, status: int, seconds: float, outcome: str, reason: str) -> None:
        """Count a request out."""
        self._in_flight.dec()
        self._outcomes.labels(outcome, reason).inc()
        self._requests.labels(endpoint, str(status)).inc()
        self._latency.labels(endpoint).observe(seconds)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage of a transcription, also for the account of the current request."""
        with self.stopwatch(name) as stopwatch, stopwatch.running():
            yield

    @contextmanager
    def stopwatch(self, name: str) -> Iterator[Stopwatch]:
        """Time one stage that is done bit by bit: what the stopwatch has measured in the end."""
        stopwatch = Stopwatch()
        try:
            yield stopwatch
        finally:
            self._stages.labels(name).observe(stopwatch.seconds)
            account.current().add_stage(name, stopwatch.seconds)

    def transcribed(self, audio_s: float) -> None:
        """Count `audio_s` seconds of audio as transcribed, also in the account of the current request."""
        self._audio.inc(audio_s)
        account.current().transcribed(audio_s, MODEL_ID)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        if self._shared_folder is None:
            return generate_latest(self._registry)
        _forget_dead_processes(self._shared_folder)
        merged = CollectorRegistry()
        MultiProcessCollector(merged, str(self._shared_folder))  # type: ignore[no-untyped-call]
        return generate_latest(merged)


def shared_folder(name: str | None) -> Path | None:
    """Return the folder that the workers share, made if it is missing; None without a name."""
    if not name:
        return None
    folder = Path(name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _forget_dead_processes(folder: Path) -> None:
    """Drop the gauges of workers that died: their requests are no longer in flight."""
    for path in folder.glob("gauge_live*_*.db"):
        pid = int(path.stem.rpartition("_")[2])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]
