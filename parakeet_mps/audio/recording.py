"""One recording, decoded from beginning to end in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from parakeet_mps.audio.container import audio_stream, check_shape, open_container
from parakeet_mps.audio.level import Level
from parakeet_mps.audio.ogg import links
from parakeet_mps.audio.plain_wav import PACKET_BYTES, PlainWav, plain_wav
from parakeet_mps.audio.sizes import sizes
from parakeet_mps.audio.source import Source
from parakeet_mps.audio.stretch import Samples, Stretch
from parakeet_mps.audio.track import Track
from parakeet_mps.contract import MIN_SAMPLES, SAMPLE_RATE_HZ
from parakeet_mps.errors import AudioError

BLOCK_SAMPLES = 10 * SAMPLE_RATE_HZ
"""Most samples in one block."""


class Recording:
    """Decodes `source`, which must be audio of 0.1 s to `max_audio_s` seconds. To be read once."""

    def __init__(self, source: Source, max_audio_s: float) -> None:
        self._source = source
        self._max_s = max_audio_s
        self._sizes = sizes(source)
        self._promised_s = 0.0
        self._damaged = 0
        self._ends_in_damage = False
        self.warning: str | None = None

    def blocks(self) -> Iterator[Samples]:
        """Yield the audio: float32 [samples] in [-1, 1], at most `BLOCK_SAMPLES` each; set `warning` at the end.

        Raises `AudioError`, with the reason, where the file is no audio, or has samples that are no numbers, or is
        longer or shorter than allowed.
        """
        decoded = 0
        level = Level()
        for block in _regrouped(self._mono()):
            decoded += block.size
            if decoded > self._max_s * SAMPLE_RATE_HZ:
                raise AudioError(f"The audio is too long; at most {self._max_s:g} s are accepted.")
            yield level.fit(block)
        self._refuse_short(decoded)
        self.warning = self._find_warning(decoded / SAMPLE_RATE_HZ)

    def _mono(self) -> Iterator[Samples]:
        """Yield float32 [samples] at `SAMPLE_RATE_HZ`, of any length; the shape may change on the way."""
        stretch = None
        for track in self._tracks():
            for samples, rate_hz, gap_s in track.frames():
                shape = (len(samples), rate_hz)
                if stretch is None or stretch.shape != shape:
                    if stretch is not None:
                        yield stretch.finish()
                    check_shape(*shape)
                    stretch = Stretch(*shape)
                yield from stretch.silence(gap_s)
                yield stretch.add(samples)
        if stretch is not None:
            yield stretch.finish()

    def _tracks(self) -> Iterator[Track | PlainWav]:
        if plain := plain_wav(self._source):
            check_shape(1, plain.rate_hz)
            self._refuse_long_header(plain)
            yield plain
            self._promised_s = plain.promised_s()
        else:
            yield from self._tracks_by_ffmpeg()

    def _tracks_by_ffmpeg(self) -> Iterator[Track]:
        options = {"max_size": str(PACKET_BYTES), "ignore_length": str(int(self._sizes.misleading))}
        for index, link in enumerate(links(self._source)):
            try:
                container = open_container(link, options)
            except AudioError:
                if not index:
                    raise
                self._note(1, at_end=True)
                continue
            with container:
                track = Track(container, audio_stream(container), link)
                self._refuse_long_header(track)
                yield track
                self._promised_s += track.promised_s() or 0.0
                self._note(track.damaged, track.ends_in_damage)

    def _note(self, damaged: int, at_end: bool) -> None:
        self._damaged += damaged
        self._ends_in_damage = at_end

    def _refuse_long_header(self, track: Track | PlainWav) -> None:
        if self._sizes.cut_short or self._sizes.misleading:
            return
        promised_s, estimated_s = track.promised_s(), track.estimated_s()
        # An estimate, such as one from the bit rate, refuses only what is far too long.
        if (estimated_s / 2 if promised_s is None else promised_s) > self._max_s + 1:
            shown_s = estimated_s if promised_s is None else promised_s
            raise AudioError(f"The audio lasts {shown_s:.0f} s; at most {self._max_s:g} s are accepted.")

    def _refuse_short(self, decoded: int) -> None:
        if not decoded and self._damaged:
            raise AudioError("The audio is damaged or cut short: none of it can be decoded.")
        if not decoded:
            raise AudioError("The file has no audio samples.")
        if decoded < MIN_SAMPLES:
            raise AudioError(f"The audio is too short; at least {MIN_SAMPLES / SAMPLE_RATE_HZ:g} s are needed.")

    def _find_warning(self, decoded_s: float) -> str | None:
        if self._sizes.cut_short:
            return f"The file is cut short: {self._sizes} came, {decoded_s:.1f} s of audio."
        promised_s = 0.0 if self._sizes.misleading else self._promised_s
        if decoded_s + max(0.25, 0.01 * promised_s) < promised_s:
            return f"The file is cut short: {decoded_s:.1f} of {promised_s:.1f} s of audio came."
        if self._ends_in_damage:
            return f"The file is cut short, or damaged at its end: {decoded_s:.1f} s of audio came."
        if self._damaged:
            return f"The file is damaged: {self._damaged} packets of audio could not be decoded and were left out."
        return None


def _regrouped(parts: Iterable[Samples]) -> Iterator[Samples]:
    """Yield the same samples in blocks of `BLOCK_SAMPLES`, and the rest."""
    block, filled = np.empty(BLOCK_SAMPLES, np.float32), 0
    for part in parts:
        taken = 0
        while taken < part.size:
            room = block[filled : filled + part.size - taken]
            room[:] = part[taken : taken + room.size]
            taken, filled = taken + room.size, filled + room.size
            if filled == BLOCK_SAMPLES:
                yield block
                block, filled = np.empty(BLOCK_SAMPLES, np.float32), 0
    if filled:
        yield block[:filled]
