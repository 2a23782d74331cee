"""Audio reaches a real Triton through shared memory, or inside the request where that cannot be."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import torch
from tritonclient.grpc import aio

from echo_triton import EchoTriton, echo_triton, said
from parakeet_mps.errors import UnavailableError
from parakeet_mps.gateway.audio_memory import SLOT_BYTES, AudioMemory
from parakeet_mps.gateway.audio_transport import AudioTransport
from parakeet_mps.gateway.retrying import RetryingTranscriber
from parakeet_mps.gateway.triton import TritonTranscriber
from parakeet_mps.run_folder import RunFolder
from parakeet_mps.settings import Settings

PREFIX = f"parakeet_test_{os.getpid()}_audio_"
SHM = Path("/dev/shm")
WAVEFORM = torch.arange(16_000, dtype=torch.float32)

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EchoTriton]:
    with echo_triton(tmp_path_factory.mktemp("triton"), instances=2) as triton:
        yield triton


@pytest.fixture
def sent() -> Counter[str]:
    """Waveforms by transport."""
    return Counter()


@pytest.fixture
async def shared(triton: EchoTriton, sent: Counter[str]) -> AsyncIterator[TritonTranscriber]:
    transcriber = TritonTranscriber(triton.url, transport(sent))
    yield transcriber
    await transcriber.close()


def transport(sent: Counter[str], workers: int = 4, folder: Path = SHM, insist: bool = False) -> AudioTransport:
    def count(name: str, size: int) -> None:
        sent[name] += 1

    return AudioTransport(lambda: AudioMemory.claim(PREFIX, workers, folder), insist, count)


def files() -> list[str]:
    return [file.name for file in SHM.glob(f"{PREFIX}*")]


async def regions(triton: EchoTriton) -> list[str]:
    async with aio.InferenceServerClient(triton.url) as client:
        return list((await client.get_system_shared_memory_status()).regions)


async def test_the_recogniser_hears_what_lies_in_shared_memory(shared: TritonTranscriber, sent: Counter[str]) -> None:
    for samples in (16_000, 1_600, 960_000):
        waveform = torch.rand(samples)
        assert (await shared.transcribe(waveform, 10)).text == said(waveform)
    assert sent == {"shm": 3}


async def test_concurrent_requests_keep_their_own_audio_whoever_gives_up(
    shared: TritonTranscriber, sent: Counter[str]
) -> None:
    await shared.transcribe(WAVEFORM, 10)
    rng = random.Random(1)

    async def ask(number: int) -> None:
        waveform = torch.full((16_000 * rng.randrange(1, 30),), float(number))
        assert (await shared.transcribe(waveform, 30)).text == said(waveform)

    async def give_up(number: int) -> None:
        request = asyncio.create_task(shared.transcribe(torch.full((16_000 * 45,), -float(number)), 30, ["0.05"]))
        await asyncio.wait([request], timeout=rng.uniform(0.001, 0.1))
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)

    async def client(number: int) -> None:
        for _ in range(8):
            await give_up(number)  # the slot that is free again is the next to be lent
            await ask(number)

    await asyncio.gather(*(client(number) for number in range(1, 9)))
    assert sent == {"shm": 1 + 8 * 8 * 2}


async def test_a_request_that_finds_no_slot_goes_through_grpc(triton: EchoTriton, sent: Counter[str]) -> None:
    with_few_slots = transport(sent, workers=_workers_for_slots(2))
    transcriber = TritonTranscriber(triton.url, with_few_slots)
    waveforms = [torch.full((1_600,), float(number)) for number in range(6)]
    answers = await asyncio.gather(*(transcriber.transcribe(waveform, 10, ["0.2"]) for waveform in waveforms))
    assert [answer.text for answer in answers] == [said(waveform) for waveform in waveforms]
    assert sent == {"shm": 2, "grpc": 4}
    await transcriber.close()


def _workers_for_slots(slots: int) -> int:
    system = os.statvfs(SHM)
    return int(system.f_bavail * system.f_frsize / 4 / SLOT_BYTES / (slots + 0.5))


async def test_a_triton_that_cannot_see_the_memory_gets_grpc_and_one_line_in_the_log(
    triton: EchoTriton, sent: Counter[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    transcriber = TritonTranscriber(triton.url, transport(sent, folder=tmp_path))
    answers = await asyncio.gather(*(transcriber.transcribe(WAVEFORM, 10) for _ in range(3)))
    assert [answer.text for answer in answers] == [said(WAVEFORM)] * 3
    assert sent == {"grpc": 3}
    assert [record.getMessage() for record in caplog.records if "gRPC" in record.getMessage()] == [
        "Triton does not read this machine's shared memory: Unable to open shared memory region:"
        f" '{_region_in(caplog.text)}'; audio goes through gRPC"
    ]
    assert list(tmp_path.iterdir()) == []
    await transcriber.close()


def _region_in(text: str) -> str:
    return text.partition("region: '")[2].partition("'")[0]


async def test_tritons_that_take_turns_get_grpc_and_what_is_under_way_keeps_its_audio(
    sent: Counter[str], tmp_path: Path
) -> None:
    waveforms = [torch.full((1_600,), float(number)) for number in range(12)]
    with echo_triton(tmp_path / "one") as one, echo_triton(tmp_path / "other") as other:
        transcriber = TritonTranscriber(f"ipv4:{one.url},{other.url}", transport(sent))
        answers = await asyncio.gather(*(transcriber.transcribe(waveform, 30, ["0.1"]) for waveform in waveforms))
        assert [answer.text for answer in answers] == [said(waveform) for waveform in waveforms]
        assert (await transcriber.transcribe(WAVEFORM, 10)).text == said(WAVEFORM)
        await transcriber.close()
    assert files() == []


async def test_where_shared_memory_is_insisted_on_its_absence_is_an_error(
    triton: EchoTriton, sent: Counter[str], tmp_path: Path
) -> None:
    transcriber = TritonTranscriber(triton.url, transport(sent, folder=tmp_path, insist=True))
    for _ in range(2):
        with pytest.raises(UnavailableError, match="AUDIO_TRANSPORT is shm, but"):
            await transcriber.transcribe(WAVEFORM, 10)
    await transcriber.close()


async def test_without_a_server_nothing_is_decided(triton: EchoTriton, sent: Counter[str]) -> None:
    audio = transport(sent)
    async with aio.InferenceServerClient("127.0.0.1:1") as nobody, audio.carry(WAVEFORM, nobody):
        assert sent == {"grpc": 1}
    async with aio.InferenceServerClient(triton.url) as client:
        async with audio.carry(WAVEFORM, client):
            assert sent == {"grpc": 1, "shm": 1}
        await audio.withdraw(client)
    audio.close()


async def test_closing_leaves_neither_a_file_nor_a_region_in_triton(
    shared: TritonTranscriber, triton: EchoTriton
) -> None:
    await shared.transcribe(WAVEFORM, 10)
    assert await regions(triton) == files() != []
    await shared.close()
    assert await regions(triton) == files() == []


async def test_the_successor_of_a_killed_worker_uses_the_region_that_triton_knows(
    triton: EchoTriton, sent: Counter[str]
) -> None:
    program = WORKER.format(path=[str(Path(__file__).parent)], prefix=PREFIX, url=triton.url)
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    assert worker.stdout
    assert (await worker.stdout.readline()).strip() == b"answered"
    worker.kill()
    await worker.wait()
    left = files()
    assert await regions(triton) == left != []
    successor = TritonTranscriber(triton.url, transport(sent))
    assert (await successor.transcribe(WAVEFORM, 10)).text == said(WAVEFORM)
    assert await regions(triton) == files() == left
    await successor.close()
    assert await regions(triton) == files() == []


WORKER = """
import asyncio, sys
sys.path[:0] = {path}
import torch
from parakeet_mps.gateway.audio_memory import AudioMemory
from parakeet_mps.gateway.audio_transport import AudioTransport
from parakeet_mps.gateway.triton import TritonTranscriber

