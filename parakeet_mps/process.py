"""One supervised child process in a session of its own: its output is passed on, and it ends without leftovers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from parakeet_mps.log_lines import Output
from parakeet_mps.process_state import describe_exit, is_stopped

LOG = logging.getLogger("supervisor")

TAIL_BYTES = 8192
TAIL_LINES = 20
POLL_S = 0.1
"""Pause between two looks at a process that starts or ends."""

ALIVE_POLL_S = 5.0
UNRESPONSIVE_AFTER_S = 30.0
"""A process that answered nothing for this long counts as failed; shorter silences are load."""

KILL_LIMIT_S = 10.0
"""Time that SIGKILL may take. A process that waits for a broken device or disk in the kernel does not end at all."""

Check = Callable[[], Awaitable[bool]]


class ServiceFailure(RuntimeError):  # noqa: N818  a failure of a service, not of this program
    """A service ended, never became ready or fell silent; the message says which one and how."""

    def __init__(self, name: str, what: str, tail: str = "") -> None:
        super().__init__(f"{name} {what}")
        self.name, self.what, self.tail = name, what, tail


def with_parent(command: Sequence[str]) -> list[str]:
    """Return a command that runs `command` and gets SIGTERM from the kernel when this process dies, however that dies.

    It ends at once when this process died before the kernel was asked to.
    """
    asked = ["setpriv", "--pdeathsig", "TERM", "--", "sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"', str(os.getpid())]
    return [*asked, *command]


async def yes() -> bool:
    """The check of a process that is ready once it runs."""
    return True


@dataclass
class ChildProcess:
    """A command, the checks that tell whether it is ready and alive, and the time it gets to end by itself (s).

    Standard output and error go to `output` as they come. The child gets SIGTERM if this process dies first. One that
    `idle_until_ready` has nothing in hand until it is ready, and need not end by itself before.
    """

    name: str
    command: Sequence[str]
    environ: Mapping[str, str]
    folder: Path
    ready: Check = yes
    alive: Check = yes
    grace_s: float = 10.0
    prepare: Callable[[], None] = lambda: None
    output: Output = field(default_factory=lambda: sys.stdout.buffer)
    alive_poll_s: float = ALIVE_POLL_S
    unresponsive_after_s: float = UNRESPONSIVE_AFTER_S
    kill_limit_s: float = KILL_LIMIT_S
    idle_until_ready: bool = False

    _was_ready: bool = field(default=False, init=False)
    _process: asyncio.subprocess.Process | None = field(default=None, init=False)
    _pump: asyncio.Task[None] | None = field(default=None, init=False)
    _tail: bytearray = field(default_factory=bytearray, init=False)

    @property
    def pid(self) -> int | None:
        """Process id while it runs, also its process group and session."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if running and self._process else None

    async def start(self) -> None:
        """Start the command. Raises `ServiceFailure` when it cannot be prepared, or there is no such program."""
        self._tail.clear()
        self._was_ready = False
        try:
            self.prepare()
            self._process = await asyncio.create_subprocess_exec(
                *with_parent(self.command),
                env=self.environ,
                cwd=self.folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ServiceFailure(self.name, f"cannot be started: {error}") from error
        self._pump = asyncio.create_task(self._pass_on(self._process))

    async def wait_ready(self) -> None:
        """Return once the ready check holds; that the process ended is for `wait_failed` to tell."""
        while not await self.ready():
            await asyncio.sleep(POLL_S)
        self._was_ready = True

    async def wait_failed(self) -> ServiceFailure:
        """Return why the process no longer serves: it ended, was stopped, or fell silent after it had answered."""
        process, heard = self._running(), False
        silent_s, looked_at = 0.0, time.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), self.alive_poll_s)
                await self._drain()
                return self._ended(process)
            if is_stopped(process.pid):
                return ServiceFailure(self.name, "was stopped by a signal", self.log_tail())
            alive, now = await self.alive(), time.monotonic()
            # Half of the limit at most for one look: this process may have been frozen meanwhile, too.
            silent_s = 0.0 if alive else silent_s + min(now - looked_at, self.unresponsive_after_s / 2)
            heard, looked_at = heard or alive, now
            if heard and silent_s >= self.unresponsive_after_s:
                return ServiceFailure(self.name, f"did not answer for {self.unresponsive_after_s:g} s", self.log_tail())

    async def stop(self) -> None:
        """Let the process end by itself within `grace_s` if it may have work in hand, then `abort`."""
        process, may_work = self._process, self._was_ready or not self.idle_until_ready
        if process is not None and process.returncode is None and may_work:
            _signal(os.kill, process.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), self.grace_s)
        await self.abort()

    async def abort(self) -> None:
        """End the process and whatever is in its group by SIGKILL. One that does not end is left, with an error."""
        process = self._process
        if process is None:
            return
        _signal(os.killpg, process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), self.kill_limit_s)
        if not await _gone(process.pid, self.kill_limit_s):
            LOG.error(
                "%s (process group %d) does not end, %g s after SIGKILL", self.name, process.pid, self.kill_limit_s
            )
        await self._drain()
        await _close_pipe(process)
        self._process = None

    def log_tail(self) -> str:
        """Return the last lines that the process wrote."""
        return "\n".join(self._tail.decode(errors="replace").splitlines()[-TAIL_LINES:])

    async def _pass_on(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while chunk := await process.stdout.read(65536):
            self._tail += chunk
            del self._tail[:-TAIL_BYTES]
            # A closed terminal or log pipe must not end the service.
            with contextlib.suppress(OSError, ValueError):
                self.output.write(chunk)
                self.output.flush()

    async def _drain(self) -> None:
        # A descendant that left the group may hold the pipe open: what it still writes is not waited for.
        if self._pump is not None:
            await asyncio.wait([self._pump], timeout=1)
            self._pump.cancel()

    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise ServiceFailure(self.name, "is not started")
        return self._process

    def _ended(self, process: asyncio.subprocess.Process) -> ServiceFailure:
        return ServiceFailure(self.name, describe_exit(process.returncode or 0), self.log_tail())


async def run_to_end(name: str, command: Sequence[str], environ: Mapping[str, str], folder: Path) -> str:
    """Run a command and return its standard output; its standard error passes. It is ended when this call is
    cancelled, and gets SIGTERM if this process dies first.

    Raises `ServiceFailure` unless it ends with status 0.
    """
    process = await asyncio.create_subprocess_exec(
        *with_parent(command),
        env=environ,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await _close_pipe(process)
    if process.returncode != 0:
        raise ServiceFailure(name, describe_exit(process.returncode or 0))
    return output.decode(errors="replace")


async def _close_pipe(process: asyncio.subprocess.Process) -> None:
    """Close this end of the output's pipe, which stays open for as long as a descendant holds the other end."""
    process._transport.close()  # type: ignore[attr-defined]  # asyncio has no public way
    await asyncio.sleep(0)  # in which the transport closes it


def _signal(send: Callable[[int, int], None], target: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        send(target, number)


async def _gone(group: int, timeout_s: float) -> bool:
    """Wait until no process of the group is left, so that its ports and memory are free; tell whether that is so."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-group, os.WNOHANG)
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        await asyncio.sleep(POLL_S / 2)
    return False
