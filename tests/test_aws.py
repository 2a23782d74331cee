"""deploy/aws fits CloudWatch's forms, the metrics and log lines of the gateway, and its own parts each other."""

from __future__ import annotations

import copy
import itertools
import json
import logging
import re
import shlex
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cloudwatch import AGENT, DASHBOARD, METRIC_OPTIONS
from metrics_names import Shown, shown_samples
from parakeet_mps.gateway.account import Outcome
from parakeet_mps.gateway.endpoints import METRICS
from parakeet_mps.gateway.metrics_page import QUANTILES
from parakeet_mps.logs import JsonFormatter
from parakeet_mps.settings import Settings, describe
from parakeet_mps.triton_server import EXIT_TIMEOUT_S

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "deploy" / "aws"
AGENT_CONFIG = json.loads((FOLDER / "cloudwatch-agent.json").read_text())
PROMETHEUS = AGENT_CONFIG["logs"]["metrics_collected"]["prometheus"]
EMF = PROMETHEUS["emf_processor"]
(LOG_FILE,) = AGENT_CONFIG["logs"]["logs_collected"]["files"]["collect_list"]
BOARD = json.loads((FOLDER / "dashboard.json").read_text())
(SCRAPE,) = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())["scrape_configs"]
UNIT = (FOLDER / "parakeet-mps.service").read_text()
TAKEN = {"counter", "gauge", "summary"}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[Shown]:
    return shown_samples(tmp_path_factory.mktemp("run"))


def declared(name: str) -> list[list[str]]:
    """The sets of dimensions with which a metric goes to CloudWatch."""
    return [
        dimensions
        for declaration in EMF["metric_declaration"]
        if any(re.search(selector, name) for selector in declaration["metric_selectors"])
        for dimensions in declaration["dimensions"]
    ]


def metrics_on_the_board() -> list[tuple[str, str, dict[str, str]]]:
    """Namespace, name and dimensions."""
    rows = [row for widget in BOARD["widgets"] for row in widget["properties"].get("metrics", [])]
    plain = [[part for part in row if isinstance(part, str)] for row in rows]
    return [(row[0], row[1], dict(zip(row[2::2], row[3::2], strict=True))) for row in plain if row]


def test_the_agents_configuration_has_its_form() -> None:
    jsonschema.validate(AGENT_CONFIG, AGENT)


@pytest.mark.parametrize("path", [("logs",), ("logs", "metrics_collected", "prometheus", "emf_processor")])
def test_a_misspelt_key_would_be_found(path: tuple[str, ...]) -> None:
    config: Any = copy.deepcopy(AGENT_CONFIG)
    part = config
    for key in path:
        part = part[key]
    part["metric_declarations"] = []
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(config, AGENT)


