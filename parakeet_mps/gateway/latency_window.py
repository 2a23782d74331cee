"""Quantiles of the latencies of the last five minutes, over all worker processes.

Each worker counts in a memory-mapped file of its own: one row for each slot of time, one column for each bucket of
latencies. Rows of the same slot add up, so merging the workers loses nothing, and what a worker counted stays when it
is killed. Buckets grow by a constant factor, as in DDSketch, so a quantile is within `RELATIVE_ERROR` of a latency that
was really measured. https://arxiv.org/abs/1908.10693
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parakeet_mps.gateway.metrics_room import take_room
from parakeet_mps.gateway.worker_files import writer_is_alive

LOG = logging.getLogger(__name__)

RELATIVE_ERROR = 0.01

SLOT_S = 10
SLOTS = 31
"""Thirty slots that are over, and the current one: the window is 300 to 310 s long."""

LEAST_S = 0.001
MOST_S = 86_400.0
"""Latencies outside are counted as these."""

_GROWTH = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_BUCKETS = math.ceil(math.log(MOST_S / LEAST_S, _GROWTH)) + 1
_SHAPE = (SLOTS, 1 + _BUCKETS)  # the first column holds the number of the row's slot

Table = NDArray[np.uint32]


class LatencyWindow:
    """One worker's counts, in `folder` beside those of the other workers; without one they are its own.

    `clock` is the same for all processes: seconds since the machine was started.
    """

    def __init__(self, folder: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        own = folder and folder / f"latencies_{os.getpid()}.table"
        self._table: Table = _open(own) if own else np.zeros(_SHAPE, np.uint32)

    def observe(self, seconds: float) -> None:
        """Count one latency."""
        slot = self._slot()
        row = self._table[slot % SLOTS]
        if row[0] != slot:
            row[:] = 0
            row[0] = slot
        row[1 + _bucket(seconds)] += 1

    def quantiles(self, levels: Iterable[float]) -> dict[float, float]:
        """Return the latency (s) that each level's share of requests did not exceed; NaN when there were none."""
        counts = sum((self._recent(table) for table in self._tables()), np.zeros(_BUCKETS, np.int64))
        total = counts.cumsum()
        return {level: _latency(total, level) for level in levels}

    def _tables(self) -> Iterator[Table]:
        if self._folder is None:
            yield self._table
            return
        for file in self._folder.glob("latencies_*.table"):
            try:
                table = np.fromfile(file, np.uint32)
            except FileNotFoundError:  # another worker has just forgotten it
                continue
            if table.size == math.prod(_SHAPE):  # else its worker is just making it
                yield table.reshape(_SHAPE)
                self._forget(file, table.reshape(_SHAPE))

    def _forget(self, file: Path, table: Table) -> None:
        """Remove what a dead worker left, once it is too old to count."""
        newest = table[:, 0].max()
        if newest <= self._slot() - SLOTS and not writer_is_alive(file):
            file.unlink(missing_ok=True)

    def _recent(self, table: Table) -> NDArray[np.int64]:
        recent: NDArray[np.int64] = table[table[:, 0] > self._slot() - SLOTS, 1:].sum(axis=0, dtype=np.int64)
        return recent

    def _slot(self) -> int:
        return SLOTS + int(self._clock()) // SLOT_S  # never zero, which an unused row has


def _open(file: Path) -> Table:
    """Map the file; one that an earlier process with this id left is counted on. Without room nothing is shared."""
    empty = np.zeros(_SHAPE, np.uint32)
    try:
        take_room(file, empty.nbytes)
    except OSError as error:
        LOG.error("the latencies of this worker will be missing in /metrics: %s: %s", file, error.strerror)
        return empty
    return np.memmap(file, np.uint32, "r+", shape=_SHAPE)


def _bucket(seconds: float) -> int:
    return math.ceil(math.log(min(max(seconds, LEAST_S), MOST_S) / LEAST_S, _GROWTH))


def _latency(total: NDArray[np.int64], level: float) -> float:
    if not total[-1]:
        return math.nan
    bucket = int(np.searchsorted(total, max(1, math.ceil(level * total[-1]))))
    return LEAST_S * _GROWTH**bucket * 2 / (1 + _GROWTH)  # as far from one end of the bucket as from the other
