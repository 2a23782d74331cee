"""The gateway hears decoding processes as far as they keep to the rules."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import uvloop

from parakeet_mps.audio import messages
from parakeet_mps.errors import UnavailableError
from parakeet_mps.gateway.decoding_process import DecodingProcess

pytestmark = pytest.mark.anyio

LONGEST = 1 << 20
BODY = np.random.default_rng(7).bytes(LONGEST)


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


class Peer:
    """Plays a decoding process, with this process's own handle."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self.stream.setblocking(False)

    def introduce(self) -> None:
        handle = os.pidfd_open(os.getpid())
        socket.send_fds(self.stream, [b"\0"], [handle])
        os.close(handle)

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.stream, data)


@pytest.fixture
def ends() -> Iterator[tuple[Peer, socket.socket]]:
    its_end, stream = socket.socketpair()
    stream.setblocking(False)
    with its_end, stream:
        yield Peer(its_end), stream


async def met(peer: Peer, stream: socket.socket) -> DecodingProcess:
    peer.introduce()
    return await DecodingProcess.meet(stream, lambda: False)


async def test_the_loop_is_the_one_that_is_meant(anyio_backend: tuple[str, dict[str, bool]]) -> None:
    assert isinstance(asyncio.get_running_loop(), uvloop.Loop) == anyio_backend[1]["use_uvloop"]


async def test_a_message_comes_whole_however_it_is_portioned(ends: tuple[Peer, socket.socket]) -> None:
    peer, stream = ends
    process = await met(peer, stream)
    message = messages.HEADER.pack(messages.AUDIO, LONGEST) + BODY
    heard = asyncio.create_task(process.receive(LONGEST))
    cuts = [0, 1, 4, 5, 6, 4096, 300_001, len(message)]
    for begin, end in itertools.pairwise(cuts):
        await peer.send(message[begin:end])
        await asyncio.sleep(0)
    kind, body = await heard
    assert kind == messages.AUDIO
    assert body.tobytes() == BODY


async def test_messages_that_come_together_are_told_apart(ends: tuple[Peer, socket.socket]) -> None:
    peer, stream = ends
    process = await met(peer, stream)
    await peer.send(messages.HEADER.pack(messages.AUDIO, 4) + b"1234" + messages.HEADER.pack(messages.END, 0))
    assert (await process.receive(LONGEST))[1].tobytes() == b"1234"
    kind, body = await process.receive(LONGEST)
    assert (kind, body.size) == (messages.END, 0)


async def test_a_message_that_is_too_long_is_not_received(ends: tuple[Peer, socket.socket]) -> None:
    peer, stream = ends
    process = await met(peer, stream)
    await peer.send(messages.HEADER.pack(messages.AUDIO, 0xFFFF_FFFF))
    with pytest.raises(EOFError, match="too long"):
        await process.receive(LONGEST)


@pytest.mark.parametrize("said", [b"", b"A\4", messages.HEADER.pack(messages.AUDIO, 8) + b"1234"])
async def test_a_process_that_ends_inside_a_message_is_broken(ends: tuple[Peer, socket.socket], said: bytes) -> None:
    peer, stream = ends
    process = await met(peer, stream)
    await peer.send(said)
    peer.stream.close()
    with pytest.raises(EOFError):
        await process.receive(LONGEST)


async def test_a_stream_is_deaf_to_nobody_after_a_wait_was_given_up(ends: tuple[Peer, socket.socket]) -> None:
    peer, stream = ends
    process = await met(peer, stream)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await process.receive(LONGEST)
    await peer.send(messages.HEADER.pack(messages.END, 0))
    assert (await process.receive(LONGEST))[0] == messages.END


@pytest.mark.parametrize("said", [b"\0", b""])
async def test_a_process_without_a_handle_is_not_met(ends: tuple[Peer, socket.socket], said: bytes) -> None:
    peer, stream = ends
    await peer.send(said)
    peer.stream.close()
    with pytest.raises(UnavailableError):
        await DecodingProcess.meet(stream, lambda: False)


async def test_killing_ends_the_process_that_introduced_itself(ends: tuple[Peer, socket.socket]) -> None:
    peer, stream = ends
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
    handle = os.pidfd_open(child.pid)
    socket.send_fds(peer.stream, [b"\0"], [handle])
    os.close(handle)
    (await DecodingProcess.meet(stream, lambda: False)).kill()
    assert await child.wait() == -9
