"""The picture of a load table: throughput and latency over concurrency."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # draws without a screen

from matplotlib import pyplot

from benchmarks.load_table import Level


def draw(levels: Sequence[Level], sla_ms: float, title: str, path: Path) -> None:
    """Save a PNG (or what the suffix of `path` says)."""
    concurrency = [level.concurrency for level in levels]
    figure, (rates, times) = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    rates.plot(concurrency, [level.average.rps for level in levels], marker="o")
    low = [min(run.rps for run in level.runs) for level in levels]
    high = [max(run.rps for run in level.runs) for level in levels]
    rates.fill_between(concurrency, low, high, alpha=0.2, label="lowest to highest run")
    rates.set(ylabel="requests / s", ylim=(0, None))
    for name in ("p50", "p90", "p99"):
        times.plot(concurrency, [getattr(level.average, name) for level in levels], marker="o", label=name)
    times.axhline(sla_ms, color="gray", linestyle="--", label=f"SLA {sla_ms:g} ms")
    times.set(ylabel="latency (ms)", yscale="log")
    for axes in (rates, times):
        axes.set_xscale("log", base=2)
        axes.set_xticks(concurrency, [str(value) for value in concurrency])
        axes.set_xlabel("concurrency")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
