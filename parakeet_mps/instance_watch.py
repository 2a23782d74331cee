"""The watch over the recognisers' processes, which Triton neither restarts nor reports: dead, stopped, stuck or broken.

Triton's own health stays good when one of its Python stubs dies or hangs, and the dead instance goes on getting its
share of the requests. So each process beats (`heartbeat`), and here somebody listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from parakeet_mps.heartbeat import STACK_SIGNAL, Pulse, read_pulses
from parakeet_mps.process import ServiceFailure
from parakeet_mps.process_state import find_end, is_stopped

LOG = logging.getLogger("supervisor")

POLL_S = 0.2
BEAT_LIMIT_S = {"cuda": 15.0, "cpu": 60.0}
"""A beat comes each second, after a probe that gets 10 s. Later ones mean that the process cannot run Python at all.

Without a GPU nothing is lost in waiting longer, and where others take its cores a process that is well may be silent:
an idle one was for 15 s, on two cores of a virtual machine.
"""

RELEASE_LIMIT_S = 5.0
"""Time that CUDA MPS gets to let go of its clients. Recovery goes on without it: the daemon itself may be broken."""

PAUSE_S = 2.0
"""When this watch itself did not run for so long, the machine or the container was frozen, and the recognisers too."""

_STACK_S = 0.2

_SERVER_END_S = 0.3
"""Time in which the end of the server shows that took a recogniser along."""


class InstanceWatch:
    """Watches `count` recognisers that beat in `folder`, as a supervised service that follows `tritonserver`.

    `execute_limit_s` bounds one batch. `loaded` is called when all have loaded. `release` blocks until CUDA MPS has let
    go of the processes, before those are killed. https://docs.nvidia.com/deploy/mps/index.html#terminating-mps-clients
    `server_runs` says whether `tritonserver` does: when it does not, its own watch has to tell.
    """

    name = "recogniser watch"

    def __init__(
        self,
        folder: Path,
        count: int,
        execute_limit_s: float,
        *,
        beat_limit_s: float = BEAT_LIMIT_S["cuda"],
        loaded: Callable[[], None] = lambda: None,
        release: Callable[[], None] = lambda: None,
        server_runs: Callable[[], bool] = lambda: True,
        poll_s: float = POLL_S,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._folder, self._count = folder, count
        self._execute_limit_s, self._beat_limit_s = execute_limit_s, beat_limit_s
        self._loaded, self._release, self._poll_s, self._pause_s = loaded, release, poll_s, pause_s
        self._server_runs = server_runs
        self._stuck: int | None = None
        self._seen: set[str] = set()

    async def start(self) -> None:
        """Do nothing: Triton starts the recognisers."""

    async def wait_ready(self) -> None:
        """Return when all recognisers are loaded and beat, having logged what each spent its time on."""
        told: set[str] = set()
        while True:
            for pulse in read_pulses(self._folder):
                if pulse.serving and pulse.name not in told:
                    told.add(pulse.name)
                    LOG.info("%s has loaded: %s", pulse.name, pulse.phases)
            if len(told) >= self._count:
                self._loaded()
                return
            await asyncio.sleep(self._poll_s)

    async def wait_failed(self) -> ServiceFailure:
        """Return which recogniser does not serve any more, and why."""
        looked = awake_since = time.monotonic()
        self._seen = set()
        while True:
            now = time.monotonic()
            if now - looked > self._pause_s:
                awake_since = now
            looked = now
            pulses = read_pulses(self._folder)
            for pulse in pulses:
                if why := self._find_fault(pulse, now, awake_since):
                    await self._yield_to_server()
                    if self._still_fails(pulse, awake_since):
                        return ServiceFailure(f"{pulse.name} (process {pulse.pid})", why)
                    LOG.warning("%s (process %d) %s, but is back", pulse.name, pulse.pid, why)
            if gone := self._find_gone(pulses):
                return ServiceFailure(gone, f"cannot be watched: its file in {self._folder} is gone")
            await asyncio.sleep(self._poll_s)

    async def stop(self) -> None:
        """Do nothing: Triton ends the recognisers."""

    async def abort(self) -> None:
        """Have a stuck recogniser log where it is, and CUDA MPS let go of all of them."""
        if self._stuck is not None:
            LOG.error("what the threads of process %d are at follows in its log", self._stuck)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._stuck, STACK_SIGNAL)
            await asyncio.sleep(_STACK_S)
            self._stuck = None
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(self._release), RELEASE_LIMIT_S)

    def log_tail(self) -> str:
        """Return nothing: what the recognisers write is in Triton's log."""
        return ""

    async def _yield_to_server(self) -> None:
        await asyncio.sleep(_SERVER_END_S)
        if not self._server_runs():
            await asyncio.Event().wait()

    def _still_fails(self, pulse: Pulse, awake_since: float) -> bool:
        """Look once more: who was slow only, as where a machine is short of everything, may be back."""
        self._stuck = None
        latest = {one.name: one for one in read_pulses(self._folder)}.get(pulse.name, pulse)
        return self._find_fault(latest, time.monotonic(), awake_since) is not None

    def _find_fault(self, pulse: Pulse, now: float, awake_since: float) -> str | None:
        return self._find_end(pulse) or self._find_wedge(pulse, now, awake_since)

    def _find_gone(self, pulses: Sequence[Pulse]) -> str | None:
        """Return who served and has no pulse any more, as when somebody cleans up where the run folder is."""
        gone = self._seen - {pulse.name for pulse in pulses}
        self._seen |= {pulse.name for pulse in pulses if pulse.serving}
        return min(gone, default=None)

    def _find_end(self, pulse: Pulse) -> str | None:
        if pulse.fault:
            return f"reports {pulse.fault}"
        return find_end(pulse.pid) or ("was stopped by a signal" if is_stopped(pulse.pid) else None)

    def _find_wedge(self, pulse: Pulse, now: float, awake_since: float) -> str | None:
        if pulse.busy_since and now - max(pulse.busy_since, awake_since) > self._execute_limit_s:
            why = f"has been busy with one batch for more than EXECUTE_LIMIT_S={self._execute_limit_s:g} s"
        # While it loads, nothing but the time to become ready is limited.
        elif pulse.serving and now - max(pulse.beat, awake_since) > self._beat_limit_s:
            why = f"gave no sign of life for {self._beat_limit_s:g} s"
        else:
            return None
        self._stuck = pulse.pid
        return why
