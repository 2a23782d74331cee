"""What a recogniser tells Triton of itself; a written stand-in of Triton's custom metrics takes it down."""

from __future__ import annotations

import json
from typing import Any

from parakeet_mps.instance_metrics import InstanceMetrics

PARAMETERS = {"device": {"string_value": "cpu"}, "active_thread_percentage": {"string_value": "100"}}
CONFIG = json.dumps({"max_batch_size": 4, "parameters": PARAMETERS})


class Page:
    """Stands for `pb_utils.MetricFamily`: families and metrics of the same name and labels are the same."""

    COUNTER, GAUGE = "counter", "gauge"

    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def __call__(self, name: str, description: str, kind: str) -> Any:
        assert name.endswith("_total") == (kind == self.COUNTER)
        return Family(self, name)


class Family:
    def __init__(self, page: Page, name: str) -> None:
        self._page, self._name = page, name

    def Metric(self, labels: dict[str, str]) -> Any:  # noqa: N802  Triton's name
        return Metric(self._page, f"{self._name}{sorted(labels.items())}")


class Metric:
    def __init__(self, page: Page, key: str) -> None:
        self._values, self._key = page.values, key

    def increment(self, value: float) -> None:
        assert value >= 0
        self._values[self._key] = self._values.get(self._key, 0.0) + value

    def set(self, value: float) -> None:
        self._values[self._key] = value


def args(instance: str) -> dict[str, str]:
    return {"model_instance_name": instance, "model_config": CONFIG}


def test_two_recognisers_count_batches_together_and_their_work_apart() -> None:
    page = Page()
    first, second = (InstanceMetrics(page, args(name), dict) for name in ("asr_0_0", "asr_0_1"))
    for metrics, size in ((first, 4), (second, 4), (second, 1)):
        metrics.tell_batch(size, 0.25)
    assert page.values["parakeet_batches_total[('size', '4')]"] == 2
    assert page.values["parakeet_batches_total[('size', '1')]"] == 1
    assert page.values["parakeet_batches_total[('size', '2')]"] == 0
    assert page.values["parakeet_instance_busy_seconds_total[('model_instance', 'asr_0_0')]"] == 0.25
    assert page.values["parakeet_instance_busy_seconds_total[('model_instance', 'asr_0_1')]"] == 0.5
    memory = "parakeet_instance_memory_bytes[('memory', 'host'), ('model_instance', 'asr_0_1')]"
    assert page.values[memory] > 10e6
    assert page.values["parakeet_instance_sm_share_ratio[('model_instance', 'asr_0_0')]"] == 0


def test_counts_of_the_engine_are_told_from_the_start_and_grow_as_they_do() -> None:
    page, counts = Page(), {"graph_misses": 0.0}
    metrics = InstanceMetrics(page, args("asr_0_0"), lambda: counts)
    key = "parakeet_engine_graph_misses_total[('model_instance', 'asr_0_0')]"
    assert page.values[key] == 0
    for misses in (2.0, 2.0, 5.0):
        counts["graph_misses"] = misses
        metrics.tell_batch(1, 0.0)
        assert page.values[key] == misses
