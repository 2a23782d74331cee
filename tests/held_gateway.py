"""Entry of a gateway whose recogniser answers only while nobody holds it: the file `hold` in RUN_DIR does.

It leaves an empty file for every call that starts, is answered or is cancelled.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Sequence
from pathlib import Path

import torch

from fakes import HELLO
from parakeet_mps.contract import Recognition
from parakeet_mps.errors import DeadlineError
from parakeet_mps.gateway.serving import build_app, serve


class HeldTranscriber:
    """A `Transcriber` for several processes; its traces are files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def transcribe(self, waveform: torch.Tensor, timeout_s: float, hotwords: Sequence[str] = ()) -> Recognition:
        self._trace("started")
        try:
            async with asyncio.timeout(timeout_s):
                while (self._folder / "hold").exists():
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise DeadlineError("held") from None
        except asyncio.CancelledError:
            self._trace("cancelled")
            raise
        self._trace("answered")
        return HELLO

    async def live(self, timeout_s: float) -> bool:
        return True

    async def ready(self, timeout_s: float) -> bool:
        return True

    async def close(self) -> None:
        return

    def _trace(self, what: str) -> None:
        (self._folder / f"{what}.{uuid.uuid4().hex}").touch()


if __name__ == "__main__":
    serve("held_gateway:app")
elif __name__ == "held_gateway":
    app = build_app(os.environ, HeldTranscriber(Path(os.environ["RUN_DIR"])))
