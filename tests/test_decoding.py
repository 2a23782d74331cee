"""Uploads are decoded in confined processes that nothing outlives and no file can turn against the service."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import io
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO

import psutil
import pytest
import torch

from kinds import wav_header
from parakeet_mps.checkpoint import ROOT
from parakeet_mps.contract import SAMPLE_RATE_HZ
from parakeet_mps.errors import AudioError, UnavailableError
from parakeet_mps.gateway import fork_server
from parakeet_mps.gateway.decoding import Decoded, Decoder
from recordings import duration_s, encoded, samples_wav, speech
from references import references

pytestmark = pytest.mark.anyio

HOUR_S = 3600
FORKSERVER = "parakeet_mps.audio.forkserver"
BLOCK_SAMPLES = 10 * SAMPLE_RATE_HZ


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


SECOND_FORK_FAILS = f"""
import os, socket, sys
from {FORKSERVER} import serve

forks, calls = os.fork, []

def fork():
    calls.append(None)
    if len(calls) == 2:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return forks()

os.fork = fork
serve(socket.socket(fileno=sys.stdin.fileno()))
"""

WITHOUT_FOLDER = f"""
import socket, sys, tempfile
from {FORKSERVER} import serve

tempfile.tempdir = "/proc/not-there"
serve(socket.socket(fileno=sys.stdin.fileno()))
"""


OTHERS: set[psutil.Process] = set()
"""The processes that other tests of this run keep."""


@pytest.fixture(autouse=True)
def _others() -> None:
    OTHERS.clear()
    OTHERS.update(children())


@pytest.fixture
async def decoder() -> AsyncIterator[Decoder]:
    decoder = Decoder(4 * HOUR_S, patience_s=10)
    yield decoder
    decoder.close()
    await ended()


@pytest.fixture
def stuck() -> Iterator[tuple[Decoder, psutil.Process]]:
    """A decoder whose fork server answers nobody, and that server."""
    decoder = Decoder(HOUR_S, start_limit_s=1)
    decoder.start()
    server = server_process()
    server.suspend()
    OTHERS.add(server)
    yield decoder, server
    decoder.close()


def server_process() -> psutil.Process:
    (server,) = [
        child for child in psutil.Process().children() if child not in OTHERS and FORKSERVER in child.cmdline()
    ]
    return server


async def successor(decoder: Decoder, limit_s: float = 10.0) -> psutil.Process:
    """Return the fork server that the decoder starts once it has given up the one that is among `OTHERS`."""
    deadline = time.monotonic() + limit_s
    while True:
        decoder.start()
        with contextlib.suppress(ValueError):
            return server_process()
        assert time.monotonic() < deadline, "the stuck server is kept"
        await asyncio.sleep(0.01)


def decoding_processes() -> list[psutil.Process]:
    """The processes that decode a file now: the children of the fork server."""
    return [child for child in children() if child not in OTHERS and is_decoding(child)]


def is_decoding(process: psutil.Process) -> bool:
    try:
        if process.ppid() == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
            return False
        return FORKSERVER in process.cmdline()
    except psutil.NoSuchProcess:  # it ended meanwhile
        return False


async def ended(limit_s: float = 1.0) -> None:
    """Return when no file is being decoded any more; fail after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while decoding_processes():
        assert time.monotonic() < deadline, "a file is still being decoded"
        await asyncio.sleep(0.01)


def on_disk(data: bytes) -> BinaryIO:
    file = tempfile.SpooledTemporaryFile(max_size=1 << 20)  # noqa: SIM115  its user closes it
    file.write(data)
    return file  # type: ignore[return-value]  # it has all of a binary file's methods


def sparse_wav(path: Path, seconds: float) -> BinaryIO:
    """Return a WAV of silence at 16 kHz that takes no place on disk."""
    data_bytes = int(seconds * SAMPLE_RATE_HZ) * 2
    header = samples_wav(b"")[:40] + data_bytes.to_bytes(4, "little")
    path.write_bytes(header)
    os.truncate(path, len(header) + data_bytes)
    return path.open("rb")


async def waveform(decoded: Decoded) -> torch.Tensor:
    return torch.cat([chunk async for chunk in decoded.chunks()])


async def is_refused(decoder: Decoder, data: bytes) -> bool:
    with on_disk(data) as upload:
        try:
            async with decoder.open(upload) as decoded:
                await waveform(decoded)
        except AudioError:
            return True
    return False


