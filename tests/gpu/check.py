"""Checks recogniser and service on a GPU and prints what it found; exits with 1 when an invariant does not hold.

Usage: python tests/gpu/check.py [--big MODEL.nemo] [--cpu] [--part results,speed,service]
It needs no network and no espeak-ng, but tests/gpu/sentences.npz, which tests/gpu/spoken.py makes elsewhere. `--big`
names the model that is measured and served (default: random weights in the shape of Parakeet 0.6 B, built on the spot).
`--cpu` runs all of it in small, to see that it runs.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT), str(HERE)]
if not hasattr(np, "row_stack"):
    np.row_stack = np.vstack  # numba-cuda, which NeMo imports, still asks NumPy for it

BUILD = """
import runpy, sys, numpy
numpy.row_stack = numpy.vstack
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs the script that the first argument names, with the same remedy."""

from engine_timing import STAGES, profile_frontend, throughput, time_nemo, time_ours  # noqa: E402
from report import Report  # noqa: E402
from spoken import DEFAULT, Sentence, read_sentences  # noqa: E402

from parakeet_mps.contract import MAX_PIECE_S, SAMPLE_RATE_HZ, Recognition  # noqa: E402
from parakeet_mps.engine.groundwork import lay_groundwork  # noqa: E402
from parakeet_mps.engine.loading import load_model, place_model, read_model  # noqa: E402
from parakeet_mps.engine.recognizer import Recognizer  # noqa: E402
from parakeet_mps.engine.unpacking import unpacked  # noqa: E402

MOST_WORD_ERROR = 0.002
MOST_GROWTH_MIB = 32.0
PHRASES = ("amoxicillin", "tramadol :2.0")


def load_ours(path: Path, device: torch.device, report: Report) -> Recognizer:
    """Load as the service does; on a CPU with captures that only call, so that the same code runs."""
    began_at = time.perf_counter()

    def passed(phase: str) -> None:
        report.note(f"loading: {phase}, seconds since its begin", f"{time.perf_counter() - began_at:.1f}")

    with unpacked(path) as folder:
        model = read_model(path, folder)
    passed("reading")
    groundwork = lay_groundwork(model, device)
    passed("groundwork")
    if device.type == "cuda":
        return Recognizer.start(model, groundwork, passed)
    return Recognizer(
        place_model(model, device), MAX_PIECE_S * SAMPLE_RATE_HZ, groundwork, capture=lambda work: work, passed=passed
    )


def texts(recognizer: Recognizer, batch: Sequence[torch.Tensor]) -> list[str]:
    """Return the texts of a batch, all of whose utterances must be recognised."""
    results = recognizer.recognize(batch)
    assert all(isinstance(result, Recognition) for result in results)
    return [result.text for result in results if isinstance(result, Recognition)]


def word_errors(found: Sequence[str], true: Sequence[str]) -> float:
    """Return the word error rate: edits over words."""
    edits = sum(_edits(a.split(), b.split()) for a, b in zip(found, true, strict=True))
    return edits / max(1, sum(len(text.split()) for text in true))


def _edits(found: list[str], true: list[str]) -> int:
    row = list(range(len(true) + 1))
    for number, word in enumerate(found, start=1):
        last, row[0] = row[0], number
        for column, other in enumerate(true, start=1):
            last, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, last + (word != other))
    return row[-1]


@torch.inference_mode()
def reference_texts(path: Path, sentences: Sequence[Sentence], device: torch.device) -> list[str]:
    """Return what NeMo's own code in fp32, without graphs, makes of each sentence alone."""
    model = load_model(path, device)
    model.decoding.decoding.decoding_computer.disable_cuda_graphs()
    found = []
    for sentence in sentences:
        audio = sentence.audio[None].to(device)
        features, frames = model.preprocessor(input_signal=audio, length=torch.tensor([audio.shape[1]], device=device))
        encoded, lengths = model.encoder(audio_signal=features, length=frames)
        hypotheses = model.decoding.rnnt_decoder_predictions_tensor(
            encoder_output=encoded, encoded_lengths=lengths, return_hypotheses=True
        )
        found.append(hypotheses[0].text)
    return found


