"""Measures this service beside what it is compared with, on one GPU, in one go; prints tables, writes figures down.

Usage: python benchmarks/compare.py MODEL.nemo [--only NAME,NAME] [--seconds 4] [--clip-s 45] [--out FOLDER]

`MODEL.nemo` is what `benchmarks/build_model.py` makes, or any other. Contenders, by the names that `--only` takes:
`transcribe`, NeMo alone, no server; `plain`, NeMo in the same Triton behind the same gateway; `plain4`, four of them
that take turns; `turns4`, this project's engine in four processes that take turns; `mps1` to `mps8`, this service;
`mps4x50`, four that may use half of the GPU each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

from benchmarks.closed_loop import ClosedLoop, Target, form  # noqa: E402
from benchmarks.load import clips, measure  # noqa: E402
from benchmarks.load_table import Level, header  # noqa: E402
from benchmarks.sampling import gpu_memory_mib  # noqa: E402
from benchmarks.service import ServiceNotReadyError, running_service  # noqa: E402

PACKAGE = ("parakeet_mps", "server.py", "auto_config.py", "triton_model_repo")
ADAPTER = Path("triton_model_repo/parakeet_asr/1/model.py")


@dataclass(frozen=True)
class Contender:
    """A way to serve: its settings, the concurrencies to ask it with, and whether it is the plain stack."""

    name: str
    settings: dict[str, str]
    plain: bool = False
    levels: tuple[int, ...] = (1, 16, 32, 64, 100)


@dataclass
class Result:
    """What was measured of a contender."""

    name: str
    ready_s: float
    levels: list[Level] = field(default_factory=list)

    def row(self, sla_ms: float) -> str:
        """Return the row of the table of all contenders."""
        met = [level.average for level in self.levels if level.average.meets(sla_ms)]
        best = max((figures.rps for figures in met), default=float("nan"))
        most = max(level.average.rps for level in self.levels)
        single = next((level.average for level in self.levels if level.concurrency == 1), None)
        p50 = f"{single.p50:.1f}" if single else ""
        return f"| {self.name} | {self.ready_s:.0f} | {p50} | {best:.1f} | {most:.1f} |"


def _ours(name: str, instances: int, mps: str, percentage: str = "auto") -> Contender:
    settings = {"MPS": mps, "MPS_INSTANCE_COUNT": str(instances), "MPS_THREAD_PERCENTAGE": percentage}
    return Contender(name, settings)


CONTENDERS = (
    Contender("plain", {"MPS": "off", "MPS_INSTANCE_COUNT": "1"}, plain=True),
    Contender("plain4", {"MPS": "off", "MPS_INSTANCE_COUNT": "4"}, plain=True, levels=(1, 32, 64)),
    _ours("turns4", 4, "off"),
    _ours("mps1", 1, "off"),
    _ours("mps2", 2, "on"),
    _ours("mps4", 4, "on"),
    _ours("mps4x50", 4, "on", "50"),
    _ours("mps8", 8, "on"),
)


def main(arguments: Sequence[str]) -> int:
    """Measure all contenders, print as they come, write their figures down."""
    options = _parse(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    if "transcribe" in options.only:
        print_transcribe(options)
    results, failed = [], []
    for contender in CONTENDERS:
        if contender.name in options.only:
            try:
                results.append(measure_contender(contender, options))
            except ServiceNotReadyError as error:
                print(f"\n## {contender.name}: {error}", flush=True)
                failed.append(contender.name)
            _write(results, options.out / "compare.json")
    print("\n| contender | ready after (s) | p50 at 1 (ms) | RPS within the SLA | most RPS |\n|---|--:|--:|--:|--:|")
    for result in results:
        print(result.row(options.sla_ms))
    return len(failed)


def print_transcribe(options: argparse.Namespace) -> None:
    """Run NeMo alone."""
    script = [sys.executable, str(ROOT / "benchmarks/nemo_transcribe.py"), str(options.model)]
    done = subprocess.run(
        [*script, f"--clip-s={options.clip_s}", f"--seconds={options.seconds}"], capture_output=True, text=True
    )
    (options.out / "transcribe.log").write_text(done.stderr)
    print(f"## transcribe\n{done.stdout.strip() or done.stderr[-500:]}", flush=True)


def measure_contender(contender: Contender, options: argparse.Namespace) -> Result:
    """Start a contender, ask it, stop it."""
    begin = time.monotonic()
    settings = {"MODEL": str(options.model), "MAX_BATCH_SIZE": str(options.max_batch_size), **contender.settings}
    log = options.out / f"{contender.name}.log"
    with project(plain=contender.plain) as root, running_service(root, log, **settings) as service:
        result = Result(contender.name, time.monotonic() - begin)
        print(f"\n## {contender.name}: ready after {result.ready_s:.1f} s, {gpu_memory()}\n{header()}", flush=True)
        bodies = tuple(form(wav, "parakeet-tdt") for wav in clips(options.wav, options.clip_s))
        with ClosedLoop(Target(service.url, bodies), options.processes) as loop:
            levels = options.levels or contender.levels
            for level in measure(loop, levels, options.runs, options.seconds, options.warm_up):
                print(level.row(options.sla_ms), flush=True)
                result.levels.append(level)
        print(gpu_memory(), flush=True)
    return result


@contextlib.contextmanager
def project(*, plain: bool) -> Iterator[Path]:
    """Yield the project's folder; for the plain stack a copy of it, with the plain recogniser."""
    if not plain:
        yield ROOT
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in PACKAGE:
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, root / name)
        shutil.copy(ROOT / "benchmarks/plain_stack/model.py", root / ADAPTER)
        yield root


def gpu_memory() -> str:
    """Return the GPU's memory in use, or that there is no GPU."""
    used = gpu_memory_mib()
    return "no GPU" if used is None else f"{used:.0f} MiB of the GPU in use"


def _write(results: Sequence[Result], path: Path) -> None:
    documents = [
        {"name": result.name, "ready_s": result.ready_s, "levels": [level.document() for level in result.levels]}
        for result in results
    ]
    path.write_text(json.dumps(documents, indent=1))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["transcribe", *(contender.name for contender in CONTENDERS)]
    parser.add_argument("model", type=lambda text: Path(text).absolute())
    parser.add_argument("--only", type=lambda text: text.split(","), default=names, help="contenders")
    parser.add_argument("--levels", type=lambda text: [int(n) for n in text.split(",")], help="concurrencies")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a run")
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds before each run that do not count")
    parser.add_argument("--runs", type=int, default=1, help="runs at each concurrency")
    parser.add_argument("--clip-s", type=float, default=45.0, help="length of each upload")
    parser.add_argument("--wav", type=Path, default=ROOT / "models" / "sample.wav", help="16-bit WAV of speech")
    parser.add_argument("--max-batch-size", type=int, default=16)
    parser.add_argument("--sla-ms", type=float, default=1000.0, help="limit of p99")
    parser.add_argument("--processes", type=int, default=min(8, os.cpu_count() or 1), help="processes of clients")
    parser.add_argument("--out", type=Path, default=Path("compare"), help="where logs and figures go")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
