"""The requests of the mixed load: good of many lengths, bad, huge, slow, and those whose client leaves mid-way."""

from __future__ import annotations

import asyncio
import io
import json
import random
import time
import uuid
import wave
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

SAMPLE = Path(__file__).parent.parent / "models" / "sample.wav"
TRANSCRIPTIONS = "/v1/audio/transcriptions"
LEFT = 0
"""Status of a request whose client left before the answer."""

PATIENCE_S = 120.0
BUSY = {429, 503}
_BOUNDARY = "mixedload"


@dataclass(frozen=True)
class Answered:
    """One request as its client saw it: `status` is `LEFT` when the client left, `trouble` says what was wrong."""

    kind: str
    endpoint: str
    status: int
    seconds: float
    trouble: str = ""


@dataclass(frozen=True)
class Request:
    """One request to make: head and body as sent, what may be answered, and how its client behaves."""

    kind: str
    head: str
    body: bytes
    allowed: frozenset[int]
    endpoint: str = TRANSCRIPTIONS
    leave_after_s: float | None = None
    """Leave this long after the last byte was sent."""
    bytes_per_s: float | None = None
    stop_at: float = 1.0
    """Part of the body that is sent at all."""


class Clients:
    """Makes requests of a service, each on a connection of its own."""

    def __init__(self, url: str, key: str | None) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._key = f"Authorization: Bearer {key}\r\n" if key else ""

    async def make(self, request: Request) -> Answered:
        """Make one request and judge its answer."""
        began_at = time.perf_counter()
        status, trouble = LEFT, ""
        request_id = uuid.uuid4().hex
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            async with asyncio.timeout(PATIENCE_S):
                sending = asyncio.create_task(self._send(writer, request, request_id))
                if request.leave_after_s is None:
                    status, trouble = await _judged(reader, request, request_id)
                    sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
        except (TimeoutError, OSError, EOFError, ValueError) as error:
            trouble = f"no answer: {type(error).__name__}"
        finally:
            writer.transport.abort()
        return Answered(request.kind, request.endpoint, status, time.perf_counter() - began_at, trouble)

    async def _send(self, writer: asyncio.StreamWriter, request: Request, request_id: str) -> None:
        head = f"{request.head}Host: {self._host}\r\n{self._key}X-Request-Id: {request_id}\r\n\r\n"
        writer.write(head.encode())
        await writer.drain()
        async for block in _paced(request.body[: int(len(request.body) * request.stop_at)], request.bytes_per_s):
            writer.write(block)
            await writer.drain()
        if request.leave_after_s is not None:
            await asyncio.sleep(request.leave_after_s)


async def _paced(body: bytes, bytes_per_s: float | None) -> AsyncIterator[bytes]:
    step = 1 << 16 if bytes_per_s is None else max(1, int(bytes_per_s / 10))
    for start in range(0, len(body), step):
        yield body[start : start + step]
        if bytes_per_s is not None:
            await asyncio.sleep(step / bytes_per_s)


