"""With LOG_FORMAT=json every line of the service is an object, also those of programs that know no JSON."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

from parakeet_mps.log_lines import MOST_LINE_BYTES, JsonLines
from processes import ROOT, free_port


def written(*chunks: bytes) -> list[dict[str, str]]:
    """Return the objects that come of what a program wrote, chunk by chunk."""
    output = io.BytesIO()
    lines = JsonLines("tritonserver", output)
    for chunk in chunks:
        lines.write(chunk)
        lines.flush()
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_an_object_passes_and_another_line_becomes_one() -> None:
    passed, made = written(b'{"time": "x", "message": "m", "status": 200}\nplain, with "quotes"\n')
    assert passed == {"time": "x", "message": "m", "status": 200}
    assert made["time"].endswith("+00:00")
    assert (made["level"], made["logger"], made["message"]) == ("info", "tritonserver", 'plain, with "quotes"')


def test_tritons_own_lines_keep_their_level() -> None:
    triton, stub, other = written(
        b'2026-11-29T23:40:43Z E 6869 server.cc:241] "no"\nW1129 23:41:48.7 6919 pb_stub.cc:2145]  x\nIt is\n'
    )
    assert [line["level"] for line in (triton, stub, other)] == ["error", "warning", "info"]


def test_lines_are_put_together_whatever_the_chunks_and_empty_ones_are_dropped() -> None:
    assert [line["message"] for line in written(b"a", b"b\nc", b"d\n\n", b"\xff\n", b"not ended")] == [
        "ab",
        "cd",
        "\ufffd",
    ]


def test_a_line_that_does_not_end_is_cut() -> None:
    (cut,) = written(b"x" * (MOST_LINE_BYTES + 1))
    assert len(cut["message"]) == MOST_LINE_BYTES + 1


def test_a_started_service_prints_nothing_else(tmp_path: Path) -> None:
    environ = {
        "PATH": os.environ["PATH"],
        "LOG_FORMAT": "json",
        "RUN_DIR": str(tmp_path),
        "TRITON_URL": "192.0.2.1:8001",
        "PORT": str(free_port()),
        "HOST": "127.0.0.1",
        "GATEWAY_WORKERS": "1",
    }
    command = [sys.executable, "-m", "parakeet_mps.service"]
    service = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert service.stdout is not None
    lines: list[bytes] = []
    while not lines or b"Uvicorn running" not in lines[-1]:
        lines.append(service.stdout.readline())
        assert lines[-1], b"".join(lines)
    service.terminate()
    lines += service.communicate(timeout=60)[0].splitlines()
    assert all({"time", "level", "message"} <= json.loads(line).keys() for line in lines)
