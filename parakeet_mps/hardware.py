"""What this machine has: cores, memory, shared memory and NVIDIA GPUs. The only module of the configuration that looks.

It knows nothing of settings, models or what follows from the hardware: that is `plan`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parakeet_mps.cuda_driver import load_driver, multiprocessors

_GPU_FIELDS = "index,uuid,name,memory.total,compute_mode"
_QUERY_TIMEOUT_S = 30
_MIB = 1024 * 1024


class HardwareError(RuntimeError):
    """The machine could not be read: `nvidia-smi` is there but fails, or answers in another form."""


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU as `nvidia-smi` lists it; `memory_mb` is in MiB, 0 when the driver does not tell.

    So is `multiprocessors`, which the CUDA driver adds.
    """

    index: int
    uuid: str
    name: str
    memory_mb: int
    compute_mode: str
    multiprocessors: int = 0

    @property
    def exclusive(self) -> bool:
        """Whether only one process may use it at a time; CUDA MPS counts as one."""
        return self.compute_mode.lower().startswith("exclusive")


@dataclass(frozen=True)
class Hardware:
    """Cores and MiB that this process may use, the GPUs it may see, and whether CUDA's MPS control program is there."""

    cpu_cores: int
    memory_mb: int
    shm_mb: int
    gpus: tuple[Gpu, ...] = ()
    mps_control: bool = False


def probe(
    environ: Mapping[str, str] = os.environ, root: Path = Path("/"), driver: Callable[[], Any] = load_driver
) -> Hardware:
    """Read the machine. `root` holds `proc`, `sys` and `dev`; `driver` loads CUDA's. Raises `HardwareError`.

    Where CUDA_VISIBLE_DEVICES is empty no GPU is asked for, so a broken driver does not matter.
    """
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    gpus = () if visible == "" else visible_gpus(query_gpus(environ), visible)
    counts = multiprocessors(driver()) if gpus else {}
    return Hardware(
        cpu_cores=cpu_cores(root),
        memory_mb=memory_mb(root),
        shm_mb=shared_memory_mb(root),
        gpus=tuple(replace(gpu, multiprocessors=counts.get(gpu.uuid, 0)) for gpu in gpus),
        mps_control=shutil.which("nvidia-cuda-mps-control", path=environ.get("PATH")) is not None,
    )


def cpu_cores(root: Path) -> int:
    """Cores of this process's affinity mask, less when a control group grants fewer."""
    cores = float(len(os.sched_getaffinity(0)))
    for group in _control_groups(root, "cpu"):
        quota, period = _cpu_quota(group)
        if quota > 0 and period > 0:
            cores = min(cores, quota / period)
    return max(1, int(cores))


def memory_mb(root: Path) -> int:
    """Physical memory in MiB, less when a control group grants less."""
    total_kb = next(
        int(line.split()[1])
        for line in (root / "proc/meminfo").read_text().splitlines()
        if line.startswith("MemTotal:")
    )
    limits = [total_kb * 1024]
    for group in _control_groups(root, "memory"):
        limits += _numbers(group / "memory.max") + _numbers(group / "memory.limit_in_bytes")
    return min(limits) // _MIB


def shared_memory_mb(root: Path) -> int:
    """Size in MiB of the file system that holds POSIX shared memory; 0 when there is none."""
    try:
        status = os.statvfs(root / "dev/shm")
    except OSError:
        return 0
    return status.f_frsize * status.f_blocks // _MIB


def query_gpus(environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """List the GPUs that `nvidia-smi` on the PATH reports; none without it. Raises `HardwareError`."""
    program = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if program is None:
        return ()
    command = [program, f"--query-gpu={_GPU_FIELDS}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S, env=dict(environ))
    except subprocess.TimeoutExpired:
        raise HardwareError(f"nvidia-smi did not answer within {_QUERY_TIMEOUT_S} s") from None
    if answer.returncode != 0:
        return _no_gpus(answer.stdout + answer.stderr)
    return tuple(_gpu(line) for line in answer.stdout.splitlines() if line.strip())


def visible_gpus(gpus: tuple[Gpu, ...], visible: str | None) -> tuple[Gpu, ...]:
    """Apply CUDA_VISIBLE_DEVICES as CUDA does: indices or UUID prefixes, in order, cut at the first that names no GPU.

    An index counts as `nvidia-smi` counts; the service hands on UUIDs, which mean the same GPU in any order.
    """
    if visible is None:
        return gpus
    chosen: list[Gpu] = []
    for entry in visible.split(","):
        gpu = _named(gpus, entry.strip())
        if gpu is None or gpu in chosen:
            break
        chosen.append(gpu)
    return tuple(chosen)


def _named(gpus: tuple[Gpu, ...], name: str) -> Gpu | None:
    if name.isascii() and name.isdigit():
        return next((gpu for gpu in gpus if gpu.index == int(name)), None)
    matches = [gpu for gpu in gpus if name and gpu.uuid.lower().startswith(name.lower())]
    return matches[0] if len(matches) == 1 else None


def _no_gpus(message: str) -> tuple[Gpu, ...]:
    # nvidia-smi exits with 6 or 9 in images that carry it while the host has no GPU or no driver: that is no fault.
    if "No devices were found" in message or "couldn't communicate with the NVIDIA driver" in message:
        return ()
    raise HardwareError(f"nvidia-smi failed: {message.strip()[:300]}")


def _gpu(line: str) -> Gpu:
    parts = [part.strip() for part in line.split(",")]
    if len(parts) != 5 or not parts[0].isdigit():
        raise HardwareError(f"nvidia-smi answered {line!r} for {_GPU_FIELDS}")
    return Gpu(
        index=int(parts[0]),
        uuid=parts[1],
        name=parts[2],
        memory_mb=int(parts[3]) if parts[3].isdigit() else 0,
        compute_mode=parts[4],
    )


def _control_groups(root: Path, controller: str) -> list[Path]:
    """Folders of this process's control group and its parents, version 2 (one tree) or 1 (one tree a controller)."""
    folders: list[Path] = []
    membership = root / "proc/self/cgroup"
    for line in membership.read_text().splitlines() if membership.exists() else []:
        _, controllers, group = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        tree = root / "sys/fs/cgroup" / (controller if controllers else "")
        path = Path(group.lstrip("/"))
        folders += [tree / folder for folder in (path, *path.parents)]
    return folders


def _cpu_quota(group: Path) -> tuple[int, int]:
    """Microseconds of CPU granted in each period; (0, 0) when there is no limit."""
    if (group / "cpu.max").exists():
        numbers = _numbers(group / "cpu.max")
    else:
        numbers = _numbers(group / "cpu.cfs_quota_us") + _numbers(group / "cpu.cfs_period_us")
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (0, 0)


def _numbers(path: Path) -> list[int]:
    """Whole numbers in a control file; `max`, a negative number or a missing file give none."""
    try:
        return [int(word) for word in path.read_text().split() if word.isdigit()]
    except OSError:
        return []
