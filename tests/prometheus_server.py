"""A real Prometheus that scrapes what a test names, often, by the configuration that ships."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import yaml

from gateways import wait_until
from processes import ROOT, free_port

SHIPPED = ROOT / "deploy" / "prometheus"
INTERVAL_S = 0.2


class Sample(NamedTuple):
    """One element of an instant vector."""

    labels: dict[str, str]
    value: float


class Prometheus:
    """Answers queries."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str, at: float | None = None) -> list[Sample]:
        """Return an instant vector. Raises `AssertionError` with Prometheus' word on a query that it refuses."""
        answer = self._get("/api/v1/query", {"query": expression, "time": str(at or time.time())})
        assert answer["resultType"] == "vector"
        return [Sample(item["metric"], float(item["value"][1])) for item in answer["result"]]

    def value(self, expression: str, at: float | None = None) -> float:
        """Return the only value of an instant vector."""
        (sample,) = self.query(expression, at)
        return sample.value

    def scraped_at(self, series: str) -> float:
        """Return when the newest sample of a series was taken."""
        return self.value(f"timestamp({series})")

    def rules(self) -> list[dict[str, Any]]:
        """Return the alert rules with their state and health."""
        return [rule for group in self._get("/api/v1/rules", {})["groups"] for rule in group["rules"]]

    def answers(self) -> bool:
        """Say whether it is there."""
        try:
            return httpx.get(f"{self.url}/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def _get(self, path: str, parameters: dict[str, str]) -> Any:
        answer = httpx.get(f"{self.url}{path}", params=parameters, timeout=30).json()
        assert answer["status"] == "success", answer
        return answer["data"]


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Prometheus]:
    """Run the shipped configuration and rules against one `host:port`."""
    settings = yaml.safe_load((SHIPPED / "prometheus.yml").read_text())
    settings["global"] = dict.fromkeys(("scrape_interval", "evaluation_interval"), f"{INTERVAL_S * 1000:.0f}ms")
    settings["rule_files"] = [str(SHIPPED / name) for name in settings["rule_files"]]
    settings["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
            "--log.level=warn",
        ]
    )
    try:
        server = Prometheus(f"http://{address}")
        wait_until(server.answers)
        yield server
    finally:
        process.terminate()
        process.wait(30)
