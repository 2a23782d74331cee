"""The alert rules, judged by Prometheus' own tool: each fires when it should, and only then."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import yaml

from processes import ROOT

FOLDER = ROOT / "deploy" / "prometheus"
RULES = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
TESTS = yaml.safe_load((FOLDER / "alerts_test.yml").read_text())["tests"]


def alerts() -> list[dict[str, Any]]:
    return [rule for group in RULES for rule in group["rules"]]


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=60)


def test_prometheus_accepts_the_configuration_and_the_rules() -> None:
    for arguments in (("check", "config", "prometheus.yml"), ("check", "rules", "alerts.yml")):
        checked = promtool(*arguments)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_fires_in_its_test_alone() -> None:
    tested = promtool("test", "rules", "alerts_test.yml")
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_alert_has_a_test_that_shows_it_firing_and_one_that_shows_it_silent() -> None:
    told = {" ".join(test["name"].partition(":")[0].split()) for test in TESTS}
    assert told == {f"{rule['alert']} {verb}" for rule in alerts() for verb in ("fires", "is silent")}
    for test in TESTS:
        samples = test["promql_expr_test"][0]["exp_samples"]
        fired = [re.findall(r'"(.*)"', sample["labels"])[0] for sample in samples]
        assert fired == ([test["name"].split()[0]] if " fires:" in test["name"] else [])


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    for rule in alerts():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert len(rule["annotations"]["runbook"].split()) > 12
