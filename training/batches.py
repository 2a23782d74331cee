"""Training batches of few shapes: single and joined utterances with silences, drawn by workers from the shards."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from augment import add_noise, change_pace, colour, noise, set_gain
from voices import SAMPLE_RATE_HZ

LENGTHS_S = (2.0, 2.75, 3.5, 4.25, 5.0, 6.0, 7.25, 9.0, 12.0, 16.0, 22.0, 30.0, 40.0)
"""Few shapes, because cuDNN and cuFFT prepare each one anew: as many milliseconds as a step of this small model."""
JOINED_SHARE = 0.25
JOINED_FROM_S = 9.0
EMPTY_SHARE = 0.04
REFRESH_BATCHES = 40


class Batch(NamedTuple):
    """Waveforms int16 [B, samples], lengths int64 [B] in samples, token ids int64 [B, U], counts int64 [B].

    `empty` bool [B] marks the rows to be replaced by noise; they have no tokens. The first row is full length.
    """

    audio: torch.Tensor
    lengths: torch.Tensor
    targets: torch.Tensor
    counts: torch.Tensor
    empty: torch.Tensor


def rows_of(seconds: float, length_s: float) -> int:
    """Return how many utterances of `length_s` make a batch of about `seconds`."""
    return max(8, int(seconds / length_s) // 8 * 8)


class Corpus(torch.utils.data.IterableDataset[Batch]):
    """An endless stream of batches from all shards in a folder, also those that appear while it runs."""

    def __init__(self, folder: Path, seconds: float, tokenize: Callable[[str], list[int]]) -> None:
        self.folder, self.seconds, self.tokenize = folder, seconds, tokenize
        self.seen: set[Path] = set()
        self.pieces: list[tuple[int, np.ndarray, list[int]]] = []

    def __iter__(self) -> Iterator[Batch]:
        info = torch.utils.data.get_worker_info()
        rng = random.Random(info.seed if info else 0)
        while True:
            self._refresh()
            for _ in range(REFRESH_BATCHES):
                yield self._draw(rng)

    def _refresh(self) -> None:
        for path in sorted(self.folder.glob("shard-?????.npz")):
            if path not in self.seen:
                self._take(path)
        self.pieces.sort(key=lambda piece: piece[0])
        self.durations = [piece[0] for piece in self.pieces]

    def _take(self, path: Path) -> None:
        self.seen.add(path)
        shard, audio = np.load(path), np.load(path.with_suffix(".npy"), mmap_mode="r")
        start = 0
        for end, text in zip(shard["ends"].tolist(), shard["texts"].tolist(), strict=True):
            self.pieces.append((end - start, audio[start:end], self.tokenize(text)))
            start = end

    def _draw(self, rng: random.Random) -> Batch:
        if rng.random() < JOINED_SHARE:
            length_s = rng.choice([length for length in LENGTHS_S if length >= JOINED_FROM_S])
            compose = self._join
        else:
            wanted = rng.choice(self.durations) / SAMPLE_RATE_HZ + rng.uniform(0.1, 1.0)
            length_s = next((length for length in LENGTHS_S if length >= wanted), LENGTHS_S[-1])
            compose = self._pick
        samples = int(length_s * SAMPLE_RATE_HZ)
        return _assemble(rng, samples, [compose(rng, samples) for _ in range(rows_of(self.seconds, length_s))])

    def _pick(self, rng: random.Random, samples: int) -> list[tuple[int, np.ndarray, list[int]]]:
        """One utterance that fits, somewhere in the row."""
        low, high = bisect_left(self.durations, samples * 0.5), bisect_left(self.durations, samples * 0.96)
        duration, audio, tokens = self.pieces[rng.randrange(min(low, max(0, high - 200)), max(high, 1))]
        return [(rng.randint(0, max(0, samples - duration)), audio[:samples], tokens)]

    def _join(self, rng: random.Random, samples: int) -> list[tuple[int, np.ndarray, list[int]]]:
        """Utterances one after another, up to the end of the row."""
        row, cursor = [], int(rng.choice((0.0, 0.1, rng.uniform(0, 3.0))) * SAMPLE_RATE_HZ)
        longest = bisect_left(self.durations, samples * 0.6)
        while True:
            duration, audio, tokens = self.pieces[rng.randrange(longest)]
            if cursor + duration > samples:
                return row
            row.append((cursor, audio, tokens))
            cursor += duration + int(rng.choice((0.0, rng.uniform(0, 0.8), rng.uniform(0, 0.8))) * SAMPLE_RATE_HZ)


def _assemble(rng: random.Random, samples: int, rows: list[list[tuple[int, np.ndarray, list[int]]]]) -> Batch:
    audio = np.zeros((len(rows), samples), np.int16)
    empty = [number > 0 and rng.random() < EMPTY_SHARE for number in range(len(rows))]
    tokens, lengths = [], []
    for number, row in enumerate(rows):
        for cursor, piece, _ in row:
            audio[number, cursor : cursor + len(piece)] = piece
        end = max((cursor + len(piece) for cursor, piece, _ in row), default=samples)
        lengths.append(samples if number == 0 else rng.randint(end, samples) if rng.random() < 0.8 else samples)
        tokens.append([] if empty[number] else [token for _, _, ids in row for token in ids])
    counts = [len(ids) for ids in tokens]
    targets = [ids + [0] * (max(counts) - len(ids)) for ids in tokens]
    return Batch(torch.from_numpy(audio), *map(torch.tensor, (lengths, targets, counts, empty)))


def distort(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the batch's waveforms float32 [B, samples] and lengths int64 [B], distorted on the device it lies on."""
    audio, lengths = change_pace(batch.audio.float() / 32768, batch.lengths)
    silent = audio == 0
    audio = torch.where(batch.empty[:, None], noise(audio) * 0.1, audio)
    audio = set_gain(add_noise(colour(audio)))
    # Recorders that gate: the gaps between sentences, and silences before and after, become exact zeros for a few.
    gated = torch.rand(len(audio), 1, device=audio.device) < 0.15
    outside = torch.arange(audio.shape[1], device=audio.device)[None] >= lengths[:, None]
    return audio.masked_fill((silent & gated) | outside, 0.0), lengths
