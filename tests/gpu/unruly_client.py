"""A CUDA program that is a bad neighbour: under MPS the other clients of the same daemon feel what it does.

Usage: python tests/gpu/unruly_client.py fault            writes where it may not; its fault is told to every client
       python tests/gpu/unruly_client.py hang SECONDS     takes every multiprocessor for so long
       python tests/gpu/unruly_client.py take MIB MIB     prints for each size whether it can have so much memory

A file of its own, since Triton's compiler reads a kernel's source from its file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import triton
import triton.language as tl
from triton.language.extra import cuda


@triton.jit
def spoil(place):  # type: ignore[no-untyped-def]
    tl.store(place + (1 << 44), 1)


@triton.jit
def occupy(place, nanoseconds):  # type: ignore[no-untyped-def]
    begin = cuda.globaltimer()
    now = begin
    while now - begin < nanoseconds:
        now = cuda.globaltimer()
    tl.store(place, now)


def fault() -> None:
    """Write far outside of what is allocated."""
    spoil[(1,)](torch.zeros(8, dtype=torch.int64, device="cuda"))
    torch.cuda.synchronize()


def hang(seconds: str) -> None:
    """Take every multiprocessor's room for 2,048 threads, so that no other work begins meanwhile."""
    programs = 2 * torch.cuda.get_device_properties(0).multi_processor_count
    occupy[(programs,)](torch.zeros(8, dtype=torch.int64, device="cuda"), int(float(seconds) * 1e9), num_warps=32)
    torch.cuda.synchronize()


def take(*sizes: str) -> None:
    """Print True or False for each size (MiB)."""
    for size in sizes:
        try:
            torch.empty(int(size) << 20, dtype=torch.uint8, device="cuda")
            print(True)
        except torch.cuda.OutOfMemoryError:
            print(False)
        torch.cuda.empty_cache()


DEEDS: dict[str, Callable[..., None]] = {"fault": fault, "hang": hang, "take": take}

if __name__ == "__main__":
    DEEDS[sys.argv[1]](*sys.argv[2:])
