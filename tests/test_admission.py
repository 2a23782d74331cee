"""Work in flight is bounded, refused early, freed when its client leaves, and finished before the gateway stops."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from fakes import HELLO, FakeTranscriber
from gateways import HEAD, HeldGateway, form, held_gateway, outcomes, read_response, wait_until
from parakeet_mps.gateway.admission import Admission, AdmissionLayer
from parakeet_mps.gateway.app import create_app
from parakeet_mps.gateway.draining import Drain
from parakeet_mps.gateway.endpoints import WORK
from parakeet_mps.gateway.slots import Slots
from parakeet_mps.settings import Settings

MOST = 4
FREED_WITHIN_S = 1.0
TOO_SLOW = 'parakeet_outcomes_total{outcome="refused",reason="upload_too_slow"}'


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeldGateway]:
    folder = tmp_path_factory.mktemp("gateway")
    with held_gateway(folder, MAX_IN_FLIGHT=str(MOST), MAX_UPLOAD_MB="1", UPLOAD_GRACE_S="6") as gateway:
        yield gateway


@pytest.fixture
def gateway(shared: HeldGateway) -> Iterator[HeldGateway]:
    yield shared
    shared.release()
    wait_until(lambda: shared.in_flight() == 0)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(32) as pool:
        yield pool


def occupy(gateway: HeldGateway, pool: ThreadPoolExecutor, count: int) -> list[Future[httpx.Response]]:
    """Return `count` requests that the recogniser holds."""
    gateway.hold()
    before = gateway.count("started")
    requests = [pool.submit(gateway.post) for _ in range(count)]
    wait_until(lambda: gateway.count("started") == before + count)
    return requests


def test_beyond_the_limit_over_all_workers_requests_are_refused_before_their_body_is_read(
    gateway: HeldGateway, pool: ThreadPoolExecutor
) -> None:
    admitted = occupy(gateway, pool, MOST)
    for _ in range(8):  # whichever worker they reach
        with gateway.connect() as connection:
            connection.sendall(f"{HEAD}Content-Length: 5000\r\n\r\n".encode())
            status, answer = read_response(connection)
        assert status == 429
        assert "retry-after: " in answer
        assert '"code":"rate_limit_exceeded"' in answer
    gateway.release()
    assert [request.result().status_code for request in admitted] == [200] * MOST
    assert gateway.post().json()["text"] == HELLO.text


def test_other_endpoints_answer_while_no_more_work_is_admitted(gateway: HeldGateway, pool: ThreadPoolExecutor) -> None:
    admitted = occupy(gateway, pool, MOST)
    assert gateway.get("/v1/models").status_code == 200
    gateway.release()
    assert {request.result().status_code for request in admitted} == {200}


def test_a_client_that_leaves_frees_its_work_within_a_second(gateway: HeldGateway) -> None:
    gateway.hold()
    before, cancelled, started = outcomes(gateway.metrics()), gateway.count("cancelled"), gateway.count("started")
    connections = [gateway.send() for _ in range(MOST)]
    wait_until(lambda: gateway.count("started") == started + MOST)
    for connection in connections:
        connection.close()
    left_at = time.monotonic()
    wait_until(lambda: gateway.count("cancelled") == cancelled + MOST, FREED_WITHIN_S)
    wait_until(lambda: gateway.in_flight() == 0, FREED_WITHIN_S)
    assert time.monotonic() - left_at < FREED_WITHIN_S
    assert outcomes(gateway.metrics())["cancelled"] == before["cancelled"] + MOST


def test_a_client_that_leaves_in_the_middle_of_its_upload_is_counted_as_cancelled(gateway: HeldGateway) -> None:
    before = outcomes(gateway.metrics())["cancelled"]
    with gateway.connect() as connection:
        connection.sendall(f"{HEAD}Content-Length: 5000\r\n\r\n--x".encode())
        wait_until(lambda: gateway.in_flight() == 1)
    wait_until(lambda: gateway.in_flight() == 0, FREED_WITHIN_S)
    assert outcomes(gateway.metrics())["cancelled"] == before + 1


def test_an_upload_declared_too_large_is_refused_before_it_is_read(gateway: HeldGateway) -> None:
    with gateway.connect() as connection:
        connection.sendall(f"{HEAD}Content-Length: 999999999\r\n\r\n".encode())
        status, answer = read_response(connection)
    assert (status, '"code":"upload_too_large"' in answer) == (413, True)


def test_the_refusal_of_an_endless_upload_reaches_a_client_that_only_sends(gateway: HeldGateway) -> None:
    chunk = b"10000\r\n" + bytes(1 << 16) + b"\r\n"
    with gateway.connect() as connection:
        part = b'--x\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
        connection.sendall(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n{len(part):x}\r\n".encode() + part + b"\r\n")
        for _ in range(64):  # four times what is allowed
            connection.sendall(chunk)
        connection.sendall(b"0\r\n\r\n")
        status, answer = read_response(connection)
    assert (status, '"code":"upload_too_large"' in answer) == (413, True)


def test_slow_uploads_keep_nobody_out_and_are_given_up(gateway: HeldGateway) -> None:
    def a_good_request_passes() -> bool:
        return gateway.post().status_code == 200

    def came_in() -> float:
        return gateway.in_flight() + gateway.metrics().get(TOO_SLOW, 0) - before

    before = gateway.metrics().get(TOO_SLOW, 0)
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(gateway.connect()) for _ in range(2 * MOST)]
        for connection in slow[:MOST]:
            connection.sendall(f"{HEAD}Content-Length: 5000\r\n\r\n--x".encode())
        wait_until(lambda: came_in() == MOST)
        wait_until(a_good_request_passes, 4)
        for connection in slow[MOST:]:
            connection.sendall(f"{HEAD}Content-Length: 5000\r\n\r\n--x".encode())
        wait_until(lambda: came_in() == 2 * MOST)
        wait_until(a_good_request_passes, 4)
        for connection in slow:
            status, answer = read_response(connection)
            assert (status, '"code":"upload_too_slow"' in answer) == (408, True)


def test_an_upload_that_dawdled_gets_a_slot_again_when_it_is_complete(
    gateway: HeldGateway, pool: ThreadPoolExecutor
) -> None:
    body = form()
    with gateway.connect() as connection:
        head = f"{HEAD}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body[:-10])
        wait_until(lambda: gateway.in_flight() == 1)
        others = occupy(gateway, pool, MOST - 1)
        started = gateway.count("started")
        wait_until(lambda: gateway.count("started") > started or others.append(pool.submit(gateway.post)) is not None)
        connection.sendall(body[-10:])
        gateway.release()
        status, answer = read_response(connection)
    assert (status, HELLO.text in answer) == (200, True)


def test_a_killed_worker_gives_its_slots_back(gateway: HeldGateway, pool: ThreadPoolExecutor) -> None:
    requests = occupy(gateway, pool, MOST)
    killed = gateway.workers()
    for worker in killed:
        os.kill(worker, signal.SIGKILL)
    assert all(isinstance(request.exception(), httpx.TransportError) for request in requests)
    gateway.release()
    wait_until(lambda: len(gateway.workers() - killed) == 2)
    requests = occupy(gateway, pool, MOST)
    gateway.release()
    assert {request.result().status_code for request in requests} == {200}


def test_a_thousand_idle_connections_hurt_nobody(gateway: HeldGateway) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(1000):
            connection = stack.enter_context(gateway.connect())
            if number % 2:
                connection.sendall(b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost:")
        began_at = time.monotonic()
        assert gateway.post().status_code == 200
        assert time.monotonic() - began_at < 2


def test_what_is_no_http_or_has_endless_headers_is_refused_in_the_openai_shape(gateway: HeldGateway) -> None:
    for sent, expected in ((b"hello\r\n\r\n", 400), (HEAD.encode() + b"x-filler: " + bytes([97]) * 200_000, 431)):
        with gateway.connect() as connection, contextlib.suppress(ConnectionError):
            connection.sendall(sent)
            status, answer = read_response(connection)
            assert (status, '{"error": {"message"' in answer) == (expected, True)


def test_every_request_is_accounted_for(gateway: HeldGateway) -> None:
    before = gateway.metrics()
    gateway.post()
    gateway.get("/nowhere")
    after = gateway.metrics()
    assert after["parakeet_accepted_total"] - before["parakeet_accepted_total"] == 3  # with the first look itself
    assert sum(outcomes(after).values()) - sum(outcomes(before).values()) == 3
    assert outcomes(after)["refused"] - outcomes(before)["refused"] == 1


def test_a_stopping_gateway_finishes_what_it_accepted_and_refuses_the_rest(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    with held_gateway(tmp_path) as gateway:
        accepted = occupy(gateway, pool, 8)
        gateway.process.terminate()
        wait_until(lambda: gateway.log().count("stopping:") == 2)
        assert gateway.get("/health").status_code == 503
        assert gateway.get("/health").json()["failing_check"] == "draining"
        refused = gateway.post()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "service_unavailable")
        assert int(refused.headers["retry-after"]) > 0
        assert refused.headers["connection"] == "close"
        gateway.release()
        assert {answer.result().status_code for answer in accepted} == {200}
        assert gateway.process.wait(10) is not None


def test_a_stop_under_load_loses_no_accepted_request(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    def ask_until_refused() -> list[int]:
        statuses = []
        with httpx.Client(timeout=30) as client:
            while not statuses or statuses[-1] == 200:
                try:
                    answer = client.post(gateway.url + "/v1/audio/transcriptions", content=form(), headers=headers)
                except httpx.ConnectError:
                    return statuses
                statuses.append(answer.status_code)
        return statuses

    headers = {"content-type": "multipart/form-data; boundary=x"}
    with held_gateway(tmp_path) as gateway:
        clients = [pool.submit(ask_until_refused) for _ in range(6)]
        wait_until(lambda: gateway.count("answered") > 20)
        gateway.process.terminate()
        ends = [client.result() for client in clients]
        assert {status for statuses in ends for status in statuses} <= {200, 503}
        assert sum(statuses.count(200) for statuses in ends) == gateway.count("answered")


def test_what_takes_longer_than_the_stop_timeout_is_told_to_come_back(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    with held_gateway(tmp_path, STOP_TIMEOUT_S="1") as gateway:
        accepted = occupy(gateway, pool, 2)
        gateway.process.terminate()
        for request in accepted:
            assert request.result().status_code == 503
            assert request.result().headers["retry-after"]
        assert gateway.count("cancelled") == 2


def test_slots_are_shared_between_processes_and_freed_by_their_end(tmp_path: Path) -> None:
    mine = Slots(3, tmp_path / "slots")
    first = mine.take()
    take_and_wait = "from parakeet_mps.gateway.slots import Slots; from pathlib import Path; import sys; "
    take_and_wait += "s = Slots(3, Path(sys.argv[1])); print(s.take(), s.take(), s.take(), flush=True); input()"
    other = subprocess.Popen(
        [sys.executable, "-c", take_and_wait, str(tmp_path / "slots")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline().split()[2] == "None"
        assert mine.take() is None
        other.kill()
    assert mine.take() is not None
    assert first is not None
    mine.give_back(first)
    assert {mine.take(), mine.take()} >= {first}
    mine.close()


@pytest.mark.anyio
async def test_who_has_an_answer_finds_its_slot_free() -> None:
    sent: list[tuple[int, int]] = []

    async def answer_and_go_on(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def ask(depth: int) -> None:
        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent.append((depth, message["status"]))
            elif depth:  # the client has the answer, and asks again before its first request is quite over
                await ask(depth - 1)

        await layer({"type": "http", "method": "POST", "path": "/v1/audio/transcriptions"}, all_of_the_body, send)

    layer = AdmissionLayer(answer_and_go_on, Admission(1), Drain(1.0))
    await ask(1)
    assert sent == [(1, 200), (0, 200)]


async def all_of_the_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


@pytest.mark.anyio
async def test_an_upload_that_cannot_be_stored_is_not_its_clients_fault() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield form()[:1000]
        raise OSError(errno.ENOSPC, "No space left on device")

    transport = httpx.ASGITransport(create_app(Settings(), FakeTranscriber()))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        headers = {"content-type": "multipart/form-data; boundary=x"}
        answer = await client.post("/v1/audio/transcriptions", content=body(), headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "service_unavailable")
    assert answer.headers["retry-after"]


def test_the_paths_that_admission_watches_are_served() -> None:
    assert set(create_app(Settings(), FakeTranscriber()).openapi()["paths"]) & WORK
