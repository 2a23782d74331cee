"""Recordings of any length are recognised piece by piece, a few pieces at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import torch

from parakeet_mps.contract import SAMPLE_RATE_HZ, Recognition
from parakeet_mps.gateway.deadline import Deadline, too_late
from parakeet_mps.pieces import Cutter, Joiner, Part, Piece

T = TypeVar("T")

Transcribe = Callable[[torch.Tensor, float, Sequence[str]], Awaitable[Recognition]]
"""Recognises a waveform within a time (s), boosting hotwords: `Transcriber.transcribe`."""


async def recognise(
    chunks: AsyncIterable[torch.Tensor],
    transcribe: Transcribe,
    deadline: Deadline,
    hotwords: Sequence[str],
    cap: int,
    piece_s: float,
) -> AsyncGenerator[Part, None]:
    """Yield what is said in each part of a recording, in order and without gaps, as soon as it is known.

    `chunks` are float32 [samples]; at most `cap` pieces of `piece_s` are with the recogniser at once. Close the
    generator (`contextlib.aclosing`) when no more is wanted: that ends all work. Raises what `chunks` and `transcribe`
    raise, and `DeadlineError`.
    """
    joiner = Joiner()
    pieces = _Pieces(transcribe, deadline, hotwords, cap)
    async with aclosing(pieces.recognised(_cut(chunks, deadline, piece_s))) as recognised:
        async for piece, recognition in recognised:
            for part in joiner.add(piece, recognition):
                yield part


async def _cut(chunks: AsyncIterable[torch.Tensor], deadline: Deadline, piece_s: float) -> AsyncGenerator[Piece, None]:
    cutter = Cutter(piece_s)
    async for chunk in chunks:
        deadline.extend(chunk.numel() / SAMPLE_RATE_HZ)
        for piece in cutter.push(chunk):
            yield piece
    for piece in cutter.finish():
        yield piece


class _Pieces:
    """The pieces of one recording that are with the recogniser.

    One task cuts and sends ahead of the consumer, by `cap` pieces: the next piece is ready when the recogniser is.
    """

    def __init__(self, transcribe: Transcribe, deadline: Deadline, hotwords: Sequence[str], cap: int) -> None:
        self._ask = transcribe
        self._deadline = deadline
        self._hotwords = hotwords
        self._free = asyncio.Semaphore(cap)
        self._sent: asyncio.Queue[tuple[Piece, asyncio.Task[Recognition]] | None] = asyncio.Queue(cap)
        self._failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def recognised(self, pieces: AsyncGenerator[Piece, None]) -> AsyncGenerator[tuple[Piece, Recognition], None]:
        try:
            self._start(self._send(pieces))
            while (sent := await self._result(self._start(self._sent.get()))) is not None:
                piece, task = sent
                yield piece, await self._result(task)
        finally:
            await self._stop()

    async def _send(self, pieces: AsyncGenerator[Piece, None]) -> None:
        async with aclosing(pieces):
            async for piece in pieces:
                await self._free.acquire()
                await self._sent.put((piece, self._start(self._transcribe(piece))))
        await self._sent.put(None)

    async def _transcribe(self, piece: Piece) -> Recognition:
        try:
            if not piece.waveform.numel():  # digital silence costs nothing
                return Recognition("", piece.end_s - piece.start_s)
            return await self._ask(piece.waveform, self._deadline.left_s(), self._hotwords)
        finally:
            self._free.release()

    async def _result(self, task: asyncio.Task[T]) -> T:
        """Return the task's result. Raises as soon as any task has failed, and when the time is up."""
        waiting: set[asyncio.Future[Any]] = {task, self._failed}
        done, _ = await asyncio.wait(waiting, timeout=self._deadline.left_s(), return_when=asyncio.FIRST_COMPLETED)
        if self._failed in done:
            self._failed.result()
        if task not in done:
            raise too_late()
        return task.result()

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) and not self._failed.done():
            self._failed.set_exception(error)

    async def _stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not self._failed.cancel():
            self._failed.exception()  # it has been raised, or nobody wants it any more
