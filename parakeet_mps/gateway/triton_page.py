"""The metrics of a Triton on this machine, shown on the gateway's page under Triton's own names.

Its metrics port is closed to other machines by default, so nobody else could show them. A Triton on another machine is
a target of its own for Prometheus: it may have several gateways, each of which would show it once more.
"""

from __future__ import annotations

from collections.abc import Iterable
from http.client import HTTPConnection, HTTPException

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from parakeet_mps.http_probe import loopback
from parakeet_mps.settings import Settings

TIMEOUT_S = 0.5
"""Triton answers within a few ms; Prometheus' patience is for the gateway's own metrics."""

PATH = "/metrics"


class TritonMetrics(Collector):
    """What Triton said: its page as it is, empty when it did not answer."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    def describe(self) -> Iterable[Metric]:
        """Claim no names: registering does not collect then."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Say whether Triton answered."""
        yield GaugeMetricFamily("parakeet_triton_up", "Whether Triton tells its metrics.", value=bool(self.text))


class TritonPage:
    """The metrics page of one Triton."""

    def __init__(self, host: str, port: int, timeout_s: float = TIMEOUT_S) -> None:
        self._host, self._port, self._timeout_s = host, port, timeout_s

    @classmethod
    def of(cls, settings: Settings) -> TritonPage | None:
        """Return the page of the Triton on this machine; None when it runs elsewhere."""
        if not settings.triton_is_local:
            return None
        return cls(loopback(settings.triton_host), settings.triton_metrics_port)

    def read(self) -> TritonMetrics:
        """Ask Triton, for a short time."""
        connection = HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        try:
            connection.request("GET", PATH)
            answer = connection.getresponse()
            return TritonMetrics(answer.read() if answer.status == 200 else b"")
        except (OSError, HTTPException):
            return TritonMetrics(b"")
        finally:
            connection.close()
