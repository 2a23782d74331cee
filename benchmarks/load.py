"""A closed-loop load on a running service: real HTTP, real WAV bytes, one table and its plot.

Usage: python benchmarks/load.py [--url http://127.0.0.1:8002] [--seconds 45] [--runs 5] [--concurrency 1,2,4]
Each client sends its next request when the last one is answered. Figures are averages over the runs.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import wave
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

from benchmarks.closed_loop import ClosedLoop, Target, form  # noqa: E402
from benchmarks.load_table import Figures, Level, header  # noqa: E402

CONCURRENCY = "1,2,4,8,16,32,64,100"
VARIANTS = 8
"""Different uploads, so that nothing can answer from a memory of the last one."""


def main(arguments: Sequence[str]) -> int:
    """Run the load, print the table, save the plot."""
    options = _parse(arguments)
    bodies = tuple(form(wav, options.model) for wav in clips(options.wav, options.clip_s))
    print(
        f"{options.url}: clips of {options.clip_s:g} s, {options.runs} runs of {options.seconds:g} s each\n{header()}"
    )
    levels = []
    with ClosedLoop(Target(options.url, bodies, options.key), options.processes) as loop:
        for level in measure(loop, options.concurrency, options.runs, options.seconds, options.warm_up):
            print(level.row(options.sla_ms), flush=True)
            levels.append(level)
    if options.json:
        options.json.write_text(json.dumps([level.document() for level in levels], indent=1))
    if options.plot:
        from benchmarks.load_plot import draw  # not where only the table is wanted: it needs matplotlib

        draw(levels, options.sla_ms, f"clips of {options.clip_s:g} s", options.plot)
    return 0


def measure(
    loop: ClosedLoop, concurrencies: Sequence[int], runs: int, seconds: float, warm_up_s: float
) -> Iterator[Level]:
    """Yield the figures of each concurrency. What is answered in the first `warm_up_s` of a run does not count."""
    for concurrency in concurrencies:
        figures = []
        for _ in range(runs):
            answers = loop.run(concurrency, warm_up_s + seconds)
            begin = min(answer.sent for answer in answers) + warm_up_s
            figures.append(Figures.of(answers, begin, begin + seconds))
        yield Level(concurrency, tuple(figures))


def clips(path: Path, seconds: float) -> list[bytes]:
    """Return WAVs of `seconds`: the speech in the file `path` (16-bit), over and over, each from another place."""
    with wave.open(str(path)) as reader:
        shape, speech = reader.getparams(), reader.readframes(reader.getnframes())
    frame = shape.nchannels * shape.sampwidth
    length = int(seconds * shape.framerate) * frame
    starts = [len(speech) // frame * number // VARIANTS * frame for number in range(VARIANTS)]
    endless = speech * (length // len(speech) + 2)
    return [_wav(shape, endless[start : start + length]) for start in starts]


def _wav(shape: wave._wave_params, frames: bytes) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams(shape)
        writer.writeframes(frames)
    return file.getvalue()


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8002", help="the gateway")
    parser.add_argument("--key", help="an API key")
    parser.add_argument("--model", default="parakeet-tdt", help="the model named in the form")
    parser.add_argument("--wav", type=Path, default=ROOT / "models" / "sample.wav", help="16-bit WAV of speech")
    parser.add_argument("--clip-s", type=float, default=45.0, help="length of each upload")
    parser.add_argument("--concurrency", type=_numbers, default=CONCURRENCY, help="clients, as in %(default)s")
    parser.add_argument("--seconds", type=float, default=45.0, help="length of a run")
    parser.add_argument("--runs", type=int, default=5, help="runs at each concurrency")
    parser.add_argument("--warm-up", type=float, default=3.0, help="seconds before each run that do not count")
    parser.add_argument("--sla-ms", type=float, default=1000.0, help="limit of p99")
    parser.add_argument("--processes", type=int, default=min(8, os.cpu_count() or 1), help="processes of clients")
    parser.add_argument("--plot", type=Path, default=Path("load.png"), help="where the plot goes")
    parser.add_argument("--no-plot", dest="plot", action="store_const", const=None, help="print the table only")
    parser.add_argument("--json", type=Path, help="where each run's figures go")
    return parser.parse_args(arguments)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