def check_text(recognizer: Recognizer, expected: list[str], sentences: Sequence[Sentence], report: Report) -> None:
    """The text in batches of mixed lengths is `expected`, NeMo's fp32 text, but for few words."""
    found = [
        text
        for start in range(0, len(sentences), 16)
        for text in texts(recognizer, [sentence.audio for sentence in sentences[start : start + 16]])
    ]
    difference = word_errors(found, expected)
    report.check("words that differ from NeMo's fp32, eager", f"{difference:.2%}", holds=difference <= MOST_WORD_ERROR)
    true = [sentence.text for sentence in sentences]
    report.note(
        "word error against what was said", f"{word_errors(found, true):.2%} (NeMo {word_errors(expected, true):.2%})"
    )


def check_counters(recognizer: Recognizer, report: Report) -> None:
    """Graphs are in use, the self-tests passed, and nothing ran outside the buckets."""
    counters = recognizer.counters()
    report.check(
        "start-up self-tests that failed", f"{counters['self_test_failed']:.0f}", holds=not counters["self_test_failed"]
    )
    report.check("batches encoded by graphs", f"{counters['graph_hits']:.0f}", holds=counters["graph_hits"] > 0)
    misses = sum(counters[name] for name in ("graph_misses", "decoder_graph_misses", "boosting_graphs_lost"))
    report.check("batches outside what was captured", f"{misses:.0f}", holds=misses == 0)
    padding = 1 - counters["true_frames"] / counters["padded_frames"]
    report.note("part of the frames computed that was padding", f"{padding:.0%}")


def check_steadiness(recognizer: Recognizer, sentences: Sequence[Sentence], batches: int, report: Report) -> None:
    """Over many batches of mixed sizes and lengths nothing is captured and no memory is taken."""
    rng = random.Random(3)
    captures = _count_captures()
    before = 0.0
    for number in range(batches):
        batch = [_joined(rng, sentences) for _ in range(rng.choice((1, 1, 2, 3, 4, 7, 8, 13, 16)))]
        phrases = [PHRASES if rng.random() < 0.1 else () for _ in batch]
        recognizer.recognize(batch, phrases)
        if number == batches // 10:
            before = _memory_mib()
    growth = _memory_mib() - before
    report.check(f"captures in {batches} mixed batches", str(len(captures)), holds=not captures)
    report.check("growth of GPU memory meanwhile", f"{growth:.0f} MiB", holds=growth <= MOST_GROWTH_MIB)


def _joined(rng: random.Random, sentences: Sequence[Sentence]) -> torch.Tensor:
    """Return sentences joined to an utterance of 0.1 to 60 s."""
    samples = int(rng.choice((rng.uniform(0.1, 5), rng.uniform(1, 60))) * SAMPLE_RATE_HZ)
    parts: list[torch.Tensor] = []
    while sum(map(len, parts)) < samples:
        parts.append(rng.choice(sentences).audio)
    return torch.cat(parts)[:samples]


def _count_captures() -> list[None]:
    """Return a list that grows by one at every capture of a CUDA graph from now on."""
    seen: list[None] = []
    begin = torch.cuda.CUDAGraph.capture_begin

    def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        seen.append(None)
        return begin(self, *arguments, **options)

    torch.cuda.CUDAGraph.capture_begin = counted  # type: ignore[method-assign]
    return seen


def _memory_mib() -> float:
    if not torch.cuda.is_available():
        return 0.0
    free, total = torch.cuda.mem_get_info()
    return (total - free) / 2**20