async def _judged(reader: asyncio.StreamReader, request: Request, request_id: str) -> tuple[int, str]:
    """Read one response; return its status, and what is wrong with it."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    status = int(head.split()[1])
    body = await _body(reader, head)
    if status not in request.allowed:
        return status, f"status {status}: {body[:200]!r}"
    if f"x-request-id: {request_id}" not in head:
        return status, "another request id came back"
    if status >= 400 and json.loads(body).keys() != {"error"}:
        return status, "an error of another shape"
    if status in BUSY and "retry-after:" not in head:
        return status, "no Retry-After"
    return status, ""


async def _body(reader: asyncio.StreamReader, head: str) -> bytes:
    if "content-length: " in head:
        return await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))
    body = b""
    while size := int(await reader.readline(), 16):  # chunked
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body


def form(audio: bytes, **fields: str) -> bytes:
    """Return a form with a file and other fields."""
    start = f"--{_BOUNDARY}\r\nContent-Disposition: form-data; name="
    parts = [f'{start}"{name}"\r\n\r\n{value}\r\n'.encode() for name, value in fields.items()]
    file = f'{start}"file"; filename="x"\r\n\r\n'.encode() + audio + b"\r\n"
    return b"".join([*parts, file, f"--{_BOUNDARY}--\r\n".encode()])


def post(body: bytes, length: int | None = None, path: str = TRANSCRIPTIONS) -> str:
    """Return the first lines of the head of a request with a form."""
    kind = f"Content-Type: multipart/form-data; boundary={_BOUNDARY}"
    return f"POST {path} HTTP/1.1\r\n{kind}\r\nContent-Length: {len(body) if length is None else length}\r\n"


class Deck:
    """Draws requests of all kinds, each as often as its weight says."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        with wave.open(str(SAMPLE)) as sample:
            self._rate_hz, self._samples = sample.getframerate(), sample.readframes(sample.getnframes())
        self._kinds: list[tuple[int, Callable[[], Request]]] = [
            (40, lambda: self._good("good, 1 to 10 s", 1, 10)),
            (10, lambda: self._good("good, 10 to 60 s", 10, 60)),
            (1, lambda: self._good("good, 5 minutes", 300, 301)),
            (4, lambda: self._good("good, streamed", 5, 30, stream="true")),
            (15, self._bad_audio),
            (8, self._bad_form),
            (4, self._lost),
            (3, self._huge),
            (8, self._leaves_uploading),
            (12, self._leaves_waiting),
            (2, self._slow),
            (1, self._stalled),
        ]

    def draw(self) -> Request:
        """Return the next request."""
        weights = [weight for weight, _ in self._kinds]
        return self._rng.choices(self._kinds, weights)[0][1]()

    def _audio(self, low_s: float, high_s: float) -> bytes:
        """Return a WAV of the sample, repeated or cut to a length from `low_s` to `high_s`."""
        size = 2 * int(self._rng.uniform(low_s, high_s) * self._rate_hz)
        file = io.BytesIO()
        with wave.open(file, "wb") as writer:
            writer.setparams((1, 2, self._rate_hz, 0, "NONE", ""))
            writer.writeframes((self._samples * (size // len(self._samples) + 1))[:size])
        return file.getvalue()

    def _good(self, kind: str, low_s: float, high_s: float, **fields: str) -> Request:
        chosen = {"response_format": self._rng.choice(("json", "text", "verbose_json", "srt", "vtt"))}
        if "stream" in fields:
            chosen = {}
        body = form(self._audio(low_s, high_s), model="parakeet-tdt", **chosen, **fields)
        return Request(kind, post(body), body, frozenset({200} | BUSY))

    def _bad_audio(self) -> Request:
        audio = self._rng.choice((b"", b"Dear doctor,\n" * 100, self._rng.randbytes(50_000), b"RIFF" + bytes(200)))
        body = form(audio, model="parakeet-tdt")
        return Request("bad audio", post(body), body, frozenset({400} | BUSY))

    def _bad_form(self) -> Request:
        fields = self._rng.choice(({}, {"model": "gpt-9"}, {"model": "parakeet-tdt", "temperature": "warm"}))
        body = form(self._audio(1, 2), **fields)
        return Request("bad form", post(body), body, frozenset({400, 404} | BUSY))

    def _lost(self) -> Request:
        method, path = self._rng.choice((("GET", "/v1/nowhere"), ("PUT", "/v1/models"), ("DELETE", TRANSCRIPTIONS)))
        endpoint = "unmatched" if path == "/v1/nowhere" else path
        return Request("wrong route or method", f"{method} {path} HTTP/1.1\r\n", b"", frozenset({404, 405}), endpoint)

    def _huge(self) -> Request:
        return Request("huge", post(b"", 5 << 30), bytes(1 << 20), frozenset({413} | BUSY))

    def _leaves_uploading(self) -> Request:
        body = form(self._audio(1, 60), model="parakeet-tdt")
        part = self._rng.uniform(0, 0.9)
        return Request("leaves while uploading", post(body), body, frozenset(), leave_after_s=0.1, stop_at=part)

    def _leaves_waiting(self) -> Request:
        body = form(self._audio(1, 60), model="parakeet-tdt")
        wait_s = self._rng.uniform(0, 0.5)
        return Request("leaves while waiting", post(body), body, frozenset(), leave_after_s=wait_s)

    def _slow(self) -> Request:
        body = form(self._audio(2, 4), model="parakeet-tdt")
        return Request("slow upload", post(body), body, frozenset({200} | BUSY), bytes_per_s=len(body) / 6)

    def _stalled(self) -> Request:
        body = form(self._audio(2, 4), model="parakeet-tdt")
        return Request("stalled upload", post(body), body, frozenset({408} | BUSY), stop_at=0.5)
