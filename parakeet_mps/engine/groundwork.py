"""What a recogniser can do on its device before it has weights there: choose and test kernels, have attention planned.

This takes seconds but hardly any memory, so that recognisers which load one after another do it side by side.
"""

from __future__ import annotations

import gc
import logging
from dataclasses import dataclass, field
from typing import Any

import torch

from parakeet_mps.contract import MAX_PIECE_S, SAMPLE_RATE_HZ
from parakeet_mps.engine.acoustics import find_obstacle, longest_frames
from parakeet_mps.engine.buckets import make_grid
from parakeet_mps.engine.counters import Counters
from parakeet_mps.engine.encoder.choice import choose_operations
from parakeet_mps.engine.encoder.layer import attend
from parakeet_mps.engine.encoder.operations import Operations
from parakeet_mps.engine.encoder.reference import PLAIN
from parakeet_mps.engine.encoder.self_check import Sizes

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Groundwork:
    """Where a recogniser computes, with what, in which dtype, and what counts what happens."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32
    operations: Operations = PLAIN
    counters: Counters = field(default_factory=Counters)


@torch.inference_mode()
def lay_groundwork(model: Any, device: torch.device) -> Groundwork:
    """Return that of a NeMo model that was read, in bf16 on CUDA and fp32 elsewhere."""
    counters = Counters()
    if device.type != "cuda":
        return Groundwork(device, counters=counters)
    like, operations = torch.empty(0, dtype=torch.bfloat16, device=device), PLAIN
    if find_obstacle(model) is None:
        sizes = Sizes.of(model.encoder)
        operations = choose_operations(sizes, like, counters)
        plan_attention(sizes, longest_frames(model, MAX_PIECE_S * SAMPLE_RATE_HZ), like)
    # Each capture of a graph collects garbage: walking through all that is there would take a third of a second each.
    gc.collect()
    gc.freeze()
    return Groundwork(device, like.dtype, operations, counters)


def plan_attention(sizes: Sizes, longest: int, like: torch.Tensor) -> None:
    """Compute attention once in every shape that will be captured: cuDNN compiles a plan for each, 50 ms long.

    Where that fails it is said. What comes later plans what is missing, or does without.
    """
    try:
        for bucket in make_grid(longest):
            joint = like.new_zeros(bucket.area, 3 * sizes.channels)
            attend(joint, like.new_zeros(bucket.utterances, sizes.heads, bucket.frames, bucket.frames))
        torch.cuda.empty_cache()
    except RuntimeError as error:  # of CUDA: its memory may not suffice
        log.warning("Attention was not planned: %s", error)
