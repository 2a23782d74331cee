"""The samples that a gateway which has just started shows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from parakeet_mps.gateway.metrics import Metrics
from parakeet_mps.gateway.metrics_page import MetricsPage
from parakeet_mps.gateway.service_state import ServiceState
from parakeet_mps.settings import Settings


@dataclass(frozen=True)
class Shown:
    """One sample; `kind` is its family's type, such as counter. Labels without a value are none."""

    name: str
    kind: str
    labels: dict[str, str]


def shown_samples(folder: Path) -> list[Shown]:
    settings = Settings(run_dir=str(folder), wedge_sentinel=str(folder / "wedged"))
    page = asyncio.run(MetricsPage(Metrics(), [ServiceState(settings)]).text())
    return list(_parsed(page.decode()))


def _parsed(page: str) -> Iterator[Shown]:
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if value}
            yield Shown(sample.name, family.type, labels)
