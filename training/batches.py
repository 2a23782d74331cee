"""Training batches drawn from the shards: single and joined utterances with silences, distorted, some of pure noise."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from augment import SAMPLE_RATE_HZ, add_noise, change_pace, colour, noise, set_gain

JOINED_SHARE = 0.25
JOIN_FROM = 0.12
"""Share of training before which sentences come alone: joined ones only confuse a model that knows no word."""
EMPTY_SHARE = 0.04


@dataclass
class Batch:
    """Waveforms float32 [utterances, samples], their lengths int64 [utterances], and the token ids of what was said."""

    audio: torch.Tensor
    lengths: torch.Tensor
    tokens: list[list[int]]


class Corpus:
    """All shards of a folder, held as one int16 tensor on `device`; utterances sorted by length."""

    def __init__(self, folder: Path, device: torch.device, tokenize: Callable[[str], list[int]]) -> None:
        self.folder, self.device, self.tokenize = folder, device, tokenize
        self.seen: set[Path] = set()
        self.pieces: list[tuple[int, torch.Tensor, list[int]]] = []

    def refresh(self) -> int:
        """Take in the shards that appeared since the last call. Returns the number of utterances held."""
        new = [path for path in sorted(self.folder.glob("shard-?????.npz")) if path not in self.seen]
        for path in new:
            self._take(path)
        if new:
            self.pieces.sort(key=lambda piece: piece[0])
            self.durations = [piece[0] for piece in self.pieces]
        return len(self.pieces)

    def _take(self, path: Path) -> None:
        shard = np.load(path)
        audio = torch.from_numpy(shard["audio"]).to(self.device)
        start = 0
        for end, text in zip(shard["ends"].tolist(), shard["texts"].tolist(), strict=True):
            self.pieces.append((end - start, audio[start:end], self.tokenize(text)))
            start = end
        self.seen.add(path)

    def draw(self, rng: random.Random, seconds: float, progress: float) -> Batch:
        """Draw a batch of about `seconds` of audio, padding included; `progress` is the share of training done."""
        joined = progress > JOIN_FROM and rng.random() < JOINED_SHARE
        items = self._joined(rng, seconds) if joined else self._single(rng, seconds)
        return self._assemble(rng, items)

    def _single(self, rng: random.Random, seconds: float) -> list[list[int]]:
        centre = rng.randrange(len(self.pieces))
        count = max(1, int(seconds * SAMPLE_RATE_HZ / (self.durations[centre] + SAMPLE_RATE_HZ)))
        window = range(max(0, centre - 2 * count), min(len(self.pieces), centre + 2 * count))
        return [[index] for index in rng.sample(window, min(count, len(window)))]

    def _joined(self, rng: random.Random, seconds: float) -> list[list[int]]:
        limit = rng.uniform(8, 40) * SAMPLE_RATE_HZ
        longest = bisect_left(self.durations, limit * 0.9)
        items = []
        for _ in range(max(1, int(seconds * SAMPLE_RATE_HZ / limit))):
            item, length = [], 0
            while length < limit:
                item.append(rng.randrange(longest))
                length += self.durations[item[-1]] + SAMPLE_RATE_HZ // 3
            items.append(item[:-1] or item)
        return items

    def _assemble(self, rng: random.Random, items: list[list[int]]) -> Batch:
        placed, tokens, lengths = [], [], []
        for item in items:
            cursor = int(rng.choice((0.0, 0.1, 0.3, rng.uniform(0, 2.0))) * SAMPLE_RATE_HZ)
            for index in item:
                duration, audio, _ = self.pieces[index]
                placed.append((len(tokens), cursor, audio))
                cursor += duration + int(rng.choice((0.0, rng.uniform(0, 0.8))) * SAMPLE_RATE_HZ)
            tokens.append([token for index in item for token in self.pieces[index][2]])
            lengths.append(cursor + int(rng.choice((0.0, 0.1, rng.uniform(0, 2.0))) * SAMPLE_RATE_HZ))
        audio = torch.zeros(len(items), max(lengths), device=self.device)
        for row, cursor, samples in placed:
            audio[row, cursor : cursor + len(samples)] = samples.float() / 32768
        return self._distort(rng, audio, lengths, tokens)

    def _distort(self, rng: random.Random, audio: torch.Tensor, lengths: list[int], tokens: list[list[int]]) -> Batch:
        factor = rng.choice((1.0, rng.uniform(0.88, 1.14)))
        audio = change_pace(audio, factor) if factor != 1.0 else audio
        length = (torch.tensor(lengths, device=self.device) / factor).long().clamp_max(audio.shape[1])
        silent = audio == 0
        audio = self._empty_some(rng, audio, tokens)
        audio = set_gain(add_noise(colour(audio)))
        # Recorders that gate: the gaps between sentences, and silences before and after, become exact zeros for a few.
        gated = torch.rand(audio.shape[0], 1, device=self.device) < 0.15
        outside = torch.arange(audio.shape[1], device=self.device)[None] >= length[:, None]
        return Batch(audio.masked_fill((silent & gated) | outside, 0.0), length, tokens)

    def _empty_some(self, rng: random.Random, audio: torch.Tensor, tokens: list[list[int]]) -> torch.Tensor:
        empty = [row for row in range(len(tokens)) if rng.random() < EMPTY_SHARE]
        if empty := empty[: len(tokens) - 1]:  # the loss needs one word in every batch
            loudness = torch.tensor(
                [[rng.choice((0.0, 10 ** rng.uniform(-4, -0.5)))] for _ in empty], device=self.device
            )
            audio[empty] = noise(audio[empty]) * loudness
        for row in empty:
            tokens[row] = []
        return audio
