"""Output that never keeps its writer waiting: whoever reads the log and stalls loses lines, and is told how many.

A supervisor that waits for a terminal, or for the pipe of a container's log, watches nothing meanwhile.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import logging
import queue
import select
import sys
import threading

from parakeet_mps.logs import formatter

MOST_WAITING_BYTES = 4 << 20
"""What waits for the reader at most: hours of an idle service's lines, seconds of a busy one's."""

FINISH_LIMIT_S = 2.0
"""Time that the reader gets at the end of the process."""


class Outlet(io.BufferedIOBase):
    """Passes lines on to `output`, from a thread of its own. Any thread may write. `log_format` is that of its own.

    `output` has no buffer: one that a stalled reader keeps locked ends the interpreter with SIGABRT when it stops.
    """

    def __init__(self, output: io.RawIOBase, log_format: str = "text", most_bytes: int = MOST_WAITING_BYTES) -> None:
        self._output, self._most_bytes = output, most_bytes
        self._formatter = formatter(log_format)
        self._parts: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._changing = threading.Lock()
        self._waiting_bytes = self._dropped_lines = 0
        self._thread = threading.Thread(target=self._run, name="outlet", daemon=True)
        self._thread.start()

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the descriptor of `output`."""
        return self._output.fileno()

    def write(self, data: bytes, /) -> int:  # type: ignore[override]  # nobody here has other buffers
        """Take `data`, or count its lines when too much is waiting already."""
        part = bytes(data)
        with self._changing:
            if self._waiting_bytes + len(part) > self._most_bytes:
                self._dropped_lines += part.count(b"\n")
                return len(part)
            self._waiting_bytes += len(part)
        self._parts.put(part)
        return len(part)

    def finish(self, limit_s: float = FINISH_LIMIT_S) -> None:
        """Return when everything is passed on, or the reader has not taken it in time."""
        self._parts.put(None)
        self._thread.join(limit_s)

    def _run(self) -> None:
        while (part := self._parts.get()) is not None:
            self._pass_on(part)
            with self._changing:
                self._waiting_bytes -= len(part)
                dropped, self._dropped_lines = self._dropped_lines, 0
            if dropped:
                self._pass_on(self._note(dropped))

    def _note(self, dropped: int) -> bytes:
        message = f"{dropped} lines are missing here: nobody read this output"
        record = logging.LogRecord("supervisor", logging.WARNING, __file__, 0, message, None, None)
        return f"{self._formatter.format(record)}\n".encode()

    def _pass_on(self, part: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):  # a closed terminal or pipe ends nothing
            rest = memoryview(part)
            while rest:
                written = self._output.write(rest)
                if written is None:  # it is full, and another program has told it not to wait
                    select.select([], [self._output], [])
                rest = rest[written or 0 :]


def install(log_format: str) -> None:
    """Let nothing that this process writes to its standard output and standard error keep it waiting."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        stream.flush()
        outlet = Outlet(io.FileIO(stream.fileno(), "w", closefd=False), log_format)
        atexit.register(outlet.finish)
        setattr(sys, name, io.TextIOWrapper(outlet, "utf-8", "backslashreplace", line_buffering=True))
