"""Uploads are decoded in a few threads of their own, so that the event loop never waits for FFmpeg."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO

import torch

from parakeet_mps.audio import decode

DECODER_THREADS = 2
"""FFmpeg and torch release the GIL; two threads keep a worker busy, and bound the memory that uploads take."""


class Decoder:
    """Decodes uploads of at most `max_audio_s` seconds."""

    def __init__(self, max_audio_s: float) -> None:
        self._max_audio_s = max_audio_s
        self._threads = ThreadPoolExecutor(DECODER_THREADS, thread_name_prefix="decoder")

    async def decode(self, upload: BinaryIO) -> torch.Tensor:
        """Return the upload's waveform, see `audio.decode`. Raises `AudioError`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read_and_decode, upload)

    def _read_and_decode(self, upload: BinaryIO) -> torch.Tensor:
        upload.seek(0)
        return decode(upload.read(), self._max_audio_s)

    def close(self) -> None:
        """Let running decodes finish and take no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
