"""Every batch that can come has a bucket, and not one much larger than itself."""

from __future__ import annotations

import pytest

from parakeet_mps.engine.buckets import ALIGNMENT, BATCHES, FRAME_BYTES, Bucket, align, choose, make_grid

LONGEST = 750
FRAME_S = 0.08
PLENTY = 1 << 40
GRID = make_grid(LONGEST, PLENTY)


def test_the_grid_is_largest_first_and_aligned() -> None:
    assert GRID[0] == Bucket(16, 752)
    assert [bucket.area for bucket in GRID] == sorted((bucket.area for bucket in GRID), reverse=True)
    assert all(bucket.frames % ALIGNMENT == 0 for bucket in GRID)
    assert len(set(GRID)) == len(GRID)


CHOICES = {
    (1, 1): Bucket(1, 64),
    (1, 64): Bucket(1, 64),
    (1, 65): Bucket(1, 128),
    (1, 563): Bucket(1, 568),
    (3, 563): Bucket(4, 568),
    (16, 752): Bucket(16, 752),
    (9, 10): Bucket(16, 64),
    (17, 10): None,
    (1, 753): None,
}


@pytest.mark.parametrize(("shape", "bucket"), CHOICES.items(), ids=map(str, CHOICES))
def test_the_smallest_bucket_with_room_is_chosen(shape: tuple[int, int], bucket: Bucket | None) -> None:
    assert choose(GRID, *shape) == bucket


def test_every_batch_within_the_largest_has_a_bucket() -> None:
    for utterances in range(1, max(BATCHES) + 1):
        for frames in range(1, LONGEST + 1):
            bucket = choose(GRID, utterances, frames)
            assert bucket is not None
            assert bucket.utterances >= utterances
            assert bucket.frames >= frames


def test_little_of_what_is_computed_for_lone_utterances_is_padding() -> None:
    frames = [round(seconds / FRAME_S) for seconds in range(1, 61)]
    computed = [bucket.area for bucket in (choose(GRID, 1, count) for count in frames) if bucket]
    assert len(computed) == len(frames)
    assert sum(frames) > 0.85 * sum(computed)


def test_a_grid_for_short_utterances_has_no_long_buckets() -> None:
    assert {bucket.frames for bucket in make_grid(80, PLENTY)} == {64, 80}
    assert {bucket.frames for bucket in make_grid(10, PLENTY)} == {align(10)}


def test_buckets_that_do_not_fit_the_memory_are_left_out() -> None:
    memory = 4 * 752 * FRAME_BYTES
    grid = make_grid(LONGEST, memory)
    assert all(bucket.area * FRAME_BYTES <= memory for bucket in grid)
    assert choose(grid, 4, 752) == Bucket(4, 752)
    assert choose(grid, 5, 752) is None
    assert choose(grid, 16, 100) == Bucket(16, 128)
