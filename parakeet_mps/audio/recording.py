"""One recording, decoded from beginning to end in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from parakeet_mps.audio.container import audio_stream, check_shape, open_container
from parakeet_mps.audio.level import Level
from parakeet_mps.audio.sizes import Sizes, sizes
from parakeet_mps.audio.source import Source
from parakeet_mps.audio.stretch import Samples, Stretch
from parakeet_mps.audio.track import Track, channels_of
from parakeet_mps.contract import MIN_SAMPLES, SAMPLE_RATE_HZ
from parakeet_mps.errors import AudioError

BLOCK_SAMPLES = 10 * SAMPLE_RATE_HZ
"""Most samples in one block."""


class Recording:
    """Decodes `source`, which must be audio of 0.1 s to `max_audio_s` seconds. To be read once."""

    def __init__(self, source: Source, max_audio_s: float) -> None:
        self._source = source
        self._max_samples = int(max_audio_s * SAMPLE_RATE_HZ)
        self.warning: str | None = None

    def blocks(self) -> Iterator[Samples]:
        """Yield the audio: float32 [samples] in [-1, 1], at most `BLOCK_SAMPLES` each; set `warning` at the end.

        Raises `AudioError`, with the reason, where the file is no audio, or has samples that are no numbers, or is
        longer or shorter than allowed.
        """
        found = sizes(self._source)
        options = {"ignore_length": "1"} if found.misleading else {}
        with open_container(self._source, options) as container:
            track = Track(container, audio_stream(container), self._source)
            self._refuse_long_header(track, found)
            decoded = 0
            level = Level()
            for block in _regrouped(_mono(track)):
                decoded += block.size
                if decoded > self._max_samples:
                    raise AudioError(f"The audio is too long; at most {self._max_s:g} s are accepted.")
                yield level.fit(block)
            _refuse_short(decoded, track)
            self.warning = _warning(track, found, decoded / SAMPLE_RATE_HZ)

    @property
    def _max_s(self) -> float:
        return self._max_samples / SAMPLE_RATE_HZ

    def _refuse_long_header(self, track: Track, found: Sizes) -> None:
        if found.cut_short or found.misleading:
            return
        promised_s = track.promised_s()
        # An estimate from the bit rate refuses only what is far too long.
        duration_s = track.estimated_s() / 2 if promised_s is None else promised_s
        if duration_s > self._max_s + 1:
            shown_s = track.estimated_s() if promised_s is None else promised_s
            raise AudioError(f"The audio lasts {shown_s:.0f} s; at most {self._max_s:g} s are accepted.")


def _mono(track: Track) -> Iterator[Samples]:
    """Yield float32 [samples] at `SAMPLE_RATE_HZ`, of any length; a chained file may change its shape on the way."""
    stretch = None
    for frame, gap_s in track.frames():
        shape = (frame.layout.nb_channels, frame.sample_rate)
        if stretch is None or stretch.shape != shape:
            if stretch is not None:
                yield stretch.finish()
            check_shape(*shape)
            stretch = Stretch(*shape)
        yield from stretch.silence(gap_s)
        yield stretch.add(channels_of(frame))
    if stretch is not None:
        yield stretch.finish()


def _regrouped(parts: Iterable[Samples]) -> Iterator[Samples]:
    """Yield the same samples in blocks of `BLOCK_SAMPLES`, and the rest."""
    held: list[Samples] = []
    for part in parts:
        held.append(part)
        while sum(map(len, held)) >= BLOCK_SAMPLES:
            joined = np.concatenate(held)
            yield joined[:BLOCK_SAMPLES]
            held = [joined[BLOCK_SAMPLES:]]
    if sum(map(len, held)):
        yield np.concatenate(held)


def _refuse_short(decoded: int, track: Track) -> None:
    if not decoded and track.damaged:
        raise AudioError("The audio is damaged or cut short: none of it can be decoded.")
    if not decoded:
        raise AudioError("The file has no audio samples.")
    if decoded < MIN_SAMPLES:
        raise AudioError(f"The audio is too short; at least {MIN_SAMPLES / SAMPLE_RATE_HZ:g} s are needed.")


def _warning(track: Track, found: Sizes, decoded_s: float) -> str | None:
    promised_s = track.promised_s() or 0.0
    if found.cut_short:
        return f"The file is cut short: {found.present} of {found.promised} bytes came, {decoded_s:.1f} s of audio."
    if decoded_s + max(0.25, 0.01 * promised_s) < promised_s and not found.misleading:
        return f"The file is cut short: {decoded_s:.1f} of {promised_s:.1f} s of audio came."
    if track.ends_in_damage:
        return f"The file is cut short, or damaged at its end: {decoded_s:.1f} s of audio came."
    if track.damaged:
        return f"The file is damaged: {track.damaged} packets of audio could not be decoded and were left out."
    return None
