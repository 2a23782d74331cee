"""Uploads are decoded, recognised piece by piece, counted and timed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import BinaryIO, NamedTuple

import torch

from parakeet_mps.contract import MAX_PIECE_S, Recognition
from parakeet_mps.gateway.deadline import Deadline, too_late
from parakeet_mps.gateway.decoding import Decoded, Decoder
from parakeet_mps.gateway.health import Health
from parakeet_mps.gateway.metrics import Metrics
from parakeet_mps.gateway.recognition import recognise
from parakeet_mps.gateway.stopwatch import Stopwatch
from parakeet_mps.gateway.transcriber import Transcriber
from parakeet_mps.gateway.voiced import is_voiced
from parakeet_mps.pieces import Part
from parakeet_mps.settings import AUTO, Settings

PIECES_IN_FLIGHT = 4
"""Default when no plan was made here, because Triton is on another machine: as many recognisers as a GPU gets."""


class Limits(NamedTuple):
    """Longest piece, pieces of one recording at once, and time for a recording without its own length (s)."""

    piece_s: float
    pieces_in_flight: int
    timeout_s: float

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Read the limits from the settings. What is still left to choose is chosen for a GPU elsewhere."""
        return cls(
            MAX_PIECE_S if settings.piece_s == AUTO else settings.piece_s,
            PIECES_IN_FLIGHT if settings.pieces_in_flight == AUTO else settings.pieces_in_flight,
            settings.request_timeout_s,
        )


class UploadRecogniser:
    """Recognises uploads of any length."""

    def __init__(
        self, decoder: Decoder, transcriber: Transcriber, health: Health, metrics: Metrics, limits: Limits
    ) -> None:
        self._decoder = decoder
        self._transcriber = transcriber
        self._health = health
        self._metrics = metrics
        self._limits = limits

    async def recognise(
        self, upload: BinaryIO, hotwords: Sequence[str], warnings: list[str]
    ) -> AsyncGenerator[Part, None]:
        """Yield what is said in each part of the recording; `warnings` is filled when the last one is out.

        Close the generator when no more is wanted. Raises `AudioError`, `UnavailableError` and `DeadlineError`.
        """
        piece_s, cap, timeout_s = self._limits
        deadline = Deadline(timeout_s)
        async with AsyncExitStack() as stack:
            stopwatch = stack.enter_context(self._metrics.stopwatch("decode"))
            with stopwatch.running():
                decoded = await self._open(upload, deadline, stack)
            blocks = _timed(decoded.chunks(), stopwatch)
            parts = recognise(blocks, self._transcribe, deadline, hotwords, cap, piece_s)
            async for part in await stack.enter_async_context(aclosing(parts)):
                self._metrics.transcribed(part[1].duration)
                yield part
            if decoded.warning:
                warnings.append(decoded.warning)

    async def _open(self, upload: BinaryIO, deadline: Deadline, stack: AsyncExitStack) -> Decoded:
        try:
            async with asyncio.timeout(deadline.left_s()):
                return await stack.enter_async_context(self._decoder.open(upload))
        except TimeoutError:
            raise too_late() from None

    async def _transcribe(self, waveform: torch.Tensor, timeout_s: float, hotwords: Sequence[str]) -> Recognition:
        with self._metrics.piece():
            recognition = await self._transcriber.transcribe(waveform, timeout_s, hotwords)
        self._health.proved()
        if not recognition.text and is_voiced(waveform):
            self._metrics.empty_though_voiced()
        return recognition


async def _timed(blocks: AsyncIterator[torch.Tensor], stopwatch: Stopwatch) -> AsyncIterator[torch.Tensor]:
    while True:
        with stopwatch.running():
            block = await anext(blocks, None)
        if block is None:
            return
        yield block
