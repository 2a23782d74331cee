"""The gateway's side of the processes that decode: starting, hearing and killing them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parakeet_mps.audio import messages
from parakeet_mps.errors import UnavailableError

_PACKAGE_PARENT = Path(__file__).resolve().parents[2]
_STOP_LIMIT_S = 2.0
_SEND_BUFFER_BYTES = 1 << 20
"""Room for a block, so that the process need not wait for the gateway within one; the kernel may allow less."""


class DecodingProcess:
    """One process that decodes one file. `kill` must be called in the end."""

    def __init__(self, handle: int, stream: socket.socket) -> None:
        self._handle = handle
        self._stream = stream
        self._header = bytearray(messages.HEADER.size)

    @classmethod
    async def meet(cls, stream: socket.socket) -> DecodingProcess:
        """Wait for the process at the other end. Raises `UnavailableError` when there is none."""
        await _readable(stream)
        _, handles, _, _ = socket.recv_fds(stream, 1, 1)
        if not handles:
            raise unavailable()
        return cls(handles[0], stream)

    async def receive(self, longest_body: int) -> tuple[bytes, NDArray[np.uint8]]:
        """Return kind and body of the next message. Raises `EOFError` when the process broke or breaks the rules.

        What was received until a cancellation is lost: kill the process then.
        """
        await self._fill(self._header)
        kind, size = messages.HEADER.unpack(self._header)
        if size > longest_body:
            raise EOFError("the decoding process sent a message that is too long")
        body = np.empty(size, np.uint8)
        await self._fill(body.data)
        return kind, body

    def kill(self) -> None:
        """End the process at once, if it has not ended by itself."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        os.close(self._handle)

    async def _fill(self, buffer: bytearray | memoryview) -> None:
        """Receive as many bytes as `buffer` has, straight into it: asyncio's streams copy them three times."""
        missing = memoryview(buffer)
        while missing:
            try:
                count = self._stream.recv_into(missing)
            except BlockingIOError:
                await _readable(self._stream)
                continue
            if not count:
                raise EOFError("the decoding process ended")
            missing = missing[count:]


class ForkServer:
    """The process that forks the others; started when it is first needed, and again when it was lost."""

    def __init__(self) -> None:
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stop: weakref.finalize[[subprocess.Popen[bytes], socket.socket], ForkServer] | None = None

    def start(self) -> None:
        """Start the server unless it was started. It is ready for requests at once, and answers them once loaded."""
        if self._control is not None:
            return
        control, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.setblocking(False)
        with its_end:
            process = subprocess.Popen(
                _command(), stdin=its_end.fileno(), stdout=subprocess.DEVNULL, env=_environ(), cwd="/"
            )
        self._control, self._process = control, process
        self._stop = weakref.finalize(self, _stop, process, control)

    def fork(self, file: int, max_audio_s: float) -> socket.socket:
        """Ask for a process that decodes the open file; return the stream through which it will speak."""
        stream, its_end = socket.socketpair()
        stream.setblocking(False)
        its_end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        with its_end:
            try:
                self._request(file, its_end, max_audio_s)
            except BaseException:
                stream.close()
                raise
        return stream

    def watch(self) -> Callable[[], bool]:
        """Return what tells whether the server that runs now has ended, and with it every process that it forked."""
        process = self._process
        return lambda: process is None or process.poll() is not None

    def close(self) -> None:
        """End the server, and with it every process that it forked. That takes a server which is stuck seconds."""
        self.release()()

    def release(self) -> Callable[[], object]:
        """Forget the server: the next request starts another. Return what ends it, to be called from any thread."""
        end = self._stop or (lambda: None)
        self._control = self._process = self._stop = None
        return end

    def _request(self, file: int, stream: socket.socket, max_audio_s: float) -> None:
        for _ in range(2):
            self.start()
            assert self._control is not None
            try:
                socket.send_fds(self._control, [messages.REQUEST.pack(max_audio_s)], [file, stream.fileno()])
            except (BrokenPipeError, ConnectionResetError):  # it was lost: the next round starts another
                self.close()
            except BlockingIOError:
                break
            else:
                return
        raise unavailable()


def unavailable() -> UnavailableError:
    """Return the error of an upload that nobody decodes, through no fault of it."""
    return UnavailableError("The decoder is not available now; try again.")


def _command() -> list[str]:
    return [sys.executable, "-P", "-m", "parakeet_mps.audio.forkserver"]


def _environ() -> dict[str, str]:
    """Return the server's environment: no keys to find there, and no threads that a fork would lose."""
    return {"PYTHONPATH": str(_PACKAGE_PARENT), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8"}


def _stop(process: subprocess.Popen[bytes], control: socket.socket) -> None:
    control.close()
    try:
        process.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def _readable(stream: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    loop.add_reader(stream.fileno(), arrived.set)
    try:
        await arrived.wait()
    finally:
        loop.remove_reader(stream.fileno())
