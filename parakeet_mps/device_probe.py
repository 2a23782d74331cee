"""Whether the device that a recogniser computes on still computes: a trivial operation, with a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

LIMIT_S = 10.0
"""On a high-priority stream of its own the operation takes well under a millisecond, however busy the GPU is."""

_POLL_S = 0.005


class DeviceSilentError(RuntimeError):
    """The device accepted work but did not finish it in time."""


def device_probe(device: str, limit_s: float = LIMIT_S) -> Callable[[], None]:
    """Return the probe of `device` (cuda or cpu), to call from any thread.

    It raises `DeviceSilentError`, or what torch raises: after a sticky CUDA error every call does.
    """
    return CudaProbe(limit_s) if device.startswith("cuda") else probe_cpu


def probe_cpu() -> None:
    """Compute something trivial."""
    torch.zeros(8).sum().item()


class CudaProbe:
    """Adds to one number on the current GPU and polls for the end of it: blocking could last for ever.

    While another client keeps every multiprocessor, CUDA was seen to hold `Event.record` itself: then no limit of the
    probe's own counts, but the silence of the heartbeat that waits for it.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._stream = torch.cuda.Stream(priority=-1)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._stream):
            self._number = torch.zeros((), device="cuda")

    def __call__(self) -> None:
        """Probe once. Raises `DeviceSilentError` or torch's error."""
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._stream):
            self._number.add_(1)
            done.record()
        deadline = time.monotonic() + self._limit_s
        while not done.query():  # type: ignore[no-untyped-call]
            if time.monotonic() > deadline:
                raise DeviceSilentError(f"the GPU did not finish a trivial operation within {self._limit_s:g} s")
            time.sleep(_POLL_S)
