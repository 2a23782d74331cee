"""The folder in which all workers keep their counts, one file for each worker and kind."""

from __future__ import annotations

import os
from pathlib import Path

from prometheus_client.multiprocess import mark_process_dead


def writer_is_alive(file: Path) -> bool:
    """Say whether the worker still runs whose id ends the file's name."""
    try:
        os.kill(int(file.stem.rpartition("_")[2]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # its number is another user's now: whose it was cannot be told
    return True


def forget_dead_gauges(folder: Path) -> None:
    """Drop the gauges of workers that died: their requests are no longer in flight. Their counters stay."""
    for file in folder.glob("gauge_live*_*.db"):
        if not writer_is_alive(file):
            mark_process_dead(int(file.stem.rpartition("_")[2]), str(folder))  # type: ignore[no-untyped-call]
