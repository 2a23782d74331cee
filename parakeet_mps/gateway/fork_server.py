"""The process that forks one that decodes for each upload: started, asked, and replaced when it is lost or stuck."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from parakeet_mps.audio import messages
from parakeet_mps.gateway.decoding_process import DecodingProcess, unavailable

_PACKAGE_PARENT = Path(__file__).resolve().parents[2]
_STOP_LIMIT_S = 2.0
_SEND_BUFFER_BYTES = 1 << 20
"""Room for a block, so that the process need not wait for the gateway within one; the kernel may allow less."""

_log = logging.getLogger(__name__)


class _Started(NamedTuple):
    """A fork server that was started, and what ends it, to be called from any thread."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    end: Callable[[], object]

    def lost(self) -> bool:
        """Tell whether it has ended, and with it every process that it forked."""
        return self.process.poll() is not None


class ForkServer:
    """The process that forks the others; started when it is first needed, and again when it was lost or is stuck."""

    def __init__(self, start_limit_s: float) -> None:
        self._start_limit_s = start_limit_s
        self._current: _Started | None = None

    def start(self) -> None:
        """Start the server unless it was started. It is ready for requests at once, and answers them once loaded."""
        if self._current is None:
            self._current = self._started()

    async def fork(self, file: int, max_audio_s: float) -> DecodingProcess:
        """Return a process that decodes the open file. Raises `UnavailableError` when there is none.

        The server is waited for though the caller leaves: else one that is stuck would outlive all whose time is short.
        """
        stream, server = self._ask(file, max_audio_s)
        answer = asyncio.create_task(self._answer(stream, server))
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            answer.add_done_callback(_kill_unwanted)
            raise

    def close(self) -> None:
        """End the server, and with it every process that it forked. That takes a server which is stuck seconds."""
        if self._current is not None:
            self._current.end()
        self._current = None

    def _started(self) -> _Started:
        control, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.setblocking(False)
        with its_end:
            process = subprocess.Popen(
                _command(), stdin=its_end.fileno(), stdout=subprocess.DEVNULL, env=_environ(), cwd="/"
            )
        return _Started(process, control, weakref.finalize(self, _stop, process, control))

    def _ask(self, file: int, max_audio_s: float) -> tuple[socket.socket, _Started]:
        """Return the stream through which the process will speak, and the server that was asked for it."""
        stream, its_end = socket.socketpair()
        stream.setblocking(False)
        its_end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        with its_end:
            try:
                return stream, self._request(file, its_end, max_audio_s)
            except BaseException:
                stream.close()
                raise

    def _request(self, file: int, stream: socket.socket, max_audio_s: float) -> _Started:
        for _ in range(2):
            self.start()
            assert self._current is not None
            try:
                socket.send_fds(self._current.control, [messages.REQUEST.pack(max_audio_s)], [file, stream.fileno()])
            except (BrokenPipeError, ConnectionResetError):  # it was lost: the next round starts another
                self.close()
            except BlockingIOError:
                break
            else:
                return self._current
        raise unavailable()

    async def _answer(self, stream: socket.socket, server: _Started) -> DecodingProcess:
        try:
            async with asyncio.timeout(self._start_limit_s):
                return await DecodingProcess.meet(stream, server.lost)
        except TimeoutError:
            await self._replace(server)
            raise unavailable() from None

    async def _replace(self, stuck: _Started) -> None:
        """End a server that answers nobody. Another one that was started meanwhile is not touched."""
        if self._current is stuck:
            _log.warning("the process that starts decoders is stuck; it is replaced")
            self._current = None
        await asyncio.to_thread(stuck.end)


def _kill_unwanted(answer: asyncio.Task[DecodingProcess]) -> None:
    """Kill the process of an upload that left before it came."""
    if not answer.cancelled() and answer.exception() is None:
        answer.result().kill()


def _command() -> list[str]:
    return [sys.executable, "-P", "-m", "parakeet_mps.audio.forkserver"]


def _environ() -> dict[str, str]:
    """Return the server's environment: no keys to find there, and no threads that a fork would lose."""
    return {
        "PYTHONPATH": str(_PACKAGE_PARENT),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "LANG": "C.UTF-8",
        "TMPDIR": os.environ.get("TMPDIR", ""),  # empty, it counts as not set
    }


def _stop(process: subprocess.Popen[bytes], control: socket.socket) -> None:
    control.close()
    try:
        process.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
