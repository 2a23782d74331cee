"""A gateway on a port of this machine, served from a thread, for clients that speak HTTP themselves."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
import uvicorn

from fakes import FakeTranscriber
from gateways import wait_until
from parakeet_mps.contract import SAMPLE_RATE_HZ, Recognition
from parakeet_mps.gateway.app import create_app
from parakeet_mps.gateway.http_protocol import GatewayProtocol
from parakeet_mps.settings import Settings
from processes import free_port


class StepwiseTranscriber(FakeTranscriber):
    """Answers piece after piece: the first at once, each other one when `step` was called once more.

    `fail_with`, if set, is raised instead of the answer to all but the first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fail_with: Exception | None = None
        self.held = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.begin()

    def begin(self) -> None:
        """Forget the pieces of earlier recordings."""
        self._calls = 0
        self._permits = asyncio.Semaphore(0)

    def step(self) -> None:
        """Let one more piece be answered; to be called when the first has been."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._permits.release)

    async def transcribe(self, waveform: torch.Tensor, timeout_s: float, hotwords: Sequence[str] = ()) -> Recognition:
        if not waveform.any():  # the canary of /health: a recording's silence is never sent
            return replace(self.answer, text="")
        self._loop = asyncio.get_running_loop()
        number = self._calls = self._calls + 1
        if number > 1 and self.held:
            await self._permits.acquire()
        if number > 1 and self.fail_with is not None:
            raise self.fail_with
        answer = await super().transcribe(waveform, timeout_s, hotwords)
        return replace(answer, duration=waveform.numel() / SAMPLE_RATE_HZ)


class LiveGateway:
    """The gateway's address and its recogniser."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.transcriber = StepwiseTranscriber()

    @contextlib.contextmanager
    def held(self) -> Iterator[StepwiseTranscriber]:
        """Hold every piece but the first until it may step."""
        self.transcriber.begin()
        self.transcriber.held = True
        try:
            yield self.transcriber
        finally:
            self.transcriber.held = False

    @contextlib.contextmanager
    def failing(self, error: Exception) -> Iterator[StepwiseTranscriber]:
        """Hold every piece but the first, and raise `error` instead of answering it."""
        self.transcriber.fail_with = error
        try:
            with self.held() as pieces:
                yield pieces
        finally:
            self.transcriber.fail_with = None


@contextlib.contextmanager
def live_gateway(**settings: int | str) -> Iterator[LiveGateway]:
    """Serve the real app over a `StepwiseTranscriber` that answers with `fakes.HELLO`, one piece at a time."""
    port = free_port()
    gateway = LiveGateway(port)
    app = create_app(Settings(**settings), gateway.transcriber)
    server = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", port, http=GatewayProtocol, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield gateway
    finally:
        server.should_exit = True
        thread.join()
