"""A connection costs the gateway little, whatever its client sends or leaves unread."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable, Iterator

import httpx
import pytest

from gateways import HEAD, PATH, HeldGateway, form, held_gateway, read_response, wait_until
from live_gateway import live_gateway
from parakeet_mps.contract import Recognition, Word
from parakeet_mps.gateway import http_protocol
from recordings import samples_wav

MOST_TAKEN = 1 << 20
"""Bytes of headers after which a connection must have been closed: the limit, and what lay in the kernel's buffers."""

OFFERS = {
    "h2c": "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n",
    "websocket": "Connection: Upgrade\r\nUpgrade: websocket\r\n",
}
"""Headers by which a client offers another protocol; Java's send the first with all that they ask over plain HTTP."""

EXPECT = "Expect: 100-continue\r\n"

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

LAST = b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

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


def sized(body: bytes, headers: str = "") -> bytes:
    return f"{HEAD}{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


def chunked(body: bytes, headers: str = "") -> bytes:
    head = f"{HEAD}{headers}Transfer-Encoding: chunked\r\n\r\n"
    return head.encode() + f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"


def send_when_asked(connection: socket.socket, request: bytes) -> None:
    """Send the headers, among them `EXPECT`, and what follows them once the gateway waits for it."""
    head, end, body = request.partition(b"\r\n\r\n")
    connection.sendall(head + end)
    assert connection.recv(len(CONTINUE), socket.MSG_WAITALL) == CONTINUE
    connection.sendall(body)


def statuses(connection: socket.socket) -> list[int]:
    """Return the statuses of all answers up to the connection's end."""
    with connection.makefile("rb") as answers:
        return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", answers.read())]


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


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
@pytest.mark.parametrize("request_of", [sized, chunked])
def test_who_offers_another_protocol_is_answered_over_this_one(
    gateway: HeldGateway, request_of: Callable[[bytes, str], bytes], offer: str
) -> None:
    requests = [request_of(form(), headers) for headers in (offer, offer, "", offer)]
    with gateway.connect() as connection:
        connection.sendall(b"".join(requests) + LAST)
        assert statuses(connection) == [200, 200, 200, 200, 404]


def test_a_body_is_heard_that_comes_after_the_offer_of_another_protocol(gateway: HeldGateway) -> None:
    request = sized(form(), OFFERS["h2c"] + EXPECT)
    with gateway.connect() as connection:
        for _ in range(2):
            send_when_asked(connection, request)
            assert read_response(connection)[0] == 200


def test_an_offer_of_another_protocol_may_come_in_pieces(gateway: HeldGateway) -> None:
    request = sized(form(), OFFERS["h2c"])
    with gateway.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, 500, 5):
            connection.sendall(request[start : start + 5])
        connection.sendall(request[500:] + LAST)
        assert statuses(connection) == [200, 404]


@pytest.mark.parametrize("request_of", [sized, chunked])
def test_a_body_that_comes_after_the_offer_of_another_protocol_is_never_taken_for_a_request(
    gateway: HeldGateway, request_of: Callable[[bytes, str], bytes]
) -> None:
    request = request_of(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", OFFERS["h2c"] + EXPECT)
    with gateway.connect() as connection:
        send_when_asked(connection, request + LAST)
        assert statuses(connection) == [400, 404]


def test_who_offers_another_protocol_and_closes_is_answered(gateway: HeldGateway) -> None:
    with gateway.connect() as connection:
        connection.sendall(sized(form(), "Connection: close\r\n" + OFFERS["h2c"]))
        assert statuses(connection) == [200]


@pytest.mark.parametrize(
    "head",
    [f"CONNECT {PATH} HTTP/1.1\r\n", f"{HEAD}{OFFERS['h2c']}Transfer-Encoding: x\r\n"],
    ids=["tunnel", "no length"],
)
def test_nothing_is_read_behind_a_request_whose_end_is_not_known(gateway: HeldGateway, head: str) -> None:
    with gateway.connect() as connection:
        connection.sendall(f"{head}\r\n".encode() + LAST)
        assert statuses(connection) == [400]


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
