"""The state of the service at this moment: its build, its limits, its plan, CUDA MPS, and how often it recovered."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from parakeet_mps import __version__
from parakeet_mps.mps import MpsDaemon
from parakeet_mps.plan import Plan
from parakeet_mps.run_folder import RunFolder
from parakeet_mps.settings import Settings
from parakeet_mps.wedge import History

_EVENTS = {
    "wedge": ("parakeet_wedges", "Times that the recogniser hung, died or fell silent."),
    "recovery": ("parakeet_recoveries", "Times that the recogniser served again after that."),
    "give_up": ("parakeet_recovery_give_ups", "Times that recovery was given up."),
}


class ServiceState(Collector):
    """Reads what the service has written down. What is told by files that are missing is left out."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._run = RunFolder(settings.run_path)
        self._sentinel = Path(settings.wedge_sentinel)

    def describe(self) -> Iterable[Metric]:
        """Claim no names: registering does not collect then."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return all metrics."""
        yield InfoMetricFamily(
            "parakeet_build",
            "What runs here.",
            value={"version": __version__, "python": platform.python_version(), "torch": torch.__version__},
        )
        yield _gauge(
            "parakeet_transcriptions_in_flight_limit", "Most transcriptions in flight.", self._settings.max_in_flight
        )
        yield _gauge(
            "parakeet_gateway_workers_planned", "Gateway processes that should run.", self._settings.gateway_workers
        )
        yield from self._recovery()
        if self._settings.triton_is_local and (plan := self._plan()):
            yield from self._planned(plan)

    def _recovery(self) -> Iterator[Metric]:
        yield _gauge("parakeet_wedged", "Whether recovery is under way now.", self._sentinel.exists())
        events = History(self._sentinel).events()
        for kind, (name, text) in _EVENTS.items():
            count = sum(event.count for event in events if event.kind == kind)
            yield CounterMetricFamily(name, text, value=count)
        seconds = sum(event.seconds or 0.0 for event in events if event.kind == "recovery")
        yield CounterMetricFamily("parakeet_recovery_seconds", "Time from failures to recoveries.", value=seconds)

    def _plan(self) -> Plan | None:
        try:
            return Plan.from_json(self._run.plan.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _planned(self, plan: Plan) -> Iterator[Metric]:
        yield _gauge("parakeet_instances", "Recognisers, by the plan.", plan.instances.value)
        yield _gauge("parakeet_max_batch_size", "Most utterances in one batch.", plan.max_batch_size.value)
        yield _gauge("parakeet_mps_enabled", "Whether the recognisers share the GPU by CUDA MPS.", plan.mps.value)
        if plan.mps.value:
            daemon = MpsDaemon(self._run.mps(plan.gpu.value), plan.gpu.value)
            yield _gauge("parakeet_mps_up", "Whether the CUDA MPS daemon runs.", daemon.pid is not None)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
