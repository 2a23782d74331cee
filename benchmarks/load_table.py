"""What a closed loop measured: a figure per concurrency, and the table of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields

from benchmarks.closed_loop import Answer, percentile

COLUMNS = "| concurrency | RPS | RPM | p50 (ms) | mean (ms) | p90 (ms) | p99 (ms) | errors | SLA met |"


@dataclass(frozen=True)
class Figures:
    """Requests a second, latencies (ms) of the requests that were answered with 200, and how many were not."""

    rps: float
    p50: float
    mean: float
    p90: float
    p99: float
    errors: float

    @classmethod
    def of(cls, answers: Iterable[Answer], begin: float, end: float) -> Figures:
        """Return the figures of the requests that ended between `begin` and `end` (s)."""
        ended = [answer for answer in answers if begin <= answer.answered < end]
        times = [(answer.answered - answer.sent) * 1000 for answer in ended if answer.status == 200]
        errors = len(ended) - len(times)
        if not times:
            return cls(0.0, *[float("nan")] * 4, errors)
        p50, p90, p99 = (percentile(times, percent) for percent in (50, 90, 99))
        return cls(len(times) / (end - begin), p50, statistics.fmean(times), p90, p99, errors)

    @classmethod
    def averaged(cls, runs: Sequence[Figures]) -> Figures:
        """Return each figure's mean over several runs."""
        return cls(*(statistics.fmean(getattr(run, field.name) for run in runs) for field in fields(cls)))

    def meets(self, sla_ms: float) -> bool:
        """Say whether every request was answered, and 99 of 100 within the limit."""
        return self.errors == 0 and self.p99 <= sla_ms


@dataclass(frozen=True)
class Level:
    """One concurrency: its runs, and their average."""

    concurrency: int
    runs: tuple[Figures, ...]

    @property
    def average(self) -> Figures:
        """The figures of the table."""
        return Figures.averaged(self.runs)

    def row(self, sla_ms: float) -> str:
        """Return the row of the table, in Markdown."""
        figures = self.average
        times = " | ".join(f"{value:.0f}" for value in (figures.p50, figures.mean, figures.p90, figures.p99))
        met = "yes" if figures.meets(sla_ms) else "no"
        rates = f"{figures.rps:.2f} | {figures.rps * 60:.0f}"
        return f"| {self.concurrency} | {rates} | {times} | {figures.errors:g} | {met} |"

    def document(self) -> dict[str, object]:
        """Return what JSON keeps of it."""
        return {"concurrency": self.concurrency, "runs": [asdict(run) for run in self.runs]}


def header() -> str:
    """Return the first two lines of the table."""
    return f"{COLUMNS}\n|{'---:|' * (COLUMNS.count('|') - 1)}"
