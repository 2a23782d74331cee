"""A connection costs the gateway little, whatever its client sends or leaves unread."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import httpx
import pytest

from gateways import HEAD, PATH, HeldGateway, form, held_gateway, read_response, wait_until
from live_gateway import live_gateway
from parakeet_mps.contract import Recognition, Word
from parakeet_mps.gateway import http_protocol
from recordings import samples_wav

MOST_TAKEN = 1 << 20
"""Bytes of headers after which a connection must have been closed: the limit, and what lay in the kernel's buffers."""

LINE = b"x-filler: " + b"a" * 8000 + b"\r\n"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeldGateway]:
    with held_gateway(tmp_path_factory.mktemp("gateway")) as gateway:
        yield gateway


def hum(seconds: int) -> bytes:
    return samples_wav(bytes(range(1, 251)) * (32_000 * seconds // 250))


def filled(connection: socket.socket) -> int:
    """Return how many bytes of headers were taken before the connection was closed."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
    taken = 0
    with contextlib.suppress(ConnectionError):
        while taken < 100 * MOST_TAKEN:
            taken += connection.send(LINE)
    return taken


def test_headers_without_end_behind_a_request_that_is_worked_on_close_the_connection(gateway: HeldGateway) -> None:
    gateway.hold()
    started = gateway.count("started")
    with gateway.send() as connection:
        wait_until(lambda: gateway.count("started") > started)
        connection.sendall(b"GET /v1/models HTTP/1.1\r\n")
        assert filled(connection) < 8 * MOST_TAKEN
    gateway.release()
    wait_until(lambda: gateway.in_flight() == 0)


def test_headers_without_end_behind_a_body_are_refused(gateway: HeldGateway) -> None:
    with gateway.connect() as connection:
        connection.sendall(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n".encode())
        assert filled(connection) < 8 * MOST_TAKEN


def test_a_body_in_many_small_chunks_is_no_head(gateway: HeldGateway) -> None:
    body = form()
    parts = [body[start : start + 50] for start in range(0, len(body), 50)]
    assert len(parts) * 6 > http_protocol.MAX_HEAD_BYTES / 10
    with gateway.connect() as connection:
        connection.sendall(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode())
        for part in parts:
            connection.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        assert read_response(connection)[0] == 200


def test_a_body_that_breaks_the_rules_is_refused_in_the_openai_shape(gateway: HeldGateway) -> None:
    with gateway.connect() as connection:
        connection.sendall(f"{HEAD}Transfer-Encoding: chunked\r\n\r\nno number\r\n".encode())
        status, answer = read_response(connection)
        assert (status, '{"error": {"message"' in answer) == (400, True)


def test_who_does_not_read_the_answer_does_not_keep_others_from_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "READING_TIMEOUT_S", 1.0)
    fields = {"model": "whisper-1", "stream": "true", "response_format": "verbose_json"}
    words = tuple(Word(f"word{number}", number / 400, number / 400 + 0.001, 0.9) for number in range(2000))
    with live_gateway(piece_s=5, max_in_flight=1) as gateway:
        gateway.transcriber.answer = Recognition(" ".join(word.text for word in words), 5.0, (), words)
        upload = {"file": ("a.wav", hum(60))}
        asked = httpx.Request("POST", gateway.url + PATH, data=fields, files=upload)
        head = "".join(f"{name}: {value}\r\n" for name, value in asked.headers.items())
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", int(gateway.url.rpartition(":")[2])))
            deaf.sendall(f"POST {PATH} HTTP/1.1\r\n{head}\r\n".encode() + asked.read())
            wait_until(lambda: post(gateway.url) == 429, 10)
            wait_until(lambda: post(gateway.url) == 200, 20)


def post(url: str) -> int:
    """Return the status of a short transcription."""
    return httpx.post(url + PATH, files={"file": hum(1)}, data={"model": "whisper-1"}, timeout=30).status_code
