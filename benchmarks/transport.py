"""Measures what it costs to bring audio to Triton: inside gRPC requests, and through shared memory.

Usage: python benchmarks/transport.py [--audio 45] [--seconds 8] [--runs 3] [--concurrency 8]

The gateway's own client, in one asyncio process, asks a real Triton on this machine whose model returns the length of
what it was sent. Both transports take turns, so that what else runs on the machine bothers both.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from echo_triton import echo_triton  # noqa: E402
from parakeet_mps.contract import SAMPLE_RATE_HZ  # noqa: E402
from parakeet_mps.gateway.audio_memory import AudioMemory  # noqa: E402
from parakeet_mps.gateway.audio_transport import AudioTransport  # noqa: E402
from parakeet_mps.gateway.triton import TritonTranscriber  # noqa: E402

MODEL = """
import json
import numpy
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb_utils.get_input_tensor_by_name(request, "AUDIO")) for request in requests]

    def answer(self, audio):
        none = dict.fromkeys(("text", "id", "start", "end", "confidence"), ())
        recognition = {"text": "", "duration": audio.shape()[-1] / 16000, "tokens": none, "words": none}
        document = numpy.frombuffer(json.dumps(recognition).encode(), numpy.uint8)
        return pb_utils.InferenceResponse([pb_utils.Tensor("RECOGNITION", document)])
"""


@dataclass
class Figures:
    """Answers, the time in which they came (s), and the processors' time that the client and Triton took (s)."""

    answers: int = 0
    wall_s: float = 0.0
    client_s: float = 0.0
    triton_s: float = 0.0

    def row(self, transport: str) -> str:
        """Return a row of the table."""
        client_ms, triton_ms = 1000 * self.client_s / self.answers, 1000 * self.triton_s / self.answers
        return f"| {transport} | {self.answers / self.wall_s:.0f} | {client_ms:.1f} | {triton_ms:.1f} |"


async def ask(transcriber: TritonTranscriber, audio_s: float, until: float) -> int:
    """Ask again and again; return how often."""
    waveform, answers = torch.rand(round(audio_s * SAMPLE_RATE_HZ)), 0
    while time.perf_counter() < until:
        recognition = await transcriber.transcribe(waveform, 60)
        assert recognition.duration == audio_s
        answers += 1
    return answers


@contextmanager
def measured(figures: Figures, triton: psutil.Process) -> Iterator[None]:
    """Add the times that the block takes."""
    wall_s, client_s, triton_s = time.perf_counter(), time.process_time(), cpu_s(triton)
    yield
    figures.wall_s += time.perf_counter() - wall_s
    figures.client_s += time.process_time() - client_s
    figures.triton_s += cpu_s(triton) - triton_s


def cpu_s(process: psutil.Process) -> float:
    """Return the processors' time (s) of a process and its children."""
    times = [member.cpu_times() for member in (process, *process.children(recursive=True))]
    return sum(spent.user + spent.system for spent in times)


async def measure(arguments: argparse.Namespace, url: str, triton: psutil.Process) -> dict[str, Figures]:
    """Return the figures of each transport."""
    prefix = f"parakeet_benchmark_{secrets.token_hex(4)}_"
    transports = {"gRPC": AudioTransport(), "shared memory": AudioTransport(lambda: AudioMemory.claim(prefix, 1), True)}
    figures = {name: Figures() for name in transports}
    transcribers = {name: TritonTranscriber(url, transport) for name, transport in transports.items()}
    for transcriber in transcribers.values():
        await ask(transcriber, arguments.audio, time.perf_counter() + 1)
    for _ in range(arguments.runs):
        for name, transcriber in transcribers.items():
            with measured(figures[name], triton):
                until = time.perf_counter() + arguments.seconds
                clients = (ask(transcriber, arguments.audio, until) for _ in range(arguments.concurrency))
                figures[name].answers += sum(await asyncio.gather(*clients))
    for transcriber in transcribers.values():
        await transcriber.close()
    return figures


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audio", type=float, default=45)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=8)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, echo_triton(Path(folder), model=MODEL) as triton:
        assert triton.pid
        figures = asyncio.run(measure(arguments, triton.url, psutil.Process(triton.pid)))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; clips of {arguments.audio:g} s")
    print("| transport | requests/s | client CPU ms/request | Triton CPU ms/request |\n|---|--:|--:|--:|")
    for name, its in figures.items():
        print(its.row(name))


if __name__ == "__main__":
    main()
