"""Uploads are decoded in processes of their own, block by block, as fast as somebody takes the blocks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray

from parakeet_mps.audio import messages
from parakeet_mps.contract import SAMPLE_RATE_HZ
from parakeet_mps.errors import AudioError, ServiceError
from parakeet_mps.gateway.decoding_process import DecodingProcess, unavailable
from parakeet_mps.gateway.fork_server import ForkServer

MAX_PROCESSES = 64
"""Files decoded at once by one gateway process; a process takes about 7 MB, up to 0.5 GB on a hostile file."""

PATIENCE_S = 20.0
"""Time a file may take to decode, and a tenth of its audio's length on top. Decoding takes a few thousandths."""
_AUDIO_S_PER_S = 10.0

START_LIMIT_S = 30.0
"""Time until a process is there; usually some milliseconds, for the first upload half a second."""

_FLOAT32_BYTES = 4
_BLOCK_BYTES = 10 * SAMPLE_RATE_HZ * _FLOAT32_BYTES

_log = logging.getLogger(__name__)


class Decoded:
    """The audio of one upload, while it is decoded."""

    def __init__(self, process: DecodingProcess, max_audio_s: float, patience_s: float) -> None:
        self._process = process
        self._max_samples = int(max_audio_s * SAMPLE_RATE_HZ)
        self._time_left_s = patience_s
        self._samples = 0
        self._next: torch.Tensor | None = None
        self.warning: str | None = None
        """Set after the last chunk when the file is cut short or damaged: a sentence in English."""

    async def begin(self) -> None:
        """Wait for the first chunk, so that what cannot be decoded at all is refused now; see `chunks`."""
        self._next = await self._receive()

    async def chunks(self) -> AsyncIterator[torch.Tensor]:
        """Yield the audio once: float32 [samples] mono at `SAMPLE_RATE_HZ`, 10 s each but the last.

        Raises `AudioError` when the file cannot be decoded any further, `UnavailableError` when its process was lost.
        """
        while self._next is not None:
            yield self._next
            self._next = await self._receive()

    async def _receive(self) -> torch.Tensor | None:
        kind, body = await self._message()
        if kind == messages.AUDIO and body.size and body.size % _FLOAT32_BYTES == 0:
            return self._counted(torch.from_numpy(body.view(np.float32)))
        text = body[: messages.MAX_TEXT_BYTES].tobytes().decode(errors="replace")
        if kind == messages.REFUSED:
            raise AudioError(text)
        if kind != messages.END:
            raise self._broken()
        self.warning = text or None
        return None

    async def _message(self) -> tuple[bytes, NDArray[np.uint8]]:
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._time_left_s):
                return await self._process.receive(_BLOCK_BYTES)
        except TimeoutError:
            _log.warning("a file took too long to decode; its process is killed")
            raise AudioError("The file takes too long to decode.") from None
        except (EOFError, OSError):
            raise self._broken() from None
        finally:
            self._time_left_s -= time.monotonic() - began

    def _counted(self, chunk: torch.Tensor) -> torch.Tensor:
        self._samples += chunk.numel()
        if self._samples > self._max_samples:
            raise self._broken()
        self._time_left_s += chunk.numel() / SAMPLE_RATE_HZ / _AUDIO_S_PER_S
        return chunk

    def _broken(self) -> ServiceError:
        if self._process.lost():
            return unavailable()
        _log.warning("a file broke its decoding process")
        return AudioError("The file cannot be decoded.")


class Decoder:
    """Decodes uploads of at most `max_audio_s` seconds."""

    def __init__(
        self, max_audio_s: float, patience_s: float = PATIENCE_S, start_limit_s: float = START_LIMIT_S
    ) -> None:
        self._max_audio_s = max_audio_s
        self._patience_s = patience_s
        self._server = ForkServer(start_limit_s)
        self._places = asyncio.Semaphore(MAX_PROCESSES)

    def start(self) -> None:
        """Start what the first upload would otherwise wait for."""
        self._server.start()

    @contextlib.asynccontextmanager
    async def open(self, upload: BinaryIO) -> AsyncIterator[Decoded]:
        """Decode a file that has a descriptor while the context lasts; leaving it ends the work at once.

        Raises `AudioError` when the first seconds cannot be decoded, `UnavailableError` when nothing can.
        """
        async with self._places:
            upload.flush()
            process = await self._server.fork(upload.fileno(), self._max_audio_s)
            try:
                decoded = Decoded(process, self._max_audio_s, self._patience_s)
                await decoded.begin()
                yield decoded
            finally:
                process.kill()

    def close(self) -> None:
        """Stop all decoding."""
        self._server.close()
