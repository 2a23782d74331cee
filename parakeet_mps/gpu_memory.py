"""How much GPU memory one recogniser takes, and how many therefore fit: sums, each part with its name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from parakeet_mps.contract import MAX_PIECE_S
from parakeet_mps.engine.buckets import FRAME_BYTES

RESERVE_MB = 2048
"""Left for Triton's own CUDA context (0.5 GiB, measured on an H200), the MPS server and fragmentation."""

CONTEXT_MB = 512
"""A process's CUDA context with PyTorch's kernels."""

GRAPHS_MB = 1024
"""CUDA graphs and the buffers that they read and write, over all their shapes.

With it the sum is 6.1 GiB for 0.6 B weights in half precision, what each of four recognisers took of an H200 before the
encoder had kernels of its own, without which it still runs. With them it takes 3.6 GiB.
"""

FRAME_S = 0.08
UTTERANCE_MB = round(MAX_PIECE_S / FRAME_S) * FRAME_BYTES / 2**20
"""What one utterance of the longest piece takes while it is encoded."""

DEFAULT_WEIGHTS_MB = 2400
"""A checkpoint of 0.6 B parameters in fp32, as it is loaded before the weights are turned to bf16."""


def weights_mb(checkpoint: Path) -> int:
    """Return the size of a checkpoint's file, which holds little but its weights; a usual one when it is not there."""
    try:
        return checkpoint.stat().st_size // 2**20 + 1
    except OSError:
        return DEFAULT_WEIGHTS_MB


@dataclass(frozen=True)
class InstanceMemory:
    """GPU memory of one recogniser in MiB, at its largest."""

    weights_mb: int
    workspace_mb: int

    @classmethod
    def of(cls, weights_mb: int, max_batch_size: int) -> InstanceMemory:
        """The memory of a recogniser whose checkpoint has `weights_mb`."""
        return cls(weights_mb, round(UTTERANCE_MB * max_batch_size))

    @property
    def total_mb(self) -> int:
        """All parts together."""
        return CONTEXT_MB + self.weights_mb + GRAPHS_MB + self.workspace_mb

    def fitting(self, gpu_mb: int) -> int:
        """How many fit into a GPU of `gpu_mb`, beside the reserve."""
        return max(0, gpu_mb - RESERVE_MB) // self.total_mb

    def __str__(self) -> str:
        return (
            f"{self.total_mb} MiB each (context {CONTEXT_MB}, weights {self.weights_mb}, graphs {GRAPHS_MB}, "
            f"largest batch {self.workspace_mb})"
        )
