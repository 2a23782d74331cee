"""WAVs of the plainest kind, 16-bit PCM in one channel, read without FFmpeg.

To wake FFmpeg in a new process costs more than all the rest of decoding such a file. Whatever is unusual about a WAV
leaves it to FFmpeg, and so do two channels, in which discs carry other codecs that call themselves PCM.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from parakeet_mps.audio.sizes import chunks
from parakeet_mps.audio.source import Source
from parakeet_mps.audio.track import Frame, full_scale

PACKET_BYTES = 1 << 15
"""Read at once, here and by FFmpeg, whose own packets of 1/25 s cost more to hand around than to decode."""

_FORMAT = struct.Struct("<HHIIHH")
_PCM = 1
_SAMPLE_BYTES = 2
_PADDING_BYTES = 1
_SKIPPED = (b"LIST", b"JUNK", b"fact")
"""Chunks that may come before the samples and say nothing about them."""


class PlainWav:
    """The samples between two places of `source`. Has what `Track` has, and never any damage."""

    damaged = 0
    ends_in_damage = False

    def __init__(self, source: Source, begin: int, end: int, rate_hz: int) -> None:
        self._source = source
        self._begin = begin
        self._end = end
        self.rate_hz = rate_hz

    def frames(self) -> Iterator[Frame]:
        """See `Track`."""
        for at in range(self._begin, self._end, PACKET_BYTES):
            data = self._source.peek(at, min(PACKET_BYTES, self._end - at))
            yield Frame(full_scale(np.frombuffer(data, "<i2")[None], "s16"), self.rate_hz, 0.0)

    def promised_s(self) -> float:
        """See `Track`."""
        return (self._end - self._begin) / _SAMPLE_BYTES / self.rate_hz

    def estimated_s(self) -> float:
        """See `Track`."""
        return self.promised_s()


def plain_wav(source: Source) -> PlainWav | None:
    """Return the recording when it is a plain WAV with every byte in its place, else None."""
    head = source.peek(0, 12)
    if head[:4] != b"RIFF" or head[8:] != b"WAVE":
        return None
    rate_hz = None
    for name, at, size in chunks(source, 12):
        if name == b"fmt " and rate_hz is None:
            rate_hz = _mono_rate_hz(source.peek(at, min(size, _FORMAT.size)))
        elif name == b"data" and rate_hz and _is_whole(source, at, size):
            return PlainWav(source, at, at + size, rate_hz)
        elif name not in _SKIPPED:
            return None
    return None


def _mono_rate_hz(form: bytes) -> int | None:
    """Return the sample rate of 16-bit PCM in one channel; None for anything else."""
    if len(form) < _FORMAT.size:
        return None
    tag, channels, rate_hz, bytes_per_s, frame_bytes, bits = _FORMAT.unpack(form)
    is_plain = (tag, channels, frame_bytes, bits) == (_PCM, 1, _SAMPLE_BYTES, 8 * _SAMPLE_BYTES)
    return rate_hz if is_plain and bytes_per_s == rate_hz * _SAMPLE_BYTES else None


def _is_whole(source: Source, at: int, size: int) -> bool:
    """Say whether the samples are all there, and nothing else behind them."""
    return size > 0 and size % _SAMPLE_BYTES == 0 and 0 <= source.size - at - size <= _PADDING_BYTES
