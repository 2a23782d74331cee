from pathlib import Path
from typing import Any

import pytest

from parakeet_mps.hardware import (
    Gpu,
    HardwareError,
    cpu_cores,
    memory_mb,
    probe,
    query_gpus,
    shared_memory_mb,
    visible_gpus,
)

GPUS = tuple(Gpu(i, f"GPU-{letter * 8}-0000", "NVIDIA H200", 143771, "Default") for i, letter in enumerate("abc"))


def machine(root: Path, memory_kb: int = 16 * 1024 * 1024, cgroup: str = "0::/\n") -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: {memory_kb} kB\nMemFree: 1 kB\n")
    (root / "proc/self/cgroup").write_text(cgroup)
    return root


def control(root: Path, path: str, text: str) -> None:
    file = root / "sys/fs/cgroup" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def nvidia_smi(folder: Path, body: str) -> dict[str, str]:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_without_control_groups_the_machine_itself_counts(tmp_path: Path) -> None:
    assert memory_mb(machine(tmp_path)) == 16384
    assert cpu_cores(tmp_path) >= 1


def test_a_version_2_control_group_limits_memory_and_cores(tmp_path: Path) -> None:
    root = machine(tmp_path, cgroup="0::/\n")
    control(root, "memory.max", f"{2 * 1024**3}\n")
    control(root, "cpu.max", "100000 100000\n")
    assert memory_mb(root) == 2048
    assert cpu_cores(root) == 1


def test_the_limit_of_a_parent_group_counts_too(tmp_path: Path) -> None:
    root = machine(tmp_path, cgroup="0::/system.slice/asr.service\n")
    control(root, "system.slice/asr.service/memory.max", "max\n")
    control(root, "system.slice/memory.max", f"{3 * 1024**3}\n")
    assert memory_mb(root) == 3072


def test_a_version_1_control_group_limits_memory_and_cores(tmp_path: Path) -> None:
    root = machine(tmp_path, cgroup="4:memory:/\n3:cpu,cpuacct:/\n")
    control(root, "memory/memory.limit_in_bytes", f"{1024**3}\n")
    control(root, "cpu/cpu.cfs_quota_us", "50000\n")
    control(root, "cpu/cpu.cfs_period_us", "100000\n")
    assert memory_mb(root) == 1024
    assert cpu_cores(root) == 1


def test_an_unlimited_version_1_quota_is_no_limit(tmp_path: Path) -> None:
    root = machine(tmp_path, cgroup="3:cpu:/\n")
    control(root, "cpu/cpu.cfs_quota_us", "-1\n")
    control(root, "cpu/cpu.cfs_period_us", "100000\n")
    assert cpu_cores(root) == cpu_cores(tmp_path / "elsewhere")


def test_missing_shared_memory_is_zero(tmp_path: Path) -> None:
    assert shared_memory_mb(tmp_path) == 0


def test_a_machine_without_nvidia_smi_has_no_gpu(tmp_path: Path) -> None:
    assert query_gpus({"PATH": str(tmp_path)}) == ()


def test_gpus_are_read_from_nvidia_smi(tmp_path: Path) -> None:
    environ = nvidia_smi(
        tmp_path, 'echo "0, GPU-1b2c, NVIDIA H200, 143771, Default"; echo "1, GPU-x, A, [N/A], Default"'
    )
    assert query_gpus(environ) == (
        Gpu(0, "GPU-1b2c", "NVIDIA H200", 143771, "Default"),
        Gpu(1, "GPU-x", "A", 0, "Default"),
    )


def test_an_nvidia_smi_without_a_gpu_or_driver_means_no_gpu(tmp_path: Path) -> None:
    assert query_gpus(nvidia_smi(tmp_path, 'echo "No devices were found"; exit 6')) == ()


@pytest.mark.parametrize("body", ["echo 'Unknown Error'; exit 1", "echo 'nonsense'"])
def test_a_broken_nvidia_smi_stops_the_start(tmp_path: Path, body: str) -> None:
    with pytest.raises(HardwareError, match="nvidia-smi"):
        query_gpus(nvidia_smi(tmp_path, body))


def test_a_broken_nvidia_smi_does_not_matter_where_no_gpu_is_asked_for(tmp_path: Path) -> None:
    environ = nvidia_smi(tmp_path, "exit 1")
    assert probe({**environ, "CUDA_VISIBLE_DEVICES": ""}).gpus == ()


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("2,0", [2, 0]),
        (" 1 ", [1]),
        ("0,7,1", [0]),
        ("1,1", [1]),
        ("GPU-bbbb", [1]),
        ("GPU-", []),
        ("gpu-cccccccc-0000", [2]),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(visible: str | None, indices: list[int]) -> None:
    assert [gpu.index for gpu in visible_gpus(GPUS, visible)] == indices


def test_the_probe_reads_this_machine(tmp_path: Path) -> None:
    hardware = probe({"PATH": str(tmp_path)})
    assert hardware.cpu_cores >= 1
    assert hardware.memory_mb > 100
    assert not hardware.gpus
    assert not hardware.mps_control


def test_the_driver_adds_the_multiprocessors_by_uuid(tmp_path: Path) -> None:
    uuid = "00112233-4455-6677-8899-aabbccddeeff"
    environ = nvidia_smi(tmp_path, f'echo "0, GPU-{uuid}, H200, 143771, Default"; echo "1, GPU-other, A, 1, Default"')
    gpus = probe(environ, driver=lambda: FakeDriver(bytes.fromhex(uuid.replace("-", "")))).gpus
    assert [gpu.multiprocessors for gpu in gpus] == [132, 0]


@pytest.mark.parametrize("driver", [None, object()])
def test_without_a_working_driver_nobody_knows_the_multiprocessors(tmp_path: Path, driver: object) -> None:
    environ = nvidia_smi(tmp_path, 'echo "0, GPU-1, H200, 143771, Default"')
    assert [gpu.multiprocessors for gpu in probe(environ, driver=lambda: driver).gpus] == [0]


class FakeDriver:
    """One GPU of 132 multiprocessors, behind the C interface: results go where the pointers show."""

    def __init__(self, uuid: bytes) -> None:
        self._uuid = uuid

    def cuInit(self, flags: int) -> int:  # noqa: N802  the driver's names
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = 1
        return 0

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:  # noqa: N802
        device._obj.value = ordinal
        return 0

    def cuDeviceGetUuid(self, uuid: Any, device: Any) -> int:  # noqa: N802
        uuid._obj[:] = self._uuid
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:  # noqa: N802
        value._obj.value = {16: 132}[attribute]
        return 0
