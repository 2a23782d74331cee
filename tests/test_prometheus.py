"""A real Prometheus scrapes the running service: what it answers to the dashboard is what was really asked of it."""

from __future__ import annotations

import math
import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

import httpx
import pytest

from conftest import RunningService
from dashboard import queries, query
from gateways import PATH, wait_until
from prometheus_server import INTERVAL_S, Prometheus, prometheus
from recordings import duration_s, speech

ANSWERED, BAD, UNKNOWN = 24, 6, 3
WINDOW_S = 300
EXTRAPOLATED = 30
"""Prometheus extrapolates a rate by up to one interval, which must be little of what it looks at."""
TEXTS = (
    "good morning",
    "the patient has a cough and a mild fever since tuesday",
    "i have had a dry cough for three weeks the pain in my chest is worse at night and i cannot sleep",
)
COUNT = 'sum(parakeet_transcriptions_total{outcome="answered"})'

ELSEWHERE = ("nv_gpu_", "parakeet_mps_up", " > 0")
"""Marks of queries that have no answer here: there is no GPU, and nothing to be refused for most reasons."""


@dataclass
class Load:
    """What was asked of the service while Prometheus looked on, and when the last of it was scraped."""

    audio_s: float
    latencies_s: list[float]
    scraped_at: float
    prometheus: Prometheus

    def rate(self, panel: str, legend: str) -> float:
        """Return what a rate of the dashboard adds up to over the window."""
        return self.prometheus.value(query(panel, legend), self.scraped_at) * WINDOW_S


def ask(client: httpx.Client, file: bytes, model: str = "parakeet-tdt") -> tuple[int, float]:
    began = time.perf_counter()
    status = client.post(PATH, files={"file": ("x.wav", file)}, data={"model": model}).status_code
    return status, time.perf_counter() - began


@pytest.fixture(scope="module")
def load(service: RunningService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Load]:
    files = [speech(TEXTS[number % len(TEXTS)]) for number in range(ANSWERED)]
    with (
        prometheus(tmp_path_factory.mktemp("prometheus"), service.url.removeprefix("http://")) as server,
        httpx.Client(base_url=service.url, timeout=60) as client,
    ):
        wait_until(lambda: bool(server.query(COUNT)))
        before, start = server.value(COUNT), time.time()
        with ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda file: ask(client, file), files))
            refused = [*pool.map(lambda _: ask(client, b"Dear doctor"), range(BAD))]
            unknown = [*pool.map(lambda _: ask(client, files[0], "gpt-x"), range(UNKNOWN))]
        assert [status for status, _ in answers + refused + unknown] == [200] * ANSWERED + [400] * BAD + [404] * UNKNOWN
        wait_until(lambda: server.value(COUNT) == before + ANSWERED and time.time() > start + EXTRAPOLATED * INTERVAL_S)
        scraped_at = server.scraped_at("parakeet_triton_up")
        yield Load(sum(map(duration_s, files)), [seconds for _, seconds in answers], scraped_at, server)


def test_every_query_of_the_dashboard_is_answered(load: Load) -> None:
    empty = [item for item in queries() if not load.prometheus.query(item.expression)]
    unexpected = [item for item in empty if not any(mark in item.expression for mark in ELSEWHERE)]
    assert not unexpected


def test_counts_match_the_load(load: Load) -> None:
    assert load.rate("Answered", "answered") == pytest.approx(ANSWERED, rel=0.05)
    assert load.rate("Audio", "RTFx") == pytest.approx(load.audio_s, rel=0.05)
    outcomes = load.prometheus.query(query("Outcomes", "{{outcome}}"), load.scraped_at)
    counted = {sample.labels["outcome"]: sample.value * WINDOW_S for sample in outcomes}
    assert counted == pytest.approx({"answered": ANSWERED, "refused": BAD + UNKNOWN, "cancelled": 0}, rel=0.05)
    reasons = load.prometheus.query(query("Refusals by reason", "{{reason}}"), load.scraped_at)
    counted = {sample.labels["reason"]: sample.value * WINDOW_S for sample in reasons}
    assert counted == pytest.approx({"invalid_audio": BAD, "model_not_found": UNKNOWN}, rel=0.05)


