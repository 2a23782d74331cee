"""Clients that each send their next request when the last one is answered. Standard library only.

They are threads of several processes, so that neither Python's lock nor one core bounds what they send.
"""

from __future__ import annotations

import http.client
import multiprocessing
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

BOUNDARY = "parakeet-load-boundary"
ANSWER_LIMIT_S = 120.0
START_S = 1.0
"""Head start for all processes to begin at the same time."""


class Answer(NamedTuple):
    """One request: when it was sent and answered (s, monotonic clock), and its status; 0 without an answer."""

    sent: float
    answered: float
    status: int


@dataclass(frozen=True)
class Target:
    """The service under load: its address, the `bodies` (multipart forms) that clients send in turn, and its key."""

    url: str
    bodies: tuple[bytes, ...]
    key: str | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers of every request."""
        headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
        return headers | ({"authorization": f"Bearer {self.key}"} if self.key else {})


def form(wav: bytes, model: str) -> bytes:
    """Return the multipart form that uploads `wav`."""
    head = f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="model"\r\n\r\n{model}\r\n'
    head += f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="file"; filename="clip.wav"\r\n'
    return f"{head}content-type: audio/wav\r\n\r\n".encode() + wav + f"\r\n--{BOUNDARY}--\r\n".encode()


class ClosedLoop:
    """A crowd of clients, kept in `processes` until the context is left."""

    def __init__(self, target: Target, processes: int) -> None:
        self._target = target
        self._processes = processes
        self._pool = ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    def run(self, concurrency: int, seconds: float) -> list[Answer]:
        """Let `concurrency` clients ask for `seconds`; return every request that they sent."""
        begin = time.monotonic() + START_S
        shares = [len(range(number, concurrency, self._processes)) for number in range(self._processes)]
        crowds = [
            self._pool.submit(_crowd, self._target, share, number, begin, begin + seconds)
            for number, share in enumerate(shares)
            if share
        ]
        return [answer for crowd in crowds for answer in crowd.result()]


def _crowd(target: Target, clients: int, first: int, begin: float, end: float) -> list[Answer]:
    answers: list[Answer] = []
    threads = [threading.Thread(target=_client, args=(target, first + n, begin, end, answers)) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def _client(target: Target, number: int, begin: float, end: float, answers: list[Answer]) -> None:
    """Send one request after the other from `begin` to `end`, over one connection while it lasts."""
    connection = http.client.HTTPConnection(urlsplit(target.url).netloc, timeout=ANSWER_LIMIT_S)
    time.sleep(max(0.0, begin - time.monotonic()))
    turn = number
    while (sent := time.monotonic()) < end:
        status = _send(connection, target, target.bodies[turn % len(target.bodies)])
        answers.append(Answer(sent, time.monotonic(), status))
        turn += 1
    connection.close()


def _send(connection: http.client.HTTPConnection, target: Target, body: bytes) -> int:
    try:
        connection.request("POST", "/v1/audio/transcriptions", body, target.headers())
        response = connection.getresponse()
        response.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        time.sleep(0.05)  # a service that is down must not be asked in a busy loop
        return 0
    return response.status


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the percentile of `values` by linear interpolation."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