def measure_speed(
    path: Path, seconds: float, sizes: Sequence[int], repeats: int, device: torch.device, report: Report
) -> None:
    """Print how long the stages take, NeMo's and ours, and what one process does."""
    generator = torch.Generator().manual_seed(0)
    clip = torch.randn(int(seconds * SAMPLE_RATE_HZ), generator=generator) * 0.1
    report.note("model, clips", f"{path.name}, {seconds:g} s")
    model = load_model(path, device)
    model.decoding.decoding.decoding_computer.disable_cuda_graphs()
    for part in (model.encoder, model.decoder, model.joint):
        part.to(torch.bfloat16 if device.type == "cuda" else torch.float32)
    theirs = {size: time_nemo(model, [clip] * size, device, repeats) for size in sizes}
    del model
    ours = load_ours(path, device, report)
    report.note("memory on the GPU, NeMo's included", f"{_memory_mib():.0f} MiB")
    check_counters_at_start(ours, report)
    for size in sizes:
        times = time_ours(ours, [clip] * size, device, repeats)
        for stage in STAGES:
            report.note(
                f"batch {size}: {stage}, ms a clip (NeMo, ours)",
                f"{theirs[size][stage] / size:8.2f} {times[stage] / size:8.2f}",
            )
    for size in sizes:
        rate, median = throughput(ours, [clip] * size, 4.0 if device.type == "cuda" else 1.0)
        report.note(f"batch {size}: one process", f"{rate:.1f} clips/s, {median:.1f} ms a batch")
    if device.type == "cuda" and hasattr(ours.pipeline.acoustics, "eagerly"):
        print(profile_frontend(ours, [clip] * max(sizes), 30))


def _build(target: Path) -> None:
    """Write the model of random weights."""
    script = ROOT / "benchmarks" / "build_model.py"
    subprocess.run([sys.executable, "-c", BUILD, str(script), str(target)], check=True)


def check_counters_at_start(recognizer: Recognizer, report: Report) -> None:
    """The large model's fast paths passed their self-tests."""
    failed = recognizer.counters()["self_test_failed"]
    report.check("start-up self-tests that failed, this model", f"{failed:.0f}", holds=not failed)


def check_results(device: torch.device, report: Report) -> None:
    """The demo model's text is right, and stays right and steady over many batches."""
    demo, sentences = ROOT / "models" / "demo.nemo", read_sentences(DEFAULT)
    sentences = sentences[:16] if device.type == "cpu" else sentences
    expected = reference_texts(demo, sentences, device)
    recognizer = load_ours(demo, device, report)
    check_text(recognizer, expected, sentences, report)
    check_steadiness(recognizer, sentences, 5 if device.type == "cpu" else 500, report)
    check_counters(recognizer, report)


def check_speed(path: Path, device: torch.device, report: Report) -> None:
    """Measure a large model."""
    sizes = (1, 4) if device.type == "cpu" else (1, 4, 16)
    seconds, repeats = (3.0, 3) if device.type == "cpu" else (45.0, 10)
    measure_speed(path, seconds, sizes, repeats, device, report)


def main() -> int:
    """Run the parts, each in a process of its own; 0 when all invariants hold.

    A process loads before it captures, and once: what is loaded after a capture could come out damaged
    (https://github.com/NVIDIA-NeMo/NeMo/issues/15423).
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--big", type=Path)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--part", default="results,speed,service")
    parser.add_argument("--soak-s", type=float, default=540.0, help="how long the service is under mixed load")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        big = arguments.big or (ROOT / "models" / "demo.nemo" if arguments.cpu else Path(folder) / "big.nemo")
        parts = arguments.part.split(",")
        if not big.exists() and parts != ["results"]:
            _build(big)
        if len(parts) == 1 and parts[0] != "service":
            return run_part(parts[0], big, arguments)
        here, service = [sys.executable, __file__, *sys.argv[1:], f"--big={big}"], str(HERE / "check_service.py")
        commands = {part: [*here, f"--part={part}"] for part in parts}
        commands |= {"service": [sys.executable, service, str(big), f"--soak-s={arguments.soak_s}"]}
        return max(subprocess.run(commands[part]).returncode != 0 for part in parts)


def run_part(part: str, big: Path, arguments: argparse.Namespace) -> int:
    """Run one part here; 0 when its invariants hold."""
    device, report = torch.device("cpu" if arguments.cpu else "cuda"), Report()
    if part == "results":
        check_results(device, report)
    else:
        check_speed(big, device, report)
    return report.verdict(part)


if __name__ == "__main__":
    sys.exit(main())
