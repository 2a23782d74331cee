"""Compiles our kernels for an H200, at the sizes of Parakeet 0.6 B, on a machine that need not have one.

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

from parakeet_mps.engine.encoder import kernels as encoder
from parakeet_mps.engine.tdt import kernels

HOPPER = GPUTarget("cuda", 90, 32)
BF16, FP32, INT32, INT64, NUMBER = "*bf16", "*fp32", "*i32", "*i64", "i32"
TILE = {"SIZE": 640, "BLOCK": 128, "ROWS": 16, "COLUMNS": 16}
LONG, WIDE = {"CHANNELS": 1024, "BLOCK": 256}, {"CHANNELS": 256, "BLOCK": 64}
SCORES = {"HEADS": 8, "MASK": -1e4, "QUERIES": 16, "KEYS": 128}
Kernel = tuple[Any, list[str], dict[str, Any]]
DECODER: list[Kernel] = [
    (kernels._join, [BF16, BF16, INT32, INT32, BF16, FP32, FP32, NUMBER, NUMBER], TILE),
    (kernels._join, [BF16, BF16, INT32, INT32, BF16, FP32, FP32, NUMBER, NUMBER], {**TILE, "COLUMNS": 64}),
    (kernels._decide, [FP32] + [INT32] * 11 + [FP32] + [NUMBER] * 4, {"TOKENS": 16384, "DURATIONS": 8}),
    (kernels._advance, [FP32] + [BF16] * 5 + [FP32, INT32, INT32], {"FIRST": True, **TILE}),
    (kernels._advance, [FP32] + [BF16] * 5 + [FP32, INT32, INT32], {"FIRST": False, **TILE}),
    (kernels._predict, [BF16, BF16, FP32, BF16, INT32, NUMBER], TILE),
]
ENCODER: list[Kernel] = [
    (encoder._normalise, [BF16] * 4 + ["fp32"], {"CHANNELS": 1024, "BLOCK": 1024}),
    (encoder._convolve, [BF16, INT64, BF16, BF16, BF16, NUMBER], {"TAPS": 9, "ROWS": 16, **LONG}),
    (encoder._convolve, [BF16, INT64, BF16, BF16, BF16, NUMBER], {"TAPS": 31, "ROWS": 8, **LONG}),
    (encoder._score_positions, [BF16, FP32, INT64, BF16] + [NUMBER] * 4, SCORES),
    (encoder._subsample_features, [BF16, INT64, BF16, BF16, BF16, NUMBER], {"MELS": 128, "PLACES": 64, **WIDE}),
    (encoder._subsample, [BF16, INT64, BF16, BF16, NUMBER], {"MELS": 32, "STRIP": 8, **WIDE, "BLOCK": 256}),
]


def main() -> None:
    """Compile every kernel as it is compiled for tensors aligned to 16 bytes; an error ends it."""
    for kernel, types, constants in DECODER + ENCODER:
        names = [name for name in kernel.arg_names if name not in constants]
        typed = dict(zip(names, types, strict=True))
        aligned = {
            (kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in names if typed[name][0] == "*"
        }
        source = ASTSource(kernel, typed | dict.fromkeys(constants, "constexpr"), constants, aligned)
        compiled = triton.compile(source, target=HOPPER)
        print(f"{kernel.__name__:20} {len(compiled.asm['cubin'])} bytes, {compiled.metadata.shared} shared")


if __name__ == "__main__":
    main()
