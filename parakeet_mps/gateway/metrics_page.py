"""The page that Prometheus reads: counts of all workers, state of the service, metrics of the local Triton."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from parakeet_mps.errors import UnavailableError
from parakeet_mps.gateway.latency_window import LatencyWindow
from parakeet_mps.gateway.metrics import Metrics
from parakeet_mps.gateway.triton_page import TritonPage
from parakeet_mps.gateway.worker_files import forget_dead_gauges

CONTENT_TYPE = CONTENT_TYPE_LATEST

QUANTILES = (0.5, 0.9, 0.95, 0.99)

_SUMMARY = "parakeet_request_latency_seconds"


class MetricsPage:
    """Puts the page together anew for each look, in a thread, since it reads files and asks Triton."""

    def __init__(self, metrics: Metrics, state: Sequence[Collector] = (), triton: TritonPage | None = None) -> None:
        self._metrics = metrics
        self._state = state
        self._triton = triton

    async def text(self) -> bytes:
        """Return the page in Prometheus' text format."""
        return await asyncio.to_thread(self._write)

    def _write(self) -> bytes:
        page = CollectorRegistry()
        page.register(_WithQuantiles(self._counts(), self._metrics.window))
        for collector in self._state:
            page.register(collector)
        if self._triton is None:
            return generate_latest(page)
        triton = self._triton.read()
        page.register(triton)
        return generate_latest(page) + triton.text

    def _counts(self) -> Collector:
        folder = self._metrics.folder
        return self._metrics.registry if folder is None else _merged(folder)


def _merged(folder: Path) -> Collector:
    if not folder.is_dir():
        raise UnavailableError("What the workers counted is gone: somebody emptied RUN_DIR. Restart the service.")
    forget_dead_gauges(folder)
    collector: Collector = MultiProcessCollector(None, str(folder))  # type: ignore[no-untyped-call]
    return collector


class _WithQuantiles(Collector):
    """Adds the window's quantiles to the summary, which has only sum and count in Python's library."""

    def __init__(self, counts: Collector, window: LatencyWindow) -> None:
        self._counts = counts
        self._window = window

    def describe(self) -> Iterable[Metric]:
        """Claim no names: registering does not collect then."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return all metrics."""
        for metric in self._counts.collect():
            if metric.name == _SUMMARY:
                for level, seconds in self._window.quantiles(QUANTILES).items():
                    metric.add_sample(_SUMMARY, {"quantile": str(level)}, seconds)
            yield metric
