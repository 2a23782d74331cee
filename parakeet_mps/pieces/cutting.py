"""A stream of waveform blocks -> pieces cut at quiet points, in bounded memory.

A piece ends in the middle of a pause. Where nobody pauses it ends at the quietest moment, and then it shares some audio
with the next piece, so that a word across the cut is heard whole on one side at least; `joining` drops what is heard
twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from parakeet_mps.contract import SAMPLE_RATE_HZ
from parakeet_mps.pieces.quiet import FRAME_SAMPLES, find_pauses, quietest
from parakeet_mps.power import power_db

SHARED_S = 1.25
"""Audio beyond a cut inside speech that each of the two pieces hears: three words. Less costs word error: with 0.8 s in
pieces of 5 s, 0.2 points more."""

LEAST_LEFT_S = 0.5
"""No cut leaves less than this for the last piece: a shorter one holds hardly a word."""

GOOD_PAUSE_S = 0.6
"""Pauses this long are all equally good; among them the last one makes the fewest pieces."""

_SOON = 0.9
"""A pause in this part of the longest piece is taken before a later one. The rest is a reserve for those who speak on:
few cuts are inside speech, and few pieces are as long as allowed, for which other requests would wait longest."""

SILENCE_PEAK = 2.0**-15
"""Largest magnitude of digital silence: the last bit of 16-bit audio."""

HUSH_PEAK = 2.0**-11
"""Largest magnitude of the near silence that is left off at the ends of a piece, in a piece of ordinary loudness."""

_HUSH_BELOW_PEAK = 0.01

SILENCE_KEPT_S = 0.1
"""Near silence that a piece keeps at its ends. Parakeet goes deaf to short speech when 0.4 s of it follow.
https://github.com/NVIDIA-NeMo/Speech/issues/15757"""


@dataclass(frozen=True, slots=True)
class Piece:
    """A span of the recording, `start_s` to `end_s`, and what the recogniser hears of it.

    `waveform` is float32 [samples] and begins at `heard_s`: later than `start_s` where there is near silence, earlier
    where the piece shares audio with the one before. It is empty when there is nothing but digital silence.
    `continued` says that the piece shares audio with the next one.
    """

    start_s: float
    end_s: float
    waveform: torch.Tensor
    heard_s: float
    continued: bool = False


class Cutter:
    """Cuts one recording into pieces of at most `piece_s` seconds. Holds one piece and one block at most."""

    def __init__(self, piece_s: float) -> None:
        self._limit = int(piece_s * SAMPLE_RATE_HZ)
        self._shared = min(int(SHARED_S * SAMPLE_RATE_HZ), self._limit // 4)
        self._blocks: list[torch.Tensor] = []
        self._held_samples = 0
        self._held_at = 0  # sample of the recording at which what is held begins
        self._lead = 0  # samples of it that the piece before answers for

    def push(self, block: torch.Tensor) -> Iterator[Piece]:
        """Take the next block, float32 [samples], and yield the pieces that are complete."""
        self._blocks.append(block)
        self._held_samples += block.numel()
        while self._held_samples >= self._limit + LEAST_LEFT_S * SAMPLE_RATE_HZ:
            yield self._cut(self._joined())

    def finish(self) -> Iterator[Piece]:
        """Yield the last pieces: what is left when the recording has ended."""
        while self._held_samples > self._limit:
            yield self._cut(self._joined())
        if self._held_samples > self._lead:
            yield self._piece(self._joined(), self._held_samples)

    def _joined(self) -> torch.Tensor:
        """Return all that is held, float32 [samples]. Blocks are joined only where a piece ends: it is a copy."""
        if len(self._blocks) > 1:
            self._blocks = [torch.cat(self._blocks)]
        return self._blocks[0]

    def _cut(self, held: torch.Tensor) -> Piece:
        loudness = power_db(held[: self._limit], FRAME_SAMPLES)
        first = (self._lead + self._limit // 4) // FRAME_SAMPLES
        if pauses := find_pauses(loudness, first):
            early = [pause for pause in pauses if pause.middle <= _SOON * len(loudness)]
            best = max(early or pauses, key=lambda pause: (min(pause.seconds, GOOD_PAUSE_S), pause.end))
            end = best.middle * FRAME_SAMPLES
            shared = 0
        else:
            last = (self._limit - self._shared) // FRAME_SAMPLES
            end = quietest(loudness, max(first, last // 2), last) * FRAME_SAMPLES
            shared = self._shared
        piece = self._piece(held[: end + shared].clone(), end)  # views would keep all of it in memory
        self._blocks = [held[end - shared :].clone()]
        self._held_samples -= end - shared
        self._held_at += end - shared
        self._lead = shared
        return piece

    def _piece(self, heard: torch.Tensor, end: int) -> Piece:
        """Return the piece that hears the first samples that are held, and answers for them up to `end`."""
        begin, waveform = _without_silent_ends(heard)
        return Piece(
            start_s=(self._held_at + self._lead) / SAMPLE_RATE_HZ,
            end_s=(self._held_at + end) / SAMPLE_RATE_HZ,
            waveform=waveform,
            heard_s=(self._held_at + begin) / SAMPLE_RATE_HZ,
            continued=heard.numel() > end,
        )


def _without_silent_ends(waveform: torch.Tensor) -> tuple[int, torch.Tensor]:
    """Return the waveform without the near silence at its ends, and the sample at which it begins."""
    samples = waveform.numpy()
    peak = float(max(samples.max(), -samples.min()))
    if peak <= SILENCE_PEAK:
        return 0, waveform[:0].clone()
    hush = min(HUSH_PEAK, max(SILENCE_PEAK, _HUSH_BELOW_PEAK * peak))
    kept = int(SILENCE_KEPT_S * SAMPLE_RATE_HZ)
    begin = max(0, _first_above(samples, hush) - kept)
    end = len(samples) - 1 - _first_above(samples[::-1], hush) + kept
    begin -= begin % FRAME_SAMPLES  # keeps all times short in decimals
    sounding = waveform[begin:end]
    # A view keeps all of the waveform in memory: not worth it for a small part.
    return begin, sounding if 2 * sounding.numel() >= waveform.numel() else sounding.clone()


def _first_above(samples: NDArray[np.float32], magnitude: float) -> int:
    """Return the first sample of a greater magnitude, of which there must be one."""
    for begin in range(0, len(samples), SAMPLE_RATE_HZ):
        above = np.abs(samples[begin : begin + SAMPLE_RATE_HZ]) > np.float32(magnitude)
        if above.any():
            return begin + int(above.argmax())
    raise ValueError("no sample is that loud")
