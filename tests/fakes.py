"""Written stand-ins for the parts that a unit test does not run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import torch

from parakeet_mps.contract import SAMPLE_RATE_HZ, Recognition, Token, Word

HELLO = Recognition(
    text="good morning doctor",
    duration=2.0,
    tokens=(
        Token("▁good", 11, 0.24, 0.4, 0.9),
        Token("▁mor", 12, 0.48, 0.64, 0.8),
        Token("ning", 13, 0.64, 0.8, 0.95),
        Token("▁doctor", 14, 0.96, 1.44, 0.7),
    ),
    words=(
        Word("good", 0.24, 0.4, 0.9),
        Word("morning", 0.48, 0.8, 0.8),
        Word("doctor", 0.96, 1.44, 0.7),
    ),
)


class FakeTranscriber:
    """A `Transcriber` that gives one answer, or raises one error, to everything.

    `answer` and `error` may be changed between calls; while `gate` is cleared no call returns.
    """

    def __init__(self, answer: Recognition = HELLO, error: Exception | None = None) -> None:
        self.answer = answer
        self.error = error
        self.is_live = True
        self.is_ready = True
        self.closed = False
        self.waveforms: list[torch.Tensor] = []
        self.hotwords: list[tuple[str, ...]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def transcribe(self, waveform: torch.Tensor, timeout_s: float, hotwords: Sequence[str] = ()) -> Recognition:
        self.waveforms.append(waveform)
        self.hotwords.append(tuple(hotwords))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.answer

    async def live(self, timeout_s: float) -> bool:
        return self.is_live

    async def ready(self, timeout_s: float) -> bool:
        return self.is_ready

    async def close(self) -> None:
        self.closed = True

    @property
    def audio_s(self) -> float:
        """Seconds of audio in the last call."""
        return self.waveforms[-1].numel() / SAMPLE_RATE_HZ