async def leaves(decoder: Decoder, upload: BinaryIO) -> None:
    """Play a client that leaves before its upload's process is there."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), decoder.open(upload):
            pytest.fail("a stuck server answered")


async def is_unavailable(decoder: Decoder) -> bool:
    with on_disk(speech()) as upload:
        try:
            async with decoder.open(upload):
                return False
        except UnavailableError:
            return True


async def test_a_spooled_upload_decodes_from_disk(decoder: Decoder) -> None:
    with on_disk(speech()) as upload:
        async with decoder.open(upload) as decoded:
            audio = await waveform(decoded)
    assert audio.dtype == torch.float32
    assert audio.numel() / SAMPLE_RATE_HZ == pytest.approx(duration_s(speech()), abs=0.01)
    assert decoded.warning is None


async def test_many_uploads_decode_at_once(decoder: Decoder) -> None:
    async def length(seconds: int) -> int:
        with on_disk(samples_wav(bytes(2 * SAMPLE_RATE_HZ * seconds))) as upload:
            async with decoder.open(upload) as decoded:
                return (await waveform(decoded)).numel()

    seconds = list(range(1, 33))
    assert await asyncio.gather(*map(length, seconds)) == [SAMPLE_RATE_HZ * count for count in seconds]


async def test_three_hours_never_need_memory_in_proportion(decoder: Decoder, tmp_path: Path) -> None:
    samples = most_bytes = 0
    with sparse_wav(tmp_path / "long.wav", 3 * HOUR_S) as upload:
        async with decoder.open(upload) as decoded:
            async for chunk in decoded.chunks():
                assert chunk.numel() <= BLOCK_SAMPLES
                if samples % (60 * BLOCK_SAMPLES) == 0:
                    most_bytes = max([most_bytes, *(process.memory_info().rss for process in decoding_processes())])
                samples += chunk.numel()
    assert samples == 3 * HOUR_S * SAMPLE_RATE_HZ
    assert 0 < most_bytes < 120 << 20


async def test_a_consumer_that_is_slow_holds_the_work_back(decoder: Decoder, tmp_path: Path) -> None:
    with sparse_wav(tmp_path / "long.wav", 3 * HOUR_S) as upload:
        async with decoder.open(upload):
            (process,) = decoding_processes()
            deadline = time.monotonic() + 5
            while process.status() != psutil.STATUS_SLEEPING:  # it waits until somebody takes its first blocks
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            assert process.cpu_times().user < 2


async def test_a_file_cut_short_is_decoded_with_a_warning_at_its_end(decoder: Decoder) -> None:
    wav = samples_wav(bytes(2 * SAMPLE_RATE_HZ * 30))
    with on_disk(wav[: len(wav) // 2]) as upload:
        async with decoder.open(upload) as decoded:
            assert decoded.warning is None
            assert (await waveform(decoded)).numel() == pytest.approx(15 * SAMPLE_RATE_HZ, abs=50)
    assert decoded.warning is not None
    assert "cut short" in decoded.warning


async def test_what_is_no_audio_is_refused_when_it_is_opened(decoder: Decoder) -> None:
    with on_disk(b"no audio at all") as upload, pytest.raises(AudioError, match="text"):
        async with decoder.open(upload):
            pytest.fail("text was opened")
    await ended()


async def test_samples_that_are_no_numbers_are_refused_where_they_come(decoder: Decoder) -> None:
    wav = bytearray(encoded(samples_wav(bytes(2 * SAMPLE_RATE_HZ * 25)), "wav", "-c:a", "pcm_f32le"))
    wav[-4:] = b"\xff\xff\xff\x7f"
    with on_disk(bytes(wav)) as upload:
        async with decoder.open(upload) as decoded:
            with pytest.raises(AudioError, match="not numbers"):
                await waveform(decoded)


async def test_a_decoder_that_crashes_fails_its_own_request_only(decoder: Decoder, tmp_path: Path) -> None:
    with sparse_wav(tmp_path / "long.wav", HOUR_S) as upload, on_disk(speech()) as other:
        async with decoder.open(upload) as decoded:
            (process,) = decoding_processes()
            async with decoder.open(other) as healthy:
                process.kill()
                with pytest.raises(AudioError, match="cannot be decoded"):
                    await waveform(decoded)
                assert (await waveform(healthy)).numel()


async def test_a_decoder_that_hangs_is_killed_at_its_time_limit(tmp_path: Path) -> None:
    decoder = Decoder(HOUR_S, patience_s=2)
    with sparse_wav(tmp_path / "long.wav", HOUR_S) as upload:
        async with decoder.open(upload) as decoded:
            (process,) = decoding_processes()
            process.suspend()
            with pytest.raises(AudioError, match="too long"):
                await waveform(decoded)
        await ended()
    decoder.close()


async def test_leaving_a_recording_ends_its_process_at_once(decoder: Decoder, tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def listen() -> None:
        with sparse_wav(tmp_path / "long.wav", HOUR_S) as upload:
            async with decoder.open(upload) as decoded:
                async for _ in decoded.chunks():
                    begun.set()
                    await asyncio.Event().wait()

    task = asyncio.create_task(listen())
    await begun.wait()
    assert len(decoding_processes()) == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await ended()


async def test_a_fork_server_that_died_is_replaced(decoder: Decoder) -> None:
    for _ in range(2):
        with on_disk(speech()) as upload:
            async with decoder.open(upload) as decoded:
                assert (await waveform(decoded)).numel()
        server = server_process()
        server.kill()
        server.wait(5)


async def test_a_stuck_fork_server_is_replaced_though_all_who_asked_have_left(
    stuck: tuple[Decoder, psutil.Process],
) -> None:
    decoder, server = stuck
    with on_disk(speech()) as upload:
        await leaves(decoder, upload)
    assert (await successor(decoder)).is_running()
    await asyncio.to_thread(server.wait, 10)


async def test_an_upload_that_waited_for_a_stuck_fork_server_does_not_end_its_successor(
    stuck: tuple[Decoder, psutil.Process],
) -> None:
    decoder, _ = stuck
    first = asyncio.create_task(is_unavailable(decoder))
    await asyncio.wait({first}, timeout=0.5)
    second = asyncio.create_task(is_unavailable(decoder))
    server = await successor(decoder)  # the first one's time is up; soon the second one's is
    assert await asyncio.gather(first, second) == [True, True]
    assert server.is_running()


async def test_a_process_that_comes_when_its_upload_has_left_is_killed(decoder: Decoder, tmp_path: Path) -> None:
    decoder.start()
    server = server_process()
    server.suspend()
    with sparse_wav(tmp_path / "long.wav", HOUR_S) as upload, on_disk(speech()) as other:
        await leaves(decoder, upload)
        server.resume()
        async with decoder.open(other) as decoded:
            assert (await waveform(decoded)).numel()
        await ended()
    assert server_process() == server


async def test_an_upload_is_not_blamed_for_the_end_of_the_fork_server(decoder: Decoder, tmp_path: Path) -> None:
    with sparse_wav(tmp_path / "long.wav", HOUR_S) as upload:
        async with decoder.open(upload) as decoded:
            server_process().kill()
            with pytest.raises(UnavailableError):
                await waveform(decoded)


async def test_where_no_process_can_be_made_an_upload_is_told_to_come_again_and_others_go_on(
    decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "_command", lambda: [sys.executable, "-P", "-c", SECOND_FORK_FAILS])
    with sparse_wav(tmp_path / "long.wav", 60) as upload, on_disk(speech()) as other:
        async with decoder.open(upload) as decoded:
            with pytest.raises(UnavailableError):
                async with decoder.open(other):
                    pass
            assert (await waveform(decoded)).numel() == 60 * SAMPLE_RATE_HZ
        async with decoder.open(other) as decoded:
            assert (await waveform(decoded)).numel()


async def test_an_upload_decodes_where_no_folder_takes_files(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "_command", lambda: [sys.executable, "-P", "-c", WITHOUT_FOLDER])
    with on_disk(speech()) as upload:
        async with decoder.open(upload) as decoded:
            assert (await waveform(decoded)).numel()


async def test_nothing_is_left_when_the_decoder_is_closed(tmp_path: Path) -> None:
    decoder = Decoder(HOUR_S)
    decoder.start()
    server = server_process()
    decoder.close()
    assert not server.is_running()


async def test_the_decoding_processes_know_nothing_of_the_environment(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEYS", "secret")
    decoder.start()
    assert not {"API_KEYS", "HOME", "PATH"} & server_process().environ().keys()


async def test_the_decoding_processes_know_the_folder_for_temporary_files(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    decoder.start()
    assert server_process().environ()["TMPDIR"] == str(tmp_path)


async def test_the_decoding_processes_may_open_nothing_and_are_nobody(decoder: Decoder, tmp_path: Path) -> None:
    with sparse_wav(tmp_path / "long.wav", HOUR_S) as upload:
        async with decoder.open(upload):
            (process,) = decoding_processes()
            limits = Path(f"/proc/{process.pid}/limits").read_text()
            assert re.search(r"Max open files +0 +0 ", limits)
            assert re.search(r"Max file size +0 +0 ", limits)
            if os.geteuid() == 0:
                assert process.uids().effective != 0


CONFINED = """
import os, socket, sys, tempfile
from parakeet_mps.audio import landlock
from parakeet_mps.audio.confinement import address_space_bytes, confine, confine_further, forbid_new_rights
port, path, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
memory = address_space_bytes() + (64 << 20)
attempts = {
    "read": lambda: open(path).close(),
    "write": lambda: open(folder + "/x", "w").close(),
    "connect": lambda: socket.socket().connect(("127.0.0.1", port)),
    "fork": lambda: os.fork() or os._exit(0),
    "run": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "memory": lambda: bytearray(256 << 20),
    "signal": lambda: os.kill(os.getppid(), 0),
}
if sys.argv[4] == "privileged":
    confine()
    del attempts["fork"], attempts["memory"]
