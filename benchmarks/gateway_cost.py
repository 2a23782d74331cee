"""Measures what one upload costs the gateway: processors' time of its workers and of its decoding processes.

Usage: python benchmarks/gateway_cost.py [--audio 45] [--seconds 8] [--runs 2] [--workers 1] [--concurrency 1 4]

The real gateway stands in front of a real Triton whose model answers at once. Decoding processes live too shortly to be
watched one by one, so a control group counts them, which only root can make.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import httpx
import psutil

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.closed_loop import Answer, ClosedLoop, Target, form, percentile  # noqa: E402
from benchmarks.load import clips  # noqa: E402
from benchmarks.transport import cpu_s  # noqa: E402
from echo_triton import EchoTriton, echo_triton  # noqa: E402
from parakeet_mps.contract import Recognition, Token, Word  # noqa: E402
from parakeet_mps.gateway.catalogue import MODEL_ID  # noqa: E402
from processes import free_port  # noqa: E402

MODEL = """
import numpy
import triton_python_backend_utils as pb_utils

DOCUMENT = numpy.frombuffer(%r, numpy.uint8)

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("RECOGNITION", DOCUMENT)]) for _ in requests]
"""

WORDS_PER_S = 2.5
TOKENS_PER_WORD = 2
START_LIMIT_S = 60.0
STOP_LIMIT_S = 10.0
WARM_UP_S = 1.0


def recognition(audio_s: float) -> Recognition:
    """Return as many words as people say in `audio_s` seconds."""
    starts = [count / WORDS_PER_S for count in range(int(audio_s * WORDS_PER_S))]
    words = [Word("yes", start, start + 0.24, 0.9) for start in starts]
    tokens = [Token("▁ye", 1, start, start + 0.08, 0.9) for start in starts for _ in range(TOKENS_PER_WORD)]
    return Recognition(" ".join(word.text for word in words), audio_s, tuple(tokens), tuple(words))


@dataclass(frozen=True)
class Spent:
    """Processors' time (s) of the workers, of the decoding processes and the server that forks them, of all clients."""

    workers: float
    decoding: float
    clients: float

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.workers - other.workers, self.decoding - other.decoding, self.clients - other.clients)


class Gateway:
    """A running `server.py`, all of whose processes are in a control group."""

    def __init__(self, folder: Path, group: Path, triton: EchoTriton, workers: int) -> None:
        port = free_port()
        settings = {"HOST": "127.0.0.1", "PORT": str(port), "TRITON_URL": triton.url, "GATEWAY_WORKERS": str(workers)}
        settings |= {"RUN_DIR": str(folder / "run"), "WEDGE_SENTINEL": str(folder / "wedged"), "LOG_LEVEL": "warning"}
        self.url = f"http://127.0.0.1:{port}"
        self._group = group
        self._popen = subprocess.Popen([sys.executable, "server.py"], cwd=ROOT, env=os.environ | settings)
        self.process = psutil.Process(self._popen.pid)
        (group / "cgroup.procs").write_text(str(self._popen.pid))

    def wait_ready(self) -> None:
        """Return when it answers."""
        deadline = time.monotonic() + START_LIMIT_S
        while not self._answers():
            assert time.monotonic() < deadline, "the gateway does not start"
            time.sleep(0.1)

    def spent_s(self) -> tuple[float, float]:
        """Return the processors' time (s) of the workers, and of all the other processes."""
        family = [self.process, *self.process.children(recursive=True)]
        workers = sum(sum(member.cpu_times()[:2]) for member in family if not _decodes(member))
        return workers, _group_s(self._group) - workers

    def stop(self) -> None:
        """End all its processes."""
        self._popen.terminate()
        self._popen.wait()

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/health").status_code == HTTPStatus.OK
        return False


def _decodes(process: psutil.Process) -> bool:
    try:
        return "parakeet_mps.audio.forkserver" in process.cmdline()
    except psutil.NoSuchProcess:
        return True


@contextlib.contextmanager
def _control_group() -> Iterator[Path]:
    """A new control group that counts processors' time, of whichever version the machine has."""
    root = Path("/sys/fs/cgroup/cpuacct")
    group = (root if root.exists() else root.parent) / f"parakeet_benchmark_{secrets.token_hex(4)}"
    group.mkdir()
    try:
        yield group
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    """Remove the group once its last process, which others are yet to collect, has left it."""
    deadline = time.monotonic() + STOP_LIMIT_S
    while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    group.rmdir()


def _group_s(group: Path) -> float:
    usage = group / "cpuacct.usage"
    if usage.exists():
        return int(usage.read_text()) / 1e9
    return int((group / "cpu.stat").read_text().split()[1]) / 1e6  # usage_usec


@contextlib.contextmanager
def _gateway(folder: Path, triton: EchoTriton, workers: int) -> Iterator[Gateway]:
    with _control_group() as group:
        gateway = Gateway(folder, group, triton, workers)
        try:
            gateway.wait_ready()
            yield gateway
        finally:
            gateway.stop()


def measure(gateway: Gateway, clients: ClosedLoop, concurrency: int, seconds: float) -> str:
    """Return a row of the table."""
    processes = [child for child in psutil.Process().children() if "multiprocessing" in " ".join(child.cmdline())]

    def spent() -> Spent:
        return Spent(*gateway.spent_s(), sum(map(cpu_s, processes)))

    before = spent()
    answers = clients.run(concurrency, seconds)
    return _row(concurrency, seconds, answers, spent() - before)


def _row(concurrency: int, seconds: float, answers: list[Answer], spent: Spent) -> str:
    assert answers, "nothing was answered"
    assert {answer.status for answer in answers} == {HTTPStatus.OK}
    waits_ms = [1000 * (answer.answered - answer.sent) for answer in answers]
    per_answer = 1000 / len(answers)
    figures = [spent.workers * per_answer, spent.decoding * per_answer, spent.clients * per_answer]
    columns = [percentile(waits_ms, 50), percentile(waits_ms, 95), *figures]
    told = " | ".join(f"{column:.1f}" for column in columns)
    return f"| {concurrency} | {len(answers) / seconds:.1f} | {told} |"


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audio", type=float, default=45)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4])
    arguments = parser.parse_args()
    bodies = tuple(form(wav, MODEL_ID) for wav in clips(ROOT / "models" / "sample.wav", arguments.audio))
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        triton = stack.enter_context(echo_triton(folder, model=MODEL % recognition(arguments.audio).to_json()))
        gateway = stack.enter_context(_gateway(folder, triton, arguments.workers))
        clients = stack.enter_context(ClosedLoop(Target(gateway.url, bodies), processes=1))
        clients.run(2, WARM_UP_S)
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; clips of {arguments.audio:g} s")
        print("| clients | requests/s | p50 ms | p95 ms | worker CPU ms | decoding CPU ms | client CPU ms |")
        print("|--:|--:|--:|--:|--:|--:|--:|")
        for concurrency in arguments.concurrency * arguments.runs:
            print(measure(gateway, clients, concurrency, arguments.seconds), flush=True)


if __name__ == "__main__":
    main()
