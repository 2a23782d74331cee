"""Which way the encoder's operations are computed: by our kernels on CUDA in bf16 where they work, else plainly."""

from __future__ import annotations

import logging
from dataclasses import fields

import torch

from parakeet_mps.engine.counters import Counters
from parakeet_mps.engine.encoder.operations import Operations
from parakeet_mps.engine.encoder.reference import PLAIN
from parakeet_mps.engine.encoder.self_check import Sizes, find_difference

log = logging.getLogger(__name__)


def choose_operations(sizes: Sizes, like: torch.Tensor, counters: Counters) -> Operations:
    """Return the fastest operations that work for a model of these `sizes` with the dtype and device of `like`.

    What does not work is counted as `self_test_failed`.
    """
    if like.device.type != "cuda" or like.dtype != torch.bfloat16:
        return PLAIN
    try:
        from parakeet_mps.engine.encoder.kernels import KERNELS
    except ImportError as error:  # PyTorch came without Triton's compiler
        log.warning("The encoder runs without kernels of its own: %s", error)
        counters.add("self_test_failed")
        return PLAIN
    return keep_right(KERNELS, sizes, like, counters)


def keep_right(operations: Operations, sizes: Sizes, like: torch.Tensor, counters: Counters) -> Operations:
    """Return `operations` with a plain one in the place of each that fails or computes otherwise.

    Each of those is warned of and counted as `self_test_failed`.
    """
    chosen = {}
    for name in (field.name for field in fields(Operations)):
        try:
            reason = find_difference(name, operations, PLAIN, sizes, like)
        except Exception as error:  # noqa: BLE001 - a compiler's, a driver's: there is another way
            reason = f"{type(error).__name__}: {error}"
        if reason:
            log.warning("The encoder's kernel to %s is not used: %s", name, reason)
            counters.add("self_test_failed")
        chosen[name] = getattr(PLAIN if reason else operations, name)
    return Operations(**chosen)
