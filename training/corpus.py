"""Speaks a corpus into shards: `python corpus.py OUT --shards 400 --jobs 14`.

One shard is 1,000 utterances: a .npy with their audio, int16 [samples], and a .npz with `ends` int64 [utterances]
(offsets into the audio) and `texts`. The .npz is moved into place last, so a trainer may read the
folder while it fills.
"""

from __future__ import annotations

import argparse
import os
import random
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from sentences import consultation, draw, random_words
from voices import speak, trained_voice

UTTERANCES_PER_SHARD = 1000


def utterance(rng: random.Random) -> tuple[str, np.ndarray]:
    """Return one training utterance: its text and its int16 samples."""
    text = draw(rng, rng.choice((consultation, random_words)), test=False)
    return text, speak(text, trained_voice(rng), rng)


def write_shard(path: Path, utterances: list[tuple[str, np.ndarray]]) -> None:
    """Write the utterances to `path`, whole or not at all."""
    audio = np.concatenate([samples for _, samples in utterances])
    ends = np.cumsum([len(samples) for _, samples in utterances])
    np.save(path.with_suffix(".npy"), audio)
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, ends=ends, texts=np.array([text for text, _ in utterances]))
    partial.replace(path)


def speak_shard(path: Path, seed: int) -> None:
    """Speak one shard of the training corpus."""
    rng = random.Random(seed)
    write_shard(path, [utterance(rng) for _ in range(UTTERANCES_PER_SHARD)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shards", type=int, default=400)
    parser.add_argument("--first", type=int, default=0, help="number of the first shard, which is also its seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        numbers = range(arguments.first, arguments.first + arguments.shards)
        paths = [arguments.out / f"shard-{number:05d}.npz" for number in numbers]
        list(pool.map(speak_shard, paths, numbers))


if __name__ == "__main__":
    main()