elif sys.argv[4] == "without folder":
    tempfile.tempdir = "/proc/not-there"
    confine()
    del attempts["fork"], attempts["memory"]
elif sys.argv[4] == "landlock":
    forbid_new_rights()
    assert landlock.restrict()
    del attempts["fork"], attempts["memory"]
else:
    del attempts["signal"]
    confine_further(memory, 10)
    if os.geteuid() == 0:
        del attempts["fork"], attempts["run"]  # root is above this limit, but is nobody by then
for name, attempt in attempts.items():
    try:
        attempt()
    except (OSError, MemoryError):
        continue
    print(name, "was allowed")
"""


def landlock_version() -> int:
    return int(ctypes.CDLL(None).syscall(444, None, 0, 1))


@pytest.mark.parametrize("by", ["limits", "landlock", "without folder", "privileged"])
async def test_a_confined_process_opens_no_file_and_reaches_no_address(by: str, tmp_path: Path) -> None:
    """Each fence holds alone: limits, the kernel's Landlock, and leaving files and network where that is permitted.

    Without a folder to leave for, Landlock holds.
    """
    if by in ("landlock", "without folder") and landlock_version() < 6:
        pytest.skip("this kernel's Landlock knows no TCP or signals")
    if by == "privileged" and os.geteuid() != 0:
        pytest.skip("only root is sure to be permitted to leave file system and network")
    canary = tmp_path / "canary"
    canary.write_text("canary")
    tmp_path.chmod(0o777)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-c", CONFINED, str(listener.getsockname()[1]), str(canary), str(tmp_path), by]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == ""


async def test_no_upload_makes_the_decoder_open_another_file_or_address(decoder: Decoder, tmp_path: Path) -> None:
    canary = tmp_path / "canary.wav"
    canary.write_bytes(speech())
    read_at = canary.stat().st_atime_ns
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/canary.wav"
        for target in (str(canary), f"file:{canary}", address):
            for name, data in references(target, speech()).items():
                assert await is_refused(decoder, data), f"{name} was followed"
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert canary.stat().st_atime_ns == read_at


async def test_a_header_that_promises_too_much_takes_no_memory(decoder: Decoder) -> None:
    huge = wav_header(0x7000_0000) + bytes(2 * SAMPLE_RATE_HZ)
    with on_disk(huge) as upload:
        async with decoder.open(upload) as decoded:
            assert (await waveform(decoded)).numel() > 0
    assert "cut short" in (decoded.warning or "")


async def test_an_upload_without_a_descriptor_is_an_error_of_the_caller(decoder: Decoder) -> None:
    with pytest.raises(io.UnsupportedOperation):
        async with decoder.open(io.BytesIO(speech())):
            pytest.fail("bytes in memory were opened")
