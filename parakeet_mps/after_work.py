"""What is left to do with a batch once the device is done with it, done while the device computes the next one."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

LOG = logging.getLogger(__name__)

Job = Callable[[], None]


class AfterWork:
    """Does jobs one after another in a thread of its own, each inside a context that `busy` makes.

    One job may wait while another is done: who brings more waits, so that batches do not pile up.
    """

    def __init__(self, busy: Callable[[], AbstractContextManager[object]]) -> None:
        self._busy = busy
        self._jobs: queue.Queue[Job | None] = queue.Queue(1)
        self._thread = threading.Thread(target=self._run, name="after-work", daemon=True)
        self._thread.start()

    def put(self, job: Job) -> None:
        """Have `job` done. Returns when there is room for it to wait."""
        self._jobs.put(job)

    def stop(self) -> None:
        """Return when all jobs are done."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while job := self._jobs.get():
            with self._busy():
                try:
                    job()
                except Exception:  # the next batch's job must still be done
                    LOG.exception("what was left of a batch failed")
