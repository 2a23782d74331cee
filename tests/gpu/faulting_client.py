"""A CUDA program that writes where it may not. Under MPS its fault is told to every client of the same daemon.

A file of its own, since Triton's compiler reads a kernel's source from its file.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def spoil(place):  # type: ignore[no-untyped-def]
    tl.store(place + (1 << 44), 1)


if __name__ == "__main__":
    spoil[(1,)](torch.zeros(8, dtype=torch.int64, device="cuda"))
    torch.cuda.synchronize()
