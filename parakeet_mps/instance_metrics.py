"""What one recogniser tells Triton's metrics page: its batches, its time at work, its memory and its engine's counters.

Triton carries counters and gauges only, each by name and labels; what several recognisers count under the same labels
adds up. `model_instance` is Triton's name of the recogniser, such as `parakeet_asr_0_1`.
https://github.com/triton-inference-server/python_backend#custom-metrics
"""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from parakeet_mps.engine.counters import COUNTERS

_INSTANCE = "model_instance"


class InstanceMetrics:
    """The metrics of this process. `family` is `pb_utils.MetricFamily`, `args` is what Triton gives `initialize`, and
    `engine` returns the engine's counts since it was loaded, by their names.
    """

    def __init__(self, family: Any, args: Mapping[str, str], engine: Callable[[], Mapping[str, float]]) -> None:
        config = json.loads(args["model_config"])
        self._family = family
        self._own = {_INSTANCE: args["model_instance_name"]}
        self._on_gpu = config["parameters"]["device"]["string_value"] == "cuda"
        self._engine = engine
        self._families: dict[str, Any] = {}
        self._metrics: dict[tuple[str, str], Any] = {}
        self._told: dict[str, float] = {}
        self._describe(int(config["parameters"]["active_thread_percentage"]["string_value"]) / 100)
        for size in range(1, config["max_batch_size"] + 1):  # a series that begins above zero hides its first events
            self._batches(size).increment(0)

    def tell_batch(self, size: int, busy_s: float) -> None:
        """Count a batch of `size` utterances that the recogniser was at work on for `busy_s`.

        Each of about ten values goes to the server and is waited for: no answer should wait for that.
        """
        self._batches(size).increment(1)
        self._tell_work(busy_s)

    def _describe(self, sm_share: float) -> None:
        share = "Part of the GPU's multiprocessors that a recogniser may use at a time, by its plan."
        self._gauge("parakeet_instance_sm_share_ratio", share, **self._own).set(sm_share if self._on_gpu else 0.0)
        if self._on_gpu:
            count = torch.cuda.get_device_properties(0).multi_processor_count
            seen = "Multiprocessors that a recogniser sees: all of them when MPS is not in effect."
            self._gauge("parakeet_instance_multiprocessors", seen, **self._own).set(count)
        self._tell_work(0.0)

    def _tell_work(self, busy_s: float) -> None:
        busy = self._counter("parakeet_instance_busy_seconds_total", "Time a recogniser was at work.", **self._own)
        busy.increment(busy_s)
        for name, value in self._engine().items():
            counter = self._counter(f"parakeet_engine_{name}_total", COUNTERS[name], **self._own)
            counter.increment(value - self._told.get(name, 0.0))
            self._told[name] = value
        self._tell_memory()

    def _tell_memory(self) -> None:
        text = "Memory of a recogniser: of its process (host), and what PyTorch holds of the GPU (device)."
        sizes = {"host": _resident_bytes(), "device": torch.cuda.memory_reserved(0) if self._on_gpu else 0}
        for memory, size in sizes.items():
            self._gauge("parakeet_instance_memory_bytes", text, memory=memory, **self._own).set(float(size))

    def _batches(self, size: int) -> Any:
        return self._counter("parakeet_batches_total", "Batches by their size.", size=str(size))

    def _counter(self, name: str, text: str, **labels: str) -> Any:
        return self._metric(name, text, self._family.COUNTER, labels)

    def _gauge(self, name: str, text: str, **labels: str) -> Any:
        return self._metric(name, text, self._family.GAUGE, labels)

    def _metric(self, name: str, text: str, kind: Any, labels: dict[str, str]) -> Any:
        key = (name, repr(labels))
        if key not in self._metrics:
            if name not in self._families:
                self._families[name] = self._family(name=name, description=text, kind=kind)
            self._metrics[key] = self._families[name].Metric(labels=labels)
        return self._metrics[key]


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
