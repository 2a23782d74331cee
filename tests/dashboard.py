"""The shipped Grafana dashboard, as its reader: panels and queries, with Grafana's variables filled in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from processes import ROOT

FILE = ROOT / "deploy" / "grafana" / "dashboard.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text())

VARIABLES = {"$__rate_interval": "5m", "$__range": "5m", "$instance": ".*"}


class Query(NamedTuple):
    """One line of a panel."""

    panel: str
    legend: str
    expression: str


def panels() -> list[dict[str, Any]]:
    """Return all panels but the rows."""
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> Iterator[Query]:
    """Yield every query of the dashboard."""
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"]
            for variable, value in VARIABLES.items():
                expression = expression.replace(variable, value)
            yield Query(panel["title"], target["legendFormat"], expression)


def query(panel: str, legend: str) -> str:
    """Return the expression of one line of a panel."""
    (found,) = (item.expression for item in queries() if (item.panel, item.legend) == (panel, legend))
    return found