def test_the_scrape_configuration_is_prometheus_own() -> None:
    checked = subprocess.run(
        ["promtool", "check", "config", FOLDER / "prometheus.yaml"], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert PROMETHEUS["prometheus_config_path"].endswith("/prometheus.yaml")


def test_the_gateways_page_is_scraped_as_the_job_that_the_declarations_match() -> None:
    assert SCRAPE["static_configs"] == [{"targets": [f"localhost:{Settings().port}"]}]
    assert SCRAPE.get("metrics_path", "/metrics") == METRICS
    for declaration in EMF["metric_declaration"]:
        assert declaration["source_labels"] == ["job"]
        assert re.search(declaration["label_matcher"], SCRAPE["job_name"])


def test_what_is_scraped_is_what_is_declared_and_can_be_taken(shown: list[Shown]) -> None:
    (keep,) = SCRAPE["metric_relabel_configs"]
    kept = {sample.name for sample in shown if re.fullmatch(keep["regex"], sample.name)}
    assert kept == {sample.name for sample in shown if declared(sample.name)}
    assert {sample.kind for sample in shown if sample.name in kept} <= TAKEN


def test_every_selector_finds_a_metric_and_every_dimension_its_label(shown: list[Shown]) -> None:
    for declaration in EMF["metric_declaration"]:
        for selector in declaration["metric_selectors"]:
            found = [sample for sample in shown if re.search(selector, sample.name)]
            assert found, selector
            for dimensions in declaration["dimensions"]:
                assert any(set(dimensions) <= {"job", *sample.labels} for sample in found), (selector, dimensions)


def test_every_declared_metric_has_a_unit(shown: list[Shown]) -> None:
    assert EMF["metric_unit"].keys() == {sample.name for sample in shown if declared(sample.name)}
    assert set(EMF["metric_unit"].values()) <= {"Seconds", "Count"}


def test_the_dashboard_has_its_form() -> None:
    jsonschema.validate(BOARD, DASHBOARD)
    rows = [row for widget in BOARD["widgets"] for row in widget["properties"].get("metrics", [])]
    for options in (part for row in rows for part in row if isinstance(part, dict)):
        jsonschema.validate(options, METRIC_OPTIONS)


def test_widgets_fill_a_grid_of_24_columns_without_overlap() -> None:
    cells = [
        (widget["x"] + x, widget["y"] + y)
        for widget in BOARD["widgets"]
        for x in range(widget["width"])
        for y in range(widget["height"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23


def test_every_metric_on_the_dashboard_reaches_cloudwatch_with_these_dimensions(shown: list[Shown]) -> None:
    names = {sample.name for sample in shown}
    for namespace, name, dimensions in metrics_on_the_board():
        assert namespace == EMF["metric_namespace"]
        assert name in names
        assert sorted(dimensions) in [sorted(labels) for labels in declared(name)]
        assert dimensions["job"] == SCRAPE["job_name"]
        assert dimensions.get("outcome", "answered") in set(Outcome)


def test_the_dashboard_shows_every_quantile(shown: list[Shown]) -> None:
    told = {sample.labels["quantile"] for sample in shown if "quantile" in sample.labels}
    on_the_board = {dimensions["quantile"] for _, _, dimensions in metrics_on_the_board() if "quantile" in dimensions}
    assert on_the_board == told == {str(level) for level in QUANTILES} == {"0.5", "0.9", "0.95", "0.99"}


def test_the_search_for_reasons_names_a_declared_set_of_dimensions() -> None:
    (search,) = re.findall(
        r"SEARCH\('\{(\w+),([\w,]+)\} MetricName=\\?\"(\w+)\\?\"", json.dumps(BOARD).replace("\\\\", "\\")
    )
    namespace, dimensions, name = search
    assert namespace == EMF["metric_namespace"]
    assert dimensions.split(",") in declared(name)


def log_line(fields: dict[str, Any]) -> dict[str, Any]:
    record = logging.LogRecord("gateway", logging.WARNING, "", 0, "message", (), None)
    record.__dict__.update(fields)
    return dict(json.loads(JsonFormatter().format(record)))


def test_the_time_of_a_log_line_is_found() -> None:
    line = log_line({"created": 1_800_000_000.25})
    read = datetime.strptime(line["time"].partition("+")[0], LOG_FILE["timestamp_format"]).replace(tzinfo=UTC)
    assert read.timestamp() == 1_800_000_000.25
    assert LOG_FILE["timezone"] == "UTC"


def test_the_log_widget_asks_for_fields_that_lines_have() -> None:
    (query,) = [widget["properties"]["query"] for widget in BOARD["widgets"] if widget["type"] == "log"]
    assert f"SOURCE '{LOG_FILE['log_group_name']}'" in query
    (fields,) = re.findall(r"fields ([^|]+)", query)
    asked = {name.strip() for name in fields.split(",")}
    assert {name for name in asked if not name.startswith("@")} <= log_line({}).keys()
    (levels,) = re.findall(r"level in \[([^]]+)\]", query)
    assert "warning" in levels
    assert log_line({})["level"] == "warning"


def docker_run() -> list[str]:
    (command,) = re.findall(r"^ExecStart=(.*?[^\\])$", UNIT, re.MULTILINE | re.DOTALL)
    return shlex.split(command.replace("\\\n", " "))


def option(words: list[str], name: str) -> list[str]:
    return [value for word, value in itertools.pairwise(words) if word == name]


def test_the_unit_runs_the_image_with_settings_that_exist() -> None:
    environ = dict(word.split("=", 1) for word in option(docker_run(), "--env"))
    assert environ.keys() <= {name for name, _, _ in describe()}
    settings = Settings.from_env(environ)
    assert settings.log_format == "json"
    assert option(docker_run(), "--publish") == [f"{settings.port}:{settings.port}"]


def test_the_unit_stops_docker_after_the_service_and_systemd_after_docker() -> None:
    stop_timeout_s = Settings.from_env(
        dict(word.split("=", 1) for word in option(docker_run(), "--env"))
    ).stop_timeout_s
    (docker_s,) = map(int, re.findall(r"docker stop --time (\d+)", UNIT))
    (systemd_s,) = map(int, re.findall(r"TimeoutStopSec=(\d+)", UNIT))
    assert stop_timeout_s + 5 + EXIT_TIMEOUT_S + 10 + 15 < docker_s < systemd_s


def test_the_unit_keeps_models_on_the_volume_and_logs_where_the_agent_reads() -> None:
    (volume,) = option(docker_run(), "--volume")
    mounted, _, cache = volume.partition(":")
    assert f"RequiresMountsFor={mounted}\n" in UNIT
    assert f"MODEL_CACHE={cache} " in (ROOT / "Dockerfile.single").read_text().replace("\n", " ")
    assert f"StandardError=append:{LOG_FILE['file_path']}\n" in UNIT


def test_commands_in_the_guide_are_shell() -> None:
    commands = re.findall(r"^\$ (.*)$", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert len(commands) >= 6
    for command in commands:
        assert subprocess.run(["bash", "-n", "-c", command], capture_output=True).returncode == 0, command


def test_the_policy_allows_what_a_download_needs() -> None:
    policy = json.loads((FOLDER / "model-reader-policy.json").read_text())
    assert {statement["Action"] for statement in policy["Statement"]} == {"s3:GetObject", "s3:ListBucket"}
