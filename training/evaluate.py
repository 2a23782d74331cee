"""Measures the model card's table on this machine: `python training/evaluate.py [CHECKPOINT]`, about a minute."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: spinning threads starve the other ones

import torch
from jiwer import process_words

from parakeet_mps.contract import SAMPLE_RATE_HZ, Recognition
from parakeet_mps.engine.recognizer import Recognizer
from testsets import LIMITS, TESTS, Clip, Clips, speak_tests

DEMO = Path(__file__).parent.parent / "models" / "demo.nemo"


class Row(NamedTuple):
    """One condition of the card: word error rate in %, or for clips without words the number of words that came out."""

    condition: str
    clips: int
    seconds: float
    error: float
    spoken: bool
    misheard: list[tuple[str, str]]

    @property
    def within_limit(self) -> bool:
        """Whether a recogniser with this row may be released."""
        return self.error <= LIMITS.get(self.condition, float("inf"))

    def __str__(self) -> str:
        error = f"{self.error:.1f} %" if self.spoken else f"{self.error:.0f} words"
        limit = LIMITS.get(self.condition)
        allowed = "" if limit is None else f"{limit:g} %" if self.spoken else f"{limit:g} words"
        return f"| {self.condition} | {self.clips} | {self.seconds:.0f} | {error} | {allowed} |"


def measure(checkpoint: Path, sets: Mapping[str, tuple[int, Clips]] = TESTS) -> Iterator[Row]:
    """Yield the card's rows for the recogniser in `checkpoint`, one by one as they are measured."""
    recognizer = Recognizer.load(checkpoint, threads=os.cpu_count() or 1)
    for condition, clips in speak_tests(sets).items():
        said, heard = [clip.text for clip in clips], _transcribe(recognizer, clips)
        spoken = any(said)
        error = 100 * process_words(said, heard).wer if spoken else sum(len(text.split()) for text in heard)
        misheard = [pair for pair in zip(said, heard, strict=True) if pair[0] != pair[1]]
        seconds = sum(len(clip.audio) for clip in clips) / SAMPLE_RATE_HZ
        yield Row(condition, len(clips), seconds, error, spoken, misheard)


def _transcribe(recognizer: Recognizer, clips: list[Clip]) -> list[str]:
    texts: list[str] = []
    for start in range(0, len(clips), 16):
        for result in recognizer.recognize([torch.from_numpy(clip.audio.copy()) for clip in clips[start : start + 16]]):
            if not isinstance(result, Recognition):
                raise result
            texts.append(result.text)
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, nargs="?", default=DEMO)
    parser.add_argument("--misheard", type=int, default=0, help="print up to this many misheard sentences of each row")
    arguments = parser.parse_args()
    started, rows = time.monotonic(), []
    print("| condition | clips | seconds | WER | at most |\n|---|--:|--:|--:|--:|")
    for row in measure(arguments.checkpoint):
        print(row, flush=True)
        for said, heard in row.misheard[: arguments.misheard]:
            print(f"    said {said!r}\n    got  {heard!r}")
        rows.append(row)
    print(f"\nMeasured in {time.monotonic() - started:.0f} s.")
    if failed := [row.condition for row in rows if not row.within_limit]:
        raise SystemExit(f"above its limit: {', '.join(failed)}")


if __name__ == "__main__":
    main()
