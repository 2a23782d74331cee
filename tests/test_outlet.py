"""Nobody waits for who does not read the log."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from parakeet_mps.outlet import Outlet
from processes import ROOT

TALKER = """
import sys
from parakeet_mps import outlet
outlet.install("text")
for number in range(200_000):
    sys.stdout.write(f"line {number} of so many that no pipe holds them\\n")
    sys.stderr.write(f"line {number} of so many that no pipe holds them\\n")
print("done")
sys.exit(7)
"""


class Pipe:
    """A pipe of 64 KiB, which is read from when it is asked."""

    def __init__(self) -> None:
        self.read_end, write_end = os.pipe()
        self.output = os.fdopen(write_end, "wb", buffering=0)

    def drain(self) -> list[str]:
        """Close the writing end when all is written, and return the lines."""
        with os.fdopen(self.read_end) as file:
            return file.read().splitlines()

    def read_to_the_end(self, outlet: Outlet) -> list[str]:
        """Read while `outlet` finishes, and return the lines."""
        lines: list[str] = []
        reader = threading.Thread(target=lambda: lines.extend(self.drain()))
        reader.start()
        outlet.finish(20)
        self.output.close()
        reader.join()
        return lines


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.output.close()


def test_lines_come_out_in_order(pipe: Pipe) -> None:
    outlet = Outlet(pipe.output)
    for number in range(100):
        outlet.write(f"{number}\n".encode())
    outlet.finish()
    pipe.output.close()
    assert pipe.drain() == [str(number) for number in range(100)]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_what_nobody_reads_is_dropped_and_counted(log_format: str, pipe: Pipe) -> None:
    outlet = Outlet(pipe.output, log_format, most_bytes=200_000)
    line = b"x" * 999 + b"\n"
    for _ in range(500):
        outlet.write(line)
    lines = pipe.read_to_the_end(outlet)
    (note,) = [found for found in lines if "lines are missing here" in found]
    text = json.loads(note)["message"] if log_format == "json" else note.partition("supervisor: ")[2]
    came = lines.count("x" * 999)
    assert came >= 200
    assert text == f"{500 - came} lines are missing here: nobody read this output"


class Impatient(io.FileIO):
    """An output that another program has told not to wait; says when it was full."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        super().__init__(descriptor, "w", closefd=False)
        self.was_full = threading.Event()

    def write(self, data: Any) -> int | None:  # type: ignore[override]  # typeshed forgets the None
        written = super().write(data)
        if written is None:
            self.was_full.set()
        return written


def test_an_output_that_does_not_wait_for_its_reader_loses_nothing(pipe: Pipe) -> None:
    output = Impatient(pipe.output.fileno())
    outlet = Outlet(output)
    outlet.write("".join(f"{number}\n" for number in range(20_000)).encode())
    assert output.was_full.wait(20)
    lines = pipe.read_to_the_end(outlet)
    assert lines == [str(number) for number in range(20_000)]


def test_a_closed_pipe_ends_nothing() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with io.FileIO(write_end, "w") as output:
        outlet = Outlet(output)  # type: ignore[arg-type]
        outlet.write(b"a line\n")
        outlet.write(b"another\n")
        outlet.finish()


def test_a_process_ends_with_its_status_though_nobody_reads_what_it_wrote() -> None:
    command = [sys.executable, "-c", TALKER]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as talker:
        assert talker.wait(30) == 7
        talker.kill()
