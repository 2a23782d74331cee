"""The frontend captured into CUDA graphs, one for each bucket, before the first request and never again.

A capture is a function: it takes work that reads and writes fixed tensors, and returns what repeats that work. So the
same code runs without CUDA, where repeating means calling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from parakeet_mps.engine.acoustics import EagerAcoustics
from parakeet_mps.engine.buckets import Bucket, choose
from parakeet_mps.engine.counters import Counters

Work = Callable[[], None]
Capture = Callable[[Work], Work]


class CudaCapture:
    """Captures work into CUDA graphs on `stream`; they share one pool of memory, so they must run one at a time."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        """Run `work` once, so that libraries make their plans, capture it, and return its replay."""
        with torch.cuda.stream(self._stream):
            work()
        self._stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Other threads of the process, Triton's among them, may call CUDA meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            work()
        return graph.replay


class GraphedAcoustics:
    """Encodes batches in the smallest bucket that has room for them; through `fallback` where none has.

    All buckets share their memory: audio is laid out in pinned memory, copied to the device without waiting, encoded
    there into one buffer. True lengths go in with the audio, so what lies beyond them does not count.
    """

    @torch.inference_mode()
    def __init__(
        self,
        fallback: EagerAcoustics,
        grid: Sequence[Bucket],
        device: torch.device,
        capture: Capture,
        counters: Counters,
    ) -> None:
        frontend = fallback.frontend
        self._frontend, self._fallback, self._counters = frontend, fallback, counters
        area, most = max(bucket.area for bucket in grid), max(bucket.utterances for bucket in grid)
        pinned = device.type == "cuda"
        self._staged = torch.zeros(area * frontend.frame_samples, pin_memory=pinned)
        self._staged_samples = torch.zeros(most, dtype=torch.int64, pin_memory=pinned)
        self._signals = torch.zeros_like(self._staged, device=device, pin_memory=False)
        self._samples = torch.zeros_like(self._staged_samples, device=device, pin_memory=False)
        self._encoded = torch.zeros(area * frontend.channels, dtype=frontend.dtype, device=device)
        self._lengths = torch.zeros_like(self._samples)
        self._works = {bucket: self._work(bucket) for bucket in grid}
        self._replays = {bucket: capture(work) for bucket, work in self._works.items()}

    def __call__(self, utterances: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """See `Acoustics`."""
        bucket = self._choose(utterances)
        self._counters.add("graph_hits" if bucket else "graph_misses")
        if bucket:
            self._counters.add("padded_frames", bucket.area)
            self._counters.add("true_frames", sum(map(self._frames, utterances)))
        return self._encode(bucket, self._replays, utterances)

    def replayed(self, utterances: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Do what a call does, without counting it."""
        return self._encode(self._choose(utterances), self._replays, utterances)

    def eagerly(self, utterances: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Do what a call does, in the same bucket, without its graph and without counting it."""
        return self._encode(self._choose(utterances), self._works, utterances)

    def _choose(self, utterances: Sequence[torch.Tensor]) -> Bucket | None:
        return choose(tuple(self._replays), len(utterances), max(map(self._frames, utterances)))

    def _frames(self, utterance: torch.Tensor) -> int:
        return -(-utterance.numel() // self._frontend.frame_samples)

    def _encode(
        self, bucket: Bucket | None, works: Mapping[Bucket, Work], utterances: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if bucket is None:
            return self._fallback(utterances)
        staged = self._view(self._staged, bucket, self._frontend.frame_samples)
        self._staged_samples.zero_()
        for row, utterance in enumerate(utterances):
            staged[row, : utterance.numel()] = utterance
            self._staged_samples[row] = utterance.numel()
        self._view(self._signals, bucket, self._frontend.frame_samples).copy_(staged, non_blocking=True)
        self._samples.copy_(self._staged_samples, non_blocking=True)
        works[bucket]()
        encoded = self._view(self._encoded, bucket, self._frontend.channels)
        encoded = encoded.view(bucket.utterances, bucket.frames, -1)
        return encoded[: len(utterances)], self._lengths[: len(utterances)]

    def _work(self, bucket: Bucket) -> Work:
        signals = self._view(self._signals, bucket, self._frontend.frame_samples)
        out = self._view(self._encoded, bucket, self._frontend.channels)

        def work() -> None:
            encoded, lengths = self._frontend(signals, self._samples[: bucket.utterances])
            out.copy_(encoded.flatten(1))
            self._lengths[: bucket.utterances].copy_(lengths)

        return work

    @staticmethod
    def _view(flat: torch.Tensor, bucket: Bucket, width: int) -> torch.Tensor:
        """Return the part of a buffer that a bucket uses, as [utterances, frames x `width`]."""
        return flat[: bucket.area * width].view(bucket.utterances, -1)
