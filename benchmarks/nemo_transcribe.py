"""What one process of NeMo does with `transcribe()`, no server around it: JSON lines, one a batch size.

Usage: python benchmarks/nemo_transcribe.py MODEL.nemo [--clip-s 45] [--batches 1,16,64] [--seconds 5]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence

import torch
from nemo.collections.asr.models import ASRModel
from nemo.utils import logging as nemo_logging

SAMPLE_RATE_HZ = 16_000


def measure(model: ASRModel, batch: Sequence[torch.Tensor], seconds: float) -> dict[str, float]:
    """Return utterances a second and the median time of a call (ms) over `seconds` of calls."""
    arrays, times = [clip.numpy() for clip in batch], []
    device = next(model.parameters()).device
    with torch.autocast(device.type, torch.bfloat16):
        model.transcribe(arrays, batch_size=len(arrays), verbose=False)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            begin = time.perf_counter()
            model.transcribe(arrays, batch_size=len(arrays), verbose=False)
            times.append(time.perf_counter() - begin)
    rate = len(batch) * len(times) / sum(times)
    return {"batch": len(batch), "rps": round(rate, 1), "p50_ms": round(statistics.median(times) * 1000, 1)}


def main() -> None:
    """Measure each batch size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--clip-s", type=float, default=45.0)
    parser.add_argument("--batches", default="64,16,1")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    nemo_logging.set_verbosity(nemo_logging.ERROR)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = ASRModel.restore_from(options.model, map_location=device).eval()
    generator = torch.Generator().manual_seed(0)
    clip = torch.randn(int(options.clip_s * SAMPLE_RATE_HZ), generator=generator) * 0.1
    for size in map(int, options.batches.split(",")):
        print(json.dumps(measure(model, [clip] * size, options.seconds)), flush=True)


if __name__ == "__main__":
    main()
