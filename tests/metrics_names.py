"""The samples that a gateway which has just started shows, by name."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from parakeet_mps.gateway.metrics import Metrics
from parakeet_mps.gateway.metrics_page import MetricsPage
from parakeet_mps.gateway.service_state import ServiceState
from parakeet_mps.settings import Settings


def shown_samples(folder: Path) -> dict[str, list[dict[str, str]]]:
    """Names of samples, and the labels of each series."""
    settings = Settings(run_dir=str(folder), wedge_sentinel=str(folder / "wedged"))
    page = asyncio.run(MetricsPage(Metrics(), [ServiceState(settings)]).text())
    series = defaultdict(list)
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            series[sample.name].append(sample.labels)
    return series
