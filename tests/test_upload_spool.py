"""Uploads lie in memory while they are small and few, else on disk; a descriptor reads them in either case."""

from __future__ import annotations

import errno
import io
import os
import resource
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import BoundedSemaphore

import pytest

from parakeet_mps.gateway.upload_spool import SpoolFile

SMALL = 1 << 16
PART = os.urandom(SMALL // 4)


@pytest.fixture
def places() -> BoundedSemaphore:
    return BoundedSemaphore(1)


def lies_in_memory(file: SpoolFile) -> bool:
    return "memfd:" in str(Path(f"/proc/self/fd/{file.fileno()}").readlink())


def filled(places: BoundedSemaphore, parts: int) -> SpoolFile:
    file = SpoolFile(places, SMALL)
    for _ in range(parts):
        assert file.write(PART) == len(PART)
    return file


@pytest.mark.parametrize(("parts", "in_memory"), [(1, True), (4, True), (5, False), (40, False)])
def test_small_uploads_lie_in_memory_and_large_ones_on_disk(
    places: BoundedSemaphore, parts: int, in_memory: bool
) -> None:
    file = filled(places, parts)
    assert lies_in_memory(file) == in_memory
    assert os.pread(file.fileno(), SMALL * 20, 0) == PART * parts
    file.seek(0)
    assert file.read() == PART * parts
    file.close()


def test_without_a_place_a_small_upload_lies_on_disk(places: BoundedSemaphore) -> None:
    first, second = filled(places, 1), filled(places, 1)
    assert lies_in_memory(first)
    assert not lies_in_memory(second)
    first.close()
    second.close()
    third = filled(places, 1)
    assert lies_in_memory(third)
    third.close()


def test_an_upload_that_moved_to_disk_gave_its_place_back(places: BoundedSemaphore) -> None:
    large, small = filled(places, 5), filled(places, 1)
    assert lies_in_memory(small)
    for file in (large, small):
        file.close()
        file.close()  # a place is given back once
    with closing(filled(places, 1)) as file:
        assert lies_in_memory(file)


def test_starlette_is_told_when_writing_may_take_time(places: BoundedSemaphore) -> None:
    small, large = filled(places, 4), filled(places, 1)
    assert (small._rolled, large._rolled) == (False, True)
    assert small._max_size == SMALL
    small.close()
    large.close()


@pytest.fixture
def _no_room() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL // 2, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("_no_room")
def test_an_upload_without_room_is_an_error(places: BoundedSemaphore) -> None:
    with closing(SpoolFile(places, SMALL)) as file, pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        file.write(PART * 4)


def test_an_upload_that_found_the_disk_full_gives_its_place_back(
    places: BoundedSemaphore, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = filled(places, 4)
    monkeypatch.setattr("parakeet_mps.gateway.upload_spool._on_disk", lambda: io.FileIO("/dev/full", "w"))
    with pytest.raises(OSError, match="No space left"):
        file.write(PART)
    file.close()
    assert places.acquire(blocking=False)


def test_an_upload_for_which_there_is_no_memory_gives_its_place_back(
    places: BoundedSemaphore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: str) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", refuse)
    with pytest.raises(OSError, match="Too many"):
        SpoolFile(places)
    assert places.acquire(blocking=False)
