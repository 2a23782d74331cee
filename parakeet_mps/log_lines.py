"""Lines of programs that know no JSON are made objects like all others: Triton, its stubs, and what libraries print."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from typing import BinaryIO, Protocol

MOST_LINE_BYTES = 64 * 1024
"""A line that does not end is cut here."""

_LEVELS = {"I": "info", "W": "warning", "E": "error", "F": "critical"}
_TRITON = re.compile(r"(?:\S+Z ([IWEF]) |([IWEF])\d{4} )")
"""Start of a line of Triton's (`--log-format=ISO8601`) and of its stubs'."""


class Output(Protocol):
    """Where a child process's output goes."""

    def write(self, data: bytes, /) -> object:
        """Take what came."""

    def flush(self) -> object:
        """Pass it on."""


class JsonLines:
    """Passes JSON objects on as they are, and makes one of every other line; `name` is the program that writes."""

    def __init__(self, name: str, output: BinaryIO) -> None:
        self._name = name
        self._output = output
        self._rest = b""

    def write(self, data: bytes, /) -> None:
        """Take what came; a line that has not ended is kept until it has."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MOST_LINE_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            if line.strip():
                self._output.write(self._object(line) + b"\n")

    def flush(self) -> None:
        """Pass on what is complete."""
        self._output.flush()

    def _object(self, line: bytes) -> bytes:
        if line.startswith(b'{"time":') and line.endswith(b"}"):
            return line
        text = line.decode(errors="replace").rstrip()
        mark = _TRITON.match(text)
        fields = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": _LEVELS[mark[1] or mark[2]] if mark else "info",
            "logger": self._name,
            "message": text,
        }
        return json.dumps(fields, ensure_ascii=False).encode()


def output_of(name: str, log_format: str) -> Output:
    """Return where the output of the program `name` goes: to this process's, as lines of `log_format`."""
    return JsonLines(name, sys.stdout.buffer) if log_format == "json" else sys.stdout.buffer
