"""The shapes for which the encoder is captured, and which of them a batch is padded to. Pure.

A finer grid pads less, takes longer to capture and keeps more graphs. Over durations spread evenly from 1 to 60 s the
lengths here make 12 % of the frames padding, the plainer 5, 15, 30, 45 and 60 s 18 %. Sizes double: what is padded in
a small batch is time that the card would idle, and large batches arrive whole because the dynamic batcher prefers them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ALIGNMENT = 8
"""Frames of every bucket are a multiple of this: attention's kernels want the rows of a bias aligned to 16 bytes."""

BATCHES = (1, 2, 4, 8, 16)
FRAMES = (64, 128, 192, 280, 376, 472, 568, 752)
"""Encoder frames of 80 ms: 5.1, 10.2, 15.4, 22.4, 30.1, 37.8, 45.4 and 60.2 s."""

GRAPH_MEMORY = 4 << 30
"""Bytes that what is computed inside CUDA graphs may take; enough for a batch of 16 of 60 s."""

FRAME_BYTES = 300_000
"""What one frame of one utterance takes while it is computed: most of it is the first subsampling layer's output.

That is four times 64 mels times 256 channels in bf16, 131 kB, which may be there twice.
"""


@dataclass(frozen=True)
class Bucket:
    """A shape: so many utterances of so many encoder frames each."""

    utterances: int
    frames: int

    @property
    def area(self) -> int:
        """Frames in all, to which time and memory are roughly proportional."""
        return self.utterances * self.frames


def make_grid(longest: int, memory: int = GRAPH_MEMORY, batches: Iterable[int] = BATCHES) -> tuple[Bucket, ...]:
    """Return the buckets for utterances of up to `longest` frames that fit `memory` (bytes), largest first.

    Largest first, because graphs share one pool: what the first one takes is room enough for all others.
    """
    lengths = [frames for frames in FRAMES if frames < longest] + [align(longest)]
    buckets = [Bucket(utterances, frames) for utterances in batches for frames in lengths]
    fitting = [bucket for bucket in buckets if bucket.area * FRAME_BYTES <= memory]
    return tuple(sorted(fitting, key=lambda bucket: (-bucket.area, -bucket.utterances)))


def choose(grid: Sequence[Bucket], utterances: int, frames: int) -> Bucket | None:
    """Return the smallest bucket of `grid` with room for so many utterances of so many frames; `None` if none has."""
    fitting = [bucket for bucket in grid if bucket.utterances >= utterances and bucket.frames >= frames]
    return min(fitting, key=lambda bucket: (bucket.area, bucket.utterances), default=None)


def align(frames: int) -> int:
    """Return the next multiple of `ALIGNMENT`."""
    return -(-frames // ALIGNMENT) * ALIGNMENT
