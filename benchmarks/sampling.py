"""What is looked at again and again while a measurement runs, and the GPU's memory, which is one such thing."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def sampled(read: Callable[[], T], period_s: float) -> Iterator[list[T]]:
    """Yield a list that holds what `read` returns now, and grows by what it returns every `period_s`."""
    seen = [read()]
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(period_s):
            seen.append(read())

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def gpu_memory_mib() -> float | None:
    """Return the GPU's memory in use; None without a GPU."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0])
    except (OSError, subprocess.CalledProcessError):
        return None
