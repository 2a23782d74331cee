"""Sentences for a GPU machine that cannot speak them itself: audio and words in one file.

Usage, where espeak-ng is: python tests/gpu/spoken.py [OUT.npz] [--count 200]
"""

from __future__ import annotations

import argparse
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
DEFAULT = HERE / "sentences.npz"
FULL_SCALE = 32768.0


class Sentence(NamedTuple):
    """What was said, and its audio, float32 [samples] at 16 kHz."""

    text: str
    audio: torch.Tensor


def read_sentences(path: Path) -> list[Sentence]:
    """Return the sentences of a file that `main` wrote."""
    with np.load(path) as file:
        samples, ends, texts = file["samples"], file["ends"], file["texts"]
    parts = np.split(samples.astype(np.float32) / FULL_SCALE, ends[:-1])
    return [Sentence(str(text), torch.from_numpy(part.copy())) for text, part in zip(texts, parts, strict=True)]


def main() -> None:
    """Speak sentences that the demo recogniser was not trained on, and write them down."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "training")]
    from parakeet_mps.audio import decode
    from recordings import speech
    from sentences import consultation, draw

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, nargs="?", default=DEFAULT)
    parser.add_argument("--count", type=int, default=200)
    arguments = parser.parse_args()
    rng = random.Random(7)
    texts = [draw(rng, consultation, test=True) for _ in range(arguments.count)]
    with ThreadPoolExecutor(2) as pool:
        audio = list(pool.map(lambda text: decode(speech(text), max_audio_s=60).numpy(), texts))
    samples = [np.clip(np.rint(part * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype(np.int16) for part in audio]
    ends = np.cumsum([len(part) for part in samples])
    np.savez_compressed(arguments.out, samples=np.concatenate(samples), ends=ends, texts=np.array(texts))
    print(f"{arguments.out}: {len(texts)} sentences, {ends[-1] / 16_000:.0f} s")


if __name__ == "__main__":
    main()
