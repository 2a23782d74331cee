"""Compiles the decoder's kernels for an H200, at the sizes of Parakeet 0.6 B, on a machine that need not have one.

Usage: python tests/gpu/compile_kernels.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from parakeet_mps.engine.tdt import kernels

HOPPER = GPUTarget("cuda", 90, 32)
BF16, FP32, INT32, NUMBER = "*bf16", "*fp32", "*i32", "i32"
TILE = {"SIZE": 640, "BLOCK": 128, "ROWS": 16, "COLUMNS": 16}
KERNELS: list[tuple[Any, list[str], dict[str, Any]]] = [
    (kernels._join, [BF16, BF16, INT32, INT32, BF16, FP32, FP32, NUMBER, NUMBER], TILE),
    (kernels._join, [BF16, BF16, INT32, INT32, BF16, FP32, FP32, NUMBER, NUMBER], {**TILE, "COLUMNS": 64}),
    (kernels._decide, [FP32] + [INT32] * 11 + [FP32] + [NUMBER] * 4, {"TOKENS": 16384, "DURATIONS": 8}),
    (kernels._advance, [FP32] + [BF16] * 5 + [FP32, INT32, INT32], {"FIRST": True, **TILE}),
    (kernels._advance, [FP32] + [BF16] * 5 + [FP32, INT32, INT32], {"FIRST": False, **TILE}),
    (kernels._predict, [BF16, BF16, FP32, BF16, INT32, NUMBER], TILE),
]


def main() -> None:
    """Compile every kernel; an error ends it."""
    for kernel, types, constants in KERNELS:
        names = [name for name in kernel.arg_names if name not in constants]
        signature = dict(zip(names, types, strict=True)) | dict.fromkeys(constants, "constexpr")
        compiled = triton.compile(ASTSource(kernel, signature, constants), target=HOPPER)
        print(f"{kernel.__name__:10} {len(compiled.asm['cubin'])} bytes, {compiled.metadata.shared} shared")


if __name__ == "__main__":
    main()
