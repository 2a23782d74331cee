"""What the CUDA driver says of its GPUs and `nvidia-smi` does not: how many multiprocessors each has.

Asked through the driver's C interface without creating a context, so it takes no GPU memory. Standard library only.
https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__DEVICE.html
"""

from __future__ import annotations

import ctypes
import uuid
from typing import Any

_MULTIPROCESSOR_COUNT = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT


class _DriverError(RuntimeError):
    """A call of the driver returned an error code."""


def load_driver() -> Any:
    """Return the driver's library; None where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def multiprocessors(driver: Any) -> dict[str, int]:
    """Return the multiprocessors of every GPU that this process may see, by its UUID as `nvidia-smi` writes it.

    Empty when there is no driver or it fails: then nobody knows.
    """
    if driver is None:
        return {}
    try:
        _call(driver.cuInit, 0)
        count = ctypes.c_int()
        _call(driver.cuDeviceGetCount, ctypes.byref(count))
        return dict(_device(driver, ordinal) for ordinal in range(count.value))
    except (_DriverError, AttributeError):
        return {}


def _device(driver: Any, ordinal: int) -> tuple[str, int]:
    device, name, value = ctypes.c_int(), (ctypes.c_ubyte * 16)(), ctypes.c_int()
    _call(driver.cuDeviceGet, ctypes.byref(device), ordinal)
    _call(driver.cuDeviceGetUuid, ctypes.byref(name), device)
    _call(driver.cuDeviceGetAttribute, ctypes.byref(value), _MULTIPROCESSOR_COUNT, device)
    return f"GPU-{uuid.UUID(bytes=bytes(name))}", value.value


def _call(function: Any, *arguments: Any) -> None:
    if (code := function(*arguments)) != 0:
        raise _DriverError(code)
