"""One recogniser's share of a GPU under CUDA MPS: how it is asked for, and whether it was given.

CUDA asks at a process's first call of it, and goes on without MPS and without a word when it cannot reach the daemon.
"""

from __future__ import annotations

from collections.abc import Mapping

GRANULARITY = 2
"""Multiprocessors come in pairs: 25 % of 132 is 32, 12 % is 14, measured on an H200."""

_LEAST_TOLERANCE = 4


class PartitionError(RuntimeError):
    """The GPU is not divided as planned; the message says what was expected and what is there."""


def client_environ(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return what a recogniser's process must have in its environment before its first CUDA call."""
    limit_mb = int(parameters["memory_limit_mb"])
    # The server shows one GPU to its recognisers, as number 0.
    limit = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={limit_mb}M"} if limit_mb else {}
    return {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": parameters["active_thread_percentage"], **limit}


def expected_multiprocessors(percentage: int, total: int) -> int:
    """Return how many of `total` multiprocessors a client with `percentage` sees."""
    return max(GRANULARITY, total * percentage // 100 // GRANULARITY * GRANULARITY)


def check_partition(parameters: Mapping[str, str], actual: int) -> None:
    """Compare the `actual` multiprocessors with the plan; a total of 0 means that nobody knows it.

    Raises `PartitionError`.
    """
    percentage, total = int(parameters["active_thread_percentage"]), int(parameters["multiprocessors"])
    expected = expected_multiprocessors(percentage, total)
    undivided = percentage < 100 and actual == total
    if total and (undivided or abs(actual - expected) > max(_LEAST_TOLERANCE, expected // 8)):
        raise PartitionError(
            f"this recogniser sees {actual} of {total} multiprocessors; {percentage} % should be {expected}: "
            + ("CUDA does not reach the MPS daemon" if undivided else "CUDA MPS divides this GPU in another way")
        )
