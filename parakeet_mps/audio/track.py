"""The audio track of an open container: its frames in time, and what was wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.packet import Packet
from numpy.typing import NDArray

from parakeet_mps.audio.mpeg import frame_bytes
from parakeet_mps.audio.source import Source
from parakeet_mps.audio.timeline import Timeline

_MOST_READ_ERRORS = 64
_VBR_HEADER_BYTES = 4096
_HONEST_FORMATS = frozenset({"wav", "w64", "aiff", "caf", "flac", "mov,mp4,m4a,3gp,3g2,mj2", "wv", "tta", "ape"})
"""Their headers count samples; of other formats FFmpeg estimates the duration."""

_MATROSKA = "matroska,webm"
_FULL_SCALE = {"u8": 128.0, "s16": 2.0**15, "s32": 2.0**31, "s64": 2.0**63}


class Frame(NamedTuple):
    """Float32 [channels, samples] of full scale 1, their sample rate, and the silence (s) that lies before them."""

    samples: NDArray[np.float32]
    rate_hz: int
    gap_s: float


class Track:
    """Decodes one track. Damaged packets are counted and left out."""

    def __init__(self, container: InputContainer, stream: AudioStream, source: Source) -> None:
        self._container = container
        self._stream = stream
        self._source = source
        self.damaged = 0
        self.ends_in_damage = False

    def frames(self) -> Iterator[Frame]:
        """Yield the track's frames."""
        timeline = Timeline(self._begin_s())
        last = None
        for packet in self._packets():
            last = packet if packet.size else last
            for frame in self._decoded(packet):
                if frame.samples and frame.sample_rate:
                    gap_s = timeline.gap_s(frame.time, frame.samples / frame.sample_rate)
                    yield Frame(_channels_of(frame), frame.sample_rate, gap_s)
        self.ends_in_damage |= self._ends_inside_frame(last)

    def promised_s(self) -> float | None:
        """Return the duration that the header gives, None when it gives none that can be relied on."""
        name = self._container.format.name
        if name == _MATROSKA:
            return self.estimated_s() or None if len(self._container.streams) == 1 else None
        if name in _HONEST_FORMATS or (name == "mp3" and self._has_vbr_header()):
            duration, unit = self._stream.duration, self._stream.time_base
            return None if duration is None or unit is None else float(duration * unit)
        return None

    def estimated_s(self) -> float:
        """Return the duration as FFmpeg sees it, which may be far off; 0 when it has no idea."""
        duration, start = self._container.duration or 0, self._container.start_time or 0
        if self._container.format.name == _MATROSKA:
            duration -= max(0, start)  # its duration is that of the clock, which need not begin at 0
        return max(0, duration) / av.time_base

    def _begin_s(self) -> float | None:
        """Return the time at which a player begins, which may be before the first sound."""
        if self._container.format.name == _MATROSKA:  # FFmpeg does not see where a picture begins that it cannot decode
            return 0.0
        began = self._container.start_time
        return None if began is None else began / av.time_base

    def _has_vbr_header(self) -> bool:
        head = self._source.peek(0, _VBR_HEADER_BYTES)
        return any(mark in head for mark in (b"Xing", b"Info", b"VBRI"))

    def _ends_inside_frame(self, last: Packet[AudioStream] | None) -> bool:
        """Say whether the last frame of raw MPEG audio is incomplete, which FFmpeg does not mind."""
        if last is None or self._container.format.name != "mp3":
            return False
        return last.size < frame_bytes(bytes(last)[:4])

    def _packets(self) -> Iterator[Packet[AudioStream]]:
        for _ in range(_MOST_READ_ERRORS):
            try:
                yield from self._container.demux(self._stream)
                return
            except av.FFmpegError:  # what follows may be readable again
                self._note_damage()

    def _decoded(self, packet: Packet[AudioStream]) -> list[AudioFrame]:
        try:
            frames = packet.decode()
        except av.FFmpegError:
            self._note_damage()
            return []
        if packet.size:
            self.ends_in_damage = False
        return frames

    def _note_damage(self) -> None:
        self.damaged += 1
        self.ends_in_damage = True


def _channels_of(frame: AudioFrame) -> NDArray[np.float32]:
    """Return a frame as float32 [channels, samples], full scale 1."""
    samples = frame.to_ndarray()  # a copy
    if not frame.format.is_planar:
        samples = samples.reshape(-1, frame.layout.nb_channels).T
    name = frame.format.name.removesuffix("p")
    return samples.astype(np.float32, copy=False) if name in ("flt", "dbl") else full_scale(samples, name)


def full_scale(samples: NDArray[np.number[Any]], name: str) -> NDArray[np.float32]:
    """Return integer samples of the format that FFmpeg calls `name` as float32 of full scale 1, in a new array."""
    scaled = samples.astype(np.float32)
    if name == "u8":
        scaled -= np.float32(128)
    scaled *= np.float32(1 / _FULL_SCALE[name])  # powers of two: as exact as division
    return scaled