async def main():
    transcriber = TritonTranscriber("{url}", AudioTransport(lambda: AudioMemory.claim("{prefix}", 4)))
    await transcriber.transcribe(torch.zeros(16000), 10)
    print("answered", flush=True)
    await transcriber.transcribe(torch.zeros(16000), 60, ["0.2"])

asyncio.run(main())
"""


async def test_a_triton_that_restarts_learns_of_the_memory_again(tmp_path: Path, sent: Counter[str]) -> None:
    triton = EchoTriton(tmp_path)
    transcriber = RetryingTranscriber(TritonTranscriber(triton.url, transport(sent)), settles_s=0)
    waveforms = [torch.full((16_000,), float(number)) for number in range(10)]
    try:
        triton.start()
        await asyncio.to_thread(triton.wait_ready)
        slow = [asyncio.create_task(transcriber.transcribe(waveform, 60, ["0.1"])) for waveform in waveforms]
        await asyncio.wait(slow, return_when=asyncio.FIRST_COMPLETED)
        triton.kill()
        triton.start()
        answers = await asyncio.gather(*slow)
        assert [answer.text for answer in answers] == [said(waveform) for waveform in waveforms]
        assert set(sent) == {"shm"}
        await asyncio.to_thread(triton.wait_ready)  # this one's channel, too, may pause after a failure
        assert await regions(triton) == files() != []
    finally:
        triton.kill()
        await transcriber.close()
    assert files() == []


@pytest.mark.parametrize("choice", ["auto", "shm", "grpc"])
async def test_the_setting_chooses(choice: str, triton: EchoTriton, tmp_path: Path) -> None:
    settings = Settings(run_dir=str(tmp_path), audio_transport=choice)
    sent = []
    transcriber = TritonTranscriber(
        triton.url, AudioTransport.of(settings, lambda name, size: sent.append((name, size)))
    )
    assert (await transcriber.transcribe(WAVEFORM, 10)).text == said(WAVEFORM)
    assert sent == [("grpc" if choice == "grpc" else "shm", 64_000)]
    assert bool(list(SHM.glob(f"{RunFolder(tmp_path).audio_prefix}*"))) is (choice != "grpc")
    await transcriber.close()
