"""The dashboard's form: what Grafana needs to show it, and nothing that only one Grafana has."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from dashboard import DASHBOARD, panels, queries


def test_it_can_be_imported_into_any_grafana() -> None:
    assert DASHBOARD["uid"]
    assert DASHBOARD["schemaVersion"] >= 36
    assert "id" not in DASHBOARD
    (datasource,) = (item for item in DASHBOARD["templating"]["list"] if item["type"] == "datasource")
    chosen = {"type": datasource["query"], "uid": f"${{{datasource['name']}}}"}
    for panel in panels():
        assert panel["datasource"] == chosen
        assert all(target["datasource"] == chosen for target in panel["targets"])


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    everything = DASHBOARD["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    taken: set[tuple[int, int]] = set()
    for panel in everything:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_every_panel_says_what_it_shows_in_which_unit(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    references = [target["refId"] for target in panel["targets"]]
    assert all(first < second for first, second in pairwise(references))
    assert all(target["legendFormat"] for target in panel["targets"])


def test_variables_are_those_that_it_defines_or_grafana_does() -> None:
    own = {item["name"] for item in DASHBOARD["templating"]["list"]}
    used = {
        name for panel in panels() for target in panel["targets"] for name in re.findall(r"\$(\w+)", target["expr"])
    }
    assert used <= own | {"__rate_interval", "__range"}
    assert all("$" not in item.expression for item in queries())


def test_panels_are_called_differently_within_their_row() -> None:
    titles: list[set[str]] = []
    for panel in DASHBOARD["panels"]:
        if panel["type"] == "row":
            titles.append(set())
        assert panel["title"] not in titles[-1]
        titles[-1].add(panel["title"])
