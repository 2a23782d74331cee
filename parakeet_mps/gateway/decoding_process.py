"""The gateway's side of one process that decodes: hearing and killing it. `fork_server` starts them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from parakeet_mps.audio import messages
from parakeet_mps.errors import UnavailableError


class DecodingProcess:
    """One process that decodes one file. `kill` must be called in the end."""

    def __init__(self, handle: int, stream: socket.socket, lost: Callable[[], bool]) -> None:
        self._handle = handle
        self._stream = stream
        self.lost = lost
        """Tells whether the process ended through no fault of its file."""
        self._header = bytearray(messages.HEADER.size)

    @classmethod
    async def meet(cls, stream: socket.socket, lost: Callable[[], bool]) -> DecodingProcess:
        """Wait for the process at the other end of `stream`, which closes with it.

        Raises `UnavailableError` when there is none.
        """
        try:
            await _readable(stream)
            _, handles, _, _ = socket.recv_fds(stream, 1, 1)
            if not handles:
                raise unavailable()
        except BaseException:
            stream.close()
            raise
        return cls(handles[0], stream, lost)

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
        self._stream.close()

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


def unavailable() -> UnavailableError:
    """Return the error of an upload that nobody decodes, through no fault of it."""
    return UnavailableError("The decoder is not available now; try again.")


async def _readable(stream: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    loop.add_reader(stream.fileno(), arrived.set)
    try:
        await arrived.wait()
    finally:
        loop.remove_reader(stream.fileno())
