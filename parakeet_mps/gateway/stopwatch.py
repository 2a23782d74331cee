"""A time that is measured bit by bit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Adds up the times that it runs, in `seconds`; `began_ns` and `ended_ns` (since 1970) are the outer ends."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.began_ns = self.ended_ns = time.time_ns()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run for the length of the block."""
        began_at = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began_at
            self.ended_ns = time.time_ns()
