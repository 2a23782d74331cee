"""A stream of waveform blocks -> pieces cut at quiet points, in bounded memory.

A piece ends in the middle of a pause. Where nobody pauses it ends at the quietest moment, and then it shares some audio
with the next piece, so that a word across the cut is heard whole on one side at least; `joining` drops what is heard
twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

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
        self._held = torch.zeros(0)
        self._held_at = 0  # sample of the recording at which `_held` begins
        self._lead = 0  # samples of `_held` that the piece before answers for

    def push(self, block: torch.Tensor) -> Iterator[Piece]:
        """Take the next block, float32 [samples], and yield the pieces that are complete."""
        self._held = torch.cat([self._held, block])
        while self._held.numel() >= self._limit + LEAST_LEFT_S * SAMPLE_RATE_HZ:
            yield self._cut()

    def finish(self) -> Iterator[Piece]:
        """Yield the last pieces: what is left when the recording has ended."""
        while self._held.numel() > self._limit:
            yield self._cut()
        if self._held.numel() > self._lead:
            yield self._piece(self._held.numel(), self._held.numel())

    def _cut(self) -> Piece:
        loudness = power_db(self._held[: self._limit], FRAME_SAMPLES)
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
        piece = self._piece(end, end + shared)
        self._held = self._held[end - shared :].clone()  # a view would keep the whole block in memory
        self._held_at += end - shared
        self._lead = shared
        return piece

    def _piece(self, end: int, heard_end: int) -> Piece:
        """Return the piece that answers for `_held` up to `end` and hears it up to `heard_end` (samples)."""
        begin, waveform = _without_silent_ends(self._held[:heard_end])
        return Piece(
            start_s=(self._held_at + self._lead) / SAMPLE_RATE_HZ,
            end_s=(self._held_at + end) / SAMPLE_RATE_HZ,
            waveform=waveform,
            heard_s=(self._held_at + begin) / SAMPLE_RATE_HZ,
            continued=heard_end > end,
        )


def _without_silent_ends(waveform: torch.Tensor) -> tuple[int, torch.Tensor]:
    """Return the waveform without the near silence at its ends, and the sample at which it begins."""
    magnitude = waveform.abs()
    peak = magnitude.max().item()
    if peak <= SILENCE_PEAK:
        return 0, waveform[:0].clone()
    sounds = torch.nonzero(magnitude > min(HUSH_PEAK, max(SILENCE_PEAK, _HUSH_BELOW_PEAK * peak)))
    kept = int(SILENCE_KEPT_S * SAMPLE_RATE_HZ)
    begin, end = max(0, int(sounds[0]) - kept), int(sounds[-1]) + kept
    begin -= begin % FRAME_SAMPLES  # keeps all times short in decimals
    return begin, waveform[begin:end].clone()
