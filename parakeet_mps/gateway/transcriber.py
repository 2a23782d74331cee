"""The seam between the HTTP API and whatever recognises speech."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from parakeet_mps.contract import Recognition


class Transcriber(Protocol):
    """Recognises speech, somewhere. One object serves all requests of one event loop."""

    async def transcribe(self, waveform: torch.Tensor, timeout_s: float, hotwords: Sequence[str] = ()) -> Recognition:
        """Recognise one float32 [samples] waveform, mono at `contract.SAMPLE_RATE_HZ`, boosting the `hotwords`.

        Raises `AudioError` when the waveform is at fault, `RequestError` when the hotwords are (see
        `parakeet_mps.hotwords`), `DeadlineError` after `timeout_s` seconds, `UnavailableError` when the recogniser
        cannot answer now.
        """
        ...

    async def live(self, timeout_s: float) -> bool:
        """Say whether the server that holds the recogniser answers at all."""
        ...

    async def ready(self, timeout_s: float) -> bool:
        """Say whether the recogniser is loaded."""
        ...

    async def close(self) -> None:
        """Give up all connections."""
        ...
