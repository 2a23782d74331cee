"""The shared memory in which a worker lays audio down, and what becomes of it when the worker dies."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch

from parakeet_mps.checkpoint import ROOT
from parakeet_mps.contract import MAX_PIECE_S, SAMPLE_RATE_HZ
from parakeet_mps.gateway.audio_memory import MOST_SLOTS, SLOT_BYTES, AudioMemory, affordable_slots
from parakeet_mps.run_folder import RunFolder

PREFIX = "parakeet_test_audio_"
WORKERS = 4

WORKER = """
import sys
from pathlib import Path
import torch
from parakeet_mps.gateway.audio_memory import AudioMemory
memory = AudioMemory.claim("parakeet_test_audio_", 4, Path(sys.argv[1]))
with memory.lend(torch.full((16000,), 0.5)):
    print(memory.name, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def memory(shm: Path) -> Iterator[AudioMemory]:
    memory = AudioMemory.claim(PREFIX, WORKERS, shm)
    yield memory
    memory.close()


@pytest.fixture
def shm() -> Iterator[Path]:
    """A folder of real shared memory."""
    folder = Path(f"/dev/shm/parakeet_test_{os.getpid()}")
    folder.mkdir()
    yield folder
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


@pytest.fixture
def dead_workers_file(shm: Path) -> Path:
    """What a worker leaves that was killed while it had lent a slot."""
    command = [sys.executable, "-c", WORKER, str(shm)]
    worker = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with worker:
        assert worker.stdout
        name = worker.stdout.readline().strip()
        worker.send_signal(signal.SIGKILL)
    return shm / name


def at(path: Path, offset: int, samples: int) -> np.ndarray:
    with path.open("rb") as file:
        file.seek(offset)
        return np.frombuffer(file.read(samples * 4), np.float32)


def test_a_lent_slot_holds_the_waveform(memory: AudioMemory, shm: Path) -> None:
    waveform = torch.arange(1000, dtype=torch.float32)
    with memory.lend(waveform) as offset:
        assert offset is not None
        assert (at(shm / memory.name, offset, 1000) == waveform.numpy()).all()


def test_slots_that_are_lent_at_once_do_not_overlap(memory: AudioMemory, shm: Path) -> None:
    samples = MAX_PIECE_S * SAMPLE_RATE_HZ
    with ExitStack() as stack:
        offsets = [stack.enter_context(memory.lend(torch.full((samples,), float(value)))) for value in range(3)]
        for value, offset in enumerate(offsets):
            assert offset is not None
            assert (at(shm / memory.name, offset, samples) == value).all()


def test_when_all_slots_are_taken_none_is_lent_until_one_comes_back(memory: AudioMemory) -> None:
    waveform = torch.zeros(10)
    with ExitStack() as stack:
        lent = {stack.enter_context(memory.lend(waveform)) for _ in range(memory.size_bytes // SLOT_BYTES)}
        assert None not in lent
        with memory.lend(waveform) as offset:
            assert offset is None
    with memory.lend(waveform) as offset:
        assert offset in lent


def test_a_slot_comes_back_from_a_request_that_failed(memory: AudioMemory) -> None:
    def fail() -> None:
        with memory.lend(torch.zeros(10)) as offset:
            assert offset is not None
            raise RuntimeError

    for _ in range(2 * MOST_SLOTS):
        with pytest.raises(RuntimeError):
            fail()


def test_a_waveform_longer_than_a_slot_is_not_taken(memory: AudioMemory) -> None:
    with memory.lend(torch.zeros(SLOT_BYTES // 4 + 1)) as offset:
        assert offset is None


def test_only_this_user_may_read_it(memory: AudioMemory, shm: Path) -> None:
    assert stat.S_IMODE((shm / memory.name).stat().st_mode) == 0o600


def test_memory_is_taken_as_slots_are_used(memory: AudioMemory, shm: Path) -> None:
    def taken() -> int:
        return (shm / memory.name).stat().st_blocks * 512

    assert taken() == 0
    for _ in range(10):
        with memory.lend(torch.zeros(16_000)):
            assert 64_000 <= taken() < 64_000 + 2 * 4096


def test_two_workers_never_share_a_file(memory: AudioMemory, shm: Path) -> None:
    other = AudioMemory.claim(PREFIX, WORKERS, shm)
    assert other.name != memory.name
    other.close()


def test_closing_leaves_no_file_and_no_audio(shm: Path) -> None:
    memory = AudioMemory.claim(PREFIX, WORKERS, shm)
    with memory.lend(torch.ones(1000)) as offset, (shm / memory.name).open("rb") as triton:
        memory.close()
        assert offset is not None
        assert triton.seek(offset) == offset
        assert not any(triton.read(4000))
    assert list(shm.iterdir()) == []


def test_the_next_worker_takes_over_what_a_killed_one_left_and_wipes_it(dead_workers_file: Path, shm: Path) -> None:
    assert at(dead_workers_file, 0, dead_workers_file.stat().st_size // 4).any()
    heir = AudioMemory.claim(PREFIX, WORKERS, shm)
    assert [file.name for file in shm.iterdir()] == [heir.name] == [dead_workers_file.name]
    assert dead_workers_file.stat().st_blocks == 0
    heir.close()


def owned_by_another(path: Path) -> None:
    os.chown(path, 1, 1)


def readable_by_others(path: Path) -> None:
    path.chmod(0o644)


def too_short(path: Path) -> None:
    os.truncate(path, 100)


def a_link(path: Path) -> None:
    path.rename(path.with_name("target"))
    path.symlink_to("target")


def nothing(path: Path) -> None:
    """Leave it as a dead worker does."""


@pytest.mark.parametrize(
    ("done", "taken_over"),
    [
        (nothing, True),
        pytest.param(owned_by_another, False, marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root may")),
        (readable_by_others, False),
        (too_short, False),
        (a_link, False),
    ],
)
def test_audio_is_never_laid_into_a_file_that_is_not_a_dead_workers(
    done: Callable[[Path], None], taken_over: bool, shm: Path
) -> None:
    file = shm / f"{PREFIX}left"
    file.touch(0o600)
    os.truncate(file, SLOT_BYTES)
    done(file)
    memory = AudioMemory.claim(PREFIX, WORKERS, shm)
    assert (memory.name == file.name) is taken_over
    memory.close()


def test_without_an_heir_the_service_removes_it_but_never_that_of_a_living_worker(tmp_path: Path, shm: Path) -> None:
    run = RunFolder(tmp_path, shm)
    memory = AudioMemory.claim(run.audio_prefix, WORKERS, shm)
    (shm / f"{run.audio_prefix}left").touch()
    (shm / f"{run.shm_prefix}triton_left").touch()
    run.remove_audio_memory()
    assert {file.name for file in shm.iterdir()} == {memory.name, f"{run.shm_prefix}triton_left"}
    run.remove_shared_memory()
    assert [file.name for file in shm.iterdir()] == [memory.name]
    memory.close()


@pytest.mark.parametrize(
    ("free_mb", "workers", "slots"),
    [(16384, 4, MOST_SLOTS), (1800, 4, 30), (64, 4, 1), (58, 4, 0), (64, 1, 4)],
)
def test_slots_take_at_most_a_quarter_of_what_is_free(free_mb: int, workers: int, slots: int) -> None:
    assert affordable_slots(free_mb << 20, workers) == slots


def test_without_room_the_reason_is_told(tmp_path: Path, shm: Path) -> None:
    with pytest.raises(OSError, match="too little room"):
        AudioMemory.claim(PREFIX, 10**9, shm)