def test_times_match_what_the_clients_measured(load: Load) -> None:
    mean = load.prometheus.value(
        "rate(parakeet_request_latency_seconds_sum[5m]) / rate(parakeet_request_latency_seconds_count[5m])",
        load.scraped_at,
    )
    measured = sum(load.latencies_s) / len(load.latencies_s)
    assert mean == pytest.approx(measured, rel=0.2)  # each side does some work that the other does not see
    recordings = load.prometheus.value(query("Recordings", "mean"), load.scraped_at)
    assert recordings == pytest.approx(load.audio_s / ANSWERED, rel=0.05)


def test_latency_quantiles_are_those_of_the_services_own_log(load: Load, service: RunningService) -> None:
    answers = load.prometheus.query(query("Latency", "p {{quantile}}"), load.scraped_at)
    told = {float(sample.labels["quantile"]): sample.value for sample in answers}
    logged = list(latencies(service.log.read_text(), load.scraped_at))
    assert set(told) == {0.5, 0.9, 0.95, 0.99}
    assert len(logged) == load.prometheus.value("parakeet_request_latency_seconds_count", load.scraped_at)
    for level, seconds in told.items():
        # The oldest slot of the window may be in or out.
        bounds = [quantile([s for age, s in logged if age <= oldest], level) for oldest in (WINDOW_S, WINDOW_S + 11)]
        assert min(bounds) * 0.95 <= seconds <= max(bounds) * 1.05


def latencies(log: str, until: float) -> Iterator[tuple[float, float]]:
    """Yield age and latency (s) of every answered transcription that the log tells of."""
    line = rf"^(\S+ \S+),(\d+) INFO \S+ request \S+: POST {PATH} 200 in (\S+) s$"
    for moment, milliseconds, seconds in re.findall(line, log, re.M):
        logged_at = datetime.fromisoformat(moment).timestamp() + int(milliseconds) / 1000
        if logged_at <= until:
            yield until - logged_at, float(seconds)


def quantile(values: list[float], level: float) -> float:
    return sorted(values)[math.ceil(level * len(values)) - 1]


def test_triton_and_its_recognisers_agree_with_the_gateway(load: Load) -> None:
    at = load.scraped_at
    pieces = load.prometheus.value('sum(increase(parakeet_stage_seconds_count{stage="inference"}[5m]))', at)
    probes = load.prometheus.value('sum(increase(parakeet_requests_total{endpoint="/health"}[5m]))', at)
    inferred = load.prometheus.value("sum(increase(nv_inference_count[5m]))", at)
    batches = load.prometheus.query("sum by (size) (increase(parakeet_batches_total[5m]))", at)
    assert pieces * 0.95 <= inferred <= (pieces + probes) * 1.05  # a probe of /health may send a canary
    assert sum(int(sample.labels["size"]) * sample.value for sample in batches) == pytest.approx(inferred, rel=0.05)
    mean = load.prometheus.value(query("Batch size", "mean"), at)
    executed = load.prometheus.value("sum(increase(nv_inference_exec_count[5m]))", at)
    assert mean * executed == pytest.approx(inferred, rel=0.05)


def test_no_alert_fires_and_every_rule_can_be_evaluated(load: Load) -> None:
    rules = load.prometheus.rules()
    assert {rule["health"] for rule in rules} == {"ok"}
    assert not [rule["name"] for rule in rules if rule["state"] == "firing"]


def test_the_page_keeps_to_the_conventions_of_prometheus(service: RunningService) -> None:
    page = httpx.get(f"{service.url}/metrics").text
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True)
    complaints = (checked.stdout + checked.stderr).splitlines()
    assert not [line for line in complaints if not line.startswith("nv_")]  # Triton's own names are as they are
    assert len(page) < 200_000


def test_metrics_name_no_file_and_no_word(service: RunningService) -> None:
    page = httpx.get(f"{service.url}/metrics").text
    for private in ("x.wav", "cough", "gpt-x", "Dear"):
        assert private not in page
