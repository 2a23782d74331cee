"""Mutated real recordings through the decoder: each must decode or be refused, fast, and leave nothing behind.

Usage: python benchmarks/fuzz_decoder.py [--files 10000] [--seed 1] [--parallel 2]
Prints a table and exits with 1 when anything else happened. Needs what the tests need: espeak-ng and FFmpeg.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from parakeet_mps.errors import AudioError
from parakeet_mps.gateway.decoding import Decoder

MAX_AUDIO_S = 600
SLOW_S = 15.0
GROWTH_BYTES = 32 << 20
BROKEN = ("cannot be decoded.", "too long to decode")
"""What the decoder says when a process crashed, and when it was killed because it hung."""

Mutation = Callable[[random.Random, bytearray, Sequence[bytes]], bytes | bytearray]


def flip(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> bytearray:
    """Change up to 30 bytes anywhere."""
    for _index in range(rng.randint(1, 30)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return data


def flip_header(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> bytearray:
    """Change up to 8 bytes of the first 600."""
    for _index in range(rng.randint(1, 8)):
        data[rng.randrange(min(600, len(data)))] = rng.randrange(256)
    return data


def extreme_number(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> bytearray:
    """Put an extreme 32-bit number somewhere near the beginning or the end, where indexes lie."""
    near = rng.randrange(min(2000, len(data)))
    at = rng.choice([near, len(data) - near])
    data[at : at + 4] = rng.choice([bytes(4), b"\xff" * 4, b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x80\0\0\0"])
    return data


def cut(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> bytearray:
    """Drop the end."""
    return data[: rng.randrange(len(data))]


def drop(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> bytearray:
    """Drop a stretch."""
    at = rng.randrange(len(data))
    del data[at : at + rng.randint(1, 4000)]
    return data


def repeat(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> bytearray:
    """Repeat a stretch."""
    at = rng.randrange(len(data))
    data[at:at] = data[at : at + rng.randint(1, 4000)] * rng.randint(1, 5)
    return data


def blank(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> bytearray:
    """Fill a stretch with one byte."""
    at, size = rng.randrange(len(data)), rng.randint(1, 4000)
    data[at : at + size] = bytes([rng.choice([0, 0xFF, rng.randrange(256)])]) * len(data[at : at + size])
    return data


def splice(rng: random.Random, data: bytearray, corpus: Sequence[bytes]) -> bytes:
    """Go on with another file from somewhere on."""
    other = rng.choice(corpus)
    return bytes(data[: rng.randrange(len(data))]) + other[rng.randrange(len(other)) :]


MUTATIONS: tuple[Mutation, ...] = (flip, flip_header, extreme_number, cut, drop, repeat, blank, splice)


@dataclass
class Findings:
    """What came of the files: outcomes by mutation, reasons, times (s), memory (bytes) before and after."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    unexpected: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    began_bytes: int = 0
    ended_bytes: int = 0
    left_processes: int = 0

    def faults(self) -> list[str]:
        """Return what must not be; nothing when all is well."""
        faults = [*self.unexpected]
        if self.slowest_s > SLOW_S:
            faults.append(f"a file took {self.slowest_s:.1f} s")
        if self.ended_bytes - self.began_bytes > GROWTH_BYTES:
            faults.append(f"memory grew by {(self.ended_bytes - self.began_bytes) / 2**20:.0f} MiB")
        if self.left_processes:
            faults.append(f"{self.left_processes} processes are left")
        return faults

    def table(self) -> str:
        """Return the findings as a Markdown table and a few lines."""
        rows = ["| mutation | files | decoded | refused | crashed its process | hung |", "|---|--:|--:|--:|--:|--:|"]
        kinds = ("decoded", "refused", "crashed", "hung")
        for mutation in [*(mutation.__name__ for mutation in MUTATIONS), "all"]:
            counts = [self._count(mutation, kind) for kind in kinds]
            rows.append(f"| {mutation} | {sum(counts)} | {' | '.join(map(str, counts))} |")
        growth = (self.ended_bytes - self.began_bytes) / 2**20
        return "\n".join(
            [*rows, "", f"Slowest file {self.slowest_s:.2f} s; memory {growth:+.1f} MiB; reasons given:"]
            + [f"- {count} x {reason}" for reason, count in self.reasons.most_common(12)]
        )

    def _count(self, mutation: str, outcome: str) -> int:
        return sum(
            count for (name, kind), count in self.outcomes.items() if kind == outcome and mutation in (name, "all")
        )


async def fuzz(corpus: Sequence[bytes], files: int, seed: int, parallel: int) -> Findings:
    """Send `files` mutations of the corpus through one decoder, `parallel` at a time."""
    findings = Findings()
    others = set(psutil.Process().children(recursive=True))
    decoder = Decoder(MAX_AUDIO_S)
    for data in corpus:  # so that nothing is used for the first time when memory is compared
        await _send(decoder, "warm-up", data)
    findings.began_bytes = _memory_bytes()
    numbers = iter(range(files))
    await asyncio.gather(*(_worker(decoder, corpus, numbers, seed, findings) for _ in range(parallel)))
    findings.ended_bytes = _memory_bytes()
    decoder.close()
    findings.left_processes = len(set(psutil.Process().children(recursive=True)) - others)
    return findings


async def _worker(decoder: Decoder, corpus: Sequence[bytes], numbers: object, seed: int, findings: Findings) -> None:
    for number in numbers:  # type: ignore[attr-defined]
        rng = random.Random(f"{seed}/{number}")
        mutation = rng.choice(MUTATIONS)
        data = bytearray(rng.choice(corpus))
        for _ in range(rng.choice([1, 1, 1, 2])):
            data = bytearray(mutation(rng, data, corpus)) or bytearray(1)
        began = time.monotonic()
        outcome, reason = await _send(decoder, f"{seed}/{number}", bytes(data))
        findings.slowest_s = max(findings.slowest_s, time.monotonic() - began)
        findings.outcomes[mutation.__name__, outcome] += 1
        if reason:
            findings.reasons[reason] += 1
        if outcome in ("hung", "unexpected"):
            findings.unexpected.append(f"file {seed}/{number} ({mutation.__name__}): {outcome} {reason}")


async def _send(decoder: Decoder, number: str, data: bytes) -> tuple[str, str]:
    """Return what came of one file, and why."""
    with tempfile.TemporaryFile() as upload:
        upload.write(data)
        try:
            async with decoder.open(upload) as decoded:
                async for _ in decoded.chunks():
                    pass
        except AudioError as error:
            outcome = {BROKEN[0]: "crashed", BROKEN[1]: "hung"}
            kinds = [kind for mark, kind in outcome.items() if mark in error.message]
            return (kinds or ["refused"])[0], _without_numbers(error.message)
        except Exception as error:  # noqa: BLE001  whatever it is, it is a finding
            return "unexpected", f"{type(error).__name__} {number}"
        return "decoded", ""


def _without_numbers(message: str) -> str:
    return " ".join("N" if any(map(str.isdigit, word)) else word for word in message.split())


def _memory_bytes() -> int:
    """Return the memory of this process and of all that it started."""
    own = psutil.Process()
    return sum(process.memory_info().rss for process in [own, *own.children(recursive=True)])


def main() -> int:
    """Run the fuzz and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=2)
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from kinds import corpus

    findings = asyncio.run(fuzz(corpus(), options.files, options.seed, options.parallel))
    print(findings.table())
    for fault in findings.faults():
        print("FAULT:", fault)
    return 1 if findings.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
