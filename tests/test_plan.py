import dataclasses

import pytest

from parakeet_mps.choices import make_plan
from parakeet_mps.hardware import Gpu, Hardware
from parakeet_mps.plan import Plan
from parakeet_mps.settings import SettingError, Settings

LAPTOP = Hardware(cpu_cores=2, memory_mb=8192, shm_mb=4096)


def gpu_machine(
    memory_mb: int = 143771, gpus: int = 1, mps_control: bool = True, mode: str = "Default", sms: int = 132
) -> Hardware:
    cards = tuple(Gpu(i, f"GPU-{i}", "NVIDIA H200", memory_mb, mode, sms) for i in range(gpus))
    return Hardware(cpu_cores=16, memory_mb=131072, shm_mb=65536, gpus=cards, mps_control=mps_control)


@pytest.mark.parametrize(
    ("hardware", "settings", "device", "instances", "percentage", "mps", "threads"),
    [
        (LAPTOP, Settings(), "cpu", 1, 100, False, 2),
        (dataclasses.replace(LAPTOP, cpu_cores=32, memory_mb=65536), Settings(), "cpu", 4, 100, False, 8),
        (dataclasses.replace(LAPTOP, cpu_cores=32, memory_mb=8192), Settings(), "cpu", 2, 100, False, 16),
        (LAPTOP, Settings(mps_instance_count=2), "cpu", 2, 100, False, 1),
        (gpu_machine(), Settings(), "cuda", 4, 25, True, 1),
        (gpu_machine(), Settings(mps_instance_count=8), "cuda", 8, 12, True, 1),
        (gpu_machine(memory_mb=18432), Settings(), "cuda", 2, 50, True, 1),
        (gpu_machine(memory_mb=8192), Settings(), "cuda", 1, 100, False, 1),
        (gpu_machine(sms=58), Settings(), "cuda", 2, 50, True, 1),
        (gpu_machine(sms=20), Settings(), "cuda", 1, 100, False, 1),
        (gpu_machine(sms=0), Settings(), "cuda", 4, 25, True, 1),
        (gpu_machine(sms=20), Settings(mps="off"), "cuda", 4, 100, False, 1),
        (gpu_machine(sms=20), Settings(mps_instance_count=4), "cuda", 4, 25, True, 1),
        (gpu_machine(), Settings(mps_instance_count=1), "cuda", 1, 100, False, 1),
        (gpu_machine(), Settings(mps_instance_count=1, mps="on"), "cuda", 1, 100, True, 1),
        (gpu_machine(), Settings(mps="off"), "cuda", 4, 100, False, 1),
        (gpu_machine(), Settings(mps="off", mps_instance_count=4), "cuda", 4, 100, False, 1),
        (gpu_machine(), Settings(mps_thread_percentage=50), "cuda", 4, 50, True, 1),
        (gpu_machine(), Settings(mps="off", mps_thread_percentage=50), "cuda", 4, 100, False, 1),
        (gpu_machine(mps_control=False), Settings(), "cuda", 4, 100, False, 1),
        (gpu_machine(mode="Exclusive_Process"), Settings(mps_instance_count=1), "cuda", 1, 100, True, 1),
    ],
)
def test_given_this_machine_choose_that(
    hardware: Hardware, settings: Settings, device: str, instances: int, percentage: int, mps: bool, threads: int
) -> None:
    plan = make_plan(settings, hardware)
    assert plan.device.value == device
    assert plan.instances.value == instances
    assert plan.thread_percentage.value == percentage
    assert plan.mps.value is mps
    assert plan.torch_threads.value == threads


def test_parts_that_overlap_say_so() -> None:
    assert (
        make_plan(Settings(mps_thread_percentage=25), gpu_machine()).thread_percentage.reason == "MPS_THREAD_PERCENTAGE"
    )
    reason = make_plan(Settings(mps_thread_percentage=50), gpu_machine()).thread_percentage.reason
    assert reason == "MPS_THREAD_PERCENTAGE; 4 instances share what is more than 25 % each"


def test_the_first_of_several_gpus_is_used_and_the_reason_says_so() -> None:
    gpu = make_plan(Settings(), gpu_machine(gpus=3)).gpu
    assert gpu.value == "GPU-0"
    assert "3 visible GPUs; one is used" in gpu.reason


@pytest.mark.parametrize(
    ("most", "sizes"), [(16, (4, 8, 16)), (8, (4, 8)), (10, (4, 8, 10)), (1, (1,)), (64, (4, 8, 16, 64))]
)
def test_preferred_batch_sizes_end_with_the_largest_batch(most: int, sizes: tuple[int, ...]) -> None:
    assert make_plan(Settings(max_batch_size=most), LAPTOP).preferred_batch_sizes.value == sizes


def test_small_shared_memory_shrinks_the_regions_and_says_what_to_do() -> None:
    region = make_plan(Settings(), dataclasses.replace(LAPTOP, shm_mb=48)).shm_region_mb
    assert region.value == 24
    assert "--shm-size" in region.reason


@pytest.mark.parametrize(
    ("hardware", "settings", "says"),
    [
        (LAPTOP, Settings(mps="on"), "no NVIDIA GPU"),
        (gpu_machine(mps_control=False), Settings(mps="on"), "nvidia-cuda-mps-control"),
        (gpu_machine(mode="Prohibited"), Settings(), "CUDA_VISIBLE_DEVICES"),
        (gpu_machine(mode="Exclusive_Process"), Settings(mps="off"), "they need CUDA MPS, but MPS='off'"),
        (gpu_machine(mode="Exclusive_Process", mps_control=False), Settings(), "is not on the PATH"),
        (gpu_machine(memory_mb=24576), Settings(mps_instance_count=4), "MPS_INSTANCE_COUNT=4 .* use at most 3"),
    ],
)
def test_what_the_machine_cannot_do_is_refused(hardware: Hardware, settings: Settings, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        make_plan(settings, hardware)


def test_every_choice_has_a_one_line_reason() -> None:
    plan = make_plan(Settings(), gpu_machine())
    assert len(plan.lines()) == len(dataclasses.fields(Plan))
    assert all(": " in line and "\n" not in line for line in plan.lines())


def test_a_plan_survives_its_json() -> None:
    plan = make_plan(Settings(), gpu_machine())
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("hardware", "settings", "piece_s", "in_flight"),
    [
        (LAPTOP, Settings(), 5, 1),
        (dataclasses.replace(LAPTOP, cpu_cores=32, memory_mb=65536), Settings(), 5, 4),
        (gpu_machine(), Settings(), 60, 4),
        (gpu_machine(), Settings(mps_instance_count=8), 60, 8),
        (gpu_machine(), Settings(piece_s=20, pieces_in_flight=3), 20, 3),
    ],
)
def test_long_recordings_leave_room_for_other_requests(
    hardware: Hardware, settings: Settings, piece_s: int, in_flight: int
) -> None:
    plan = make_plan(settings, hardware)
    assert plan.gateway_environ() == {"PIECE_S": str(piece_s), "PIECES_IN_FLIGHT": str(in_flight)}
    assert Settings.from_env(plan.gateway_environ()).piece_s == piece_s


def test_under_mps_each_recogniser_gets_an_equal_part_of_the_memory_and_verifies_its_multiprocessors() -> None:
    plan = make_plan(Settings(), gpu_machine())
    assert plan.memory_limit_mb.value == (143771 - 2048) // 4
    assert plan.multiprocessors.value == 132
    assert make_plan(Settings(mps="off"), gpu_machine()).memory_limit_mb.value == 0


def test_the_size_of_the_checkpoint_and_of_the_largest_batch_decide_how_many_fit() -> None:
    card = gpu_machine(memory_mb=24576)
    assert make_plan(Settings(), card).instances.value == 3
    assert make_plan(Settings(), card, weights_mb=5000).instances.value == 2
    assert make_plan(Settings(max_batch_size=4), card).instances.value == 4
    assert "weights 2400" in make_plan(Settings(), card).instances.reason


def test_few_multiprocessors_are_a_reason_for_few_recognisers() -> None:
    reason = make_plan(Settings(), gpu_machine(sms=58)).instances.reason
    assert reason.endswith("at most 4, with 24 of 58 multiprocessors each or more")


def test_a_gpu_too_small_for_the_largest_batch_is_used_and_the_reason_warns() -> None:
    choice = make_plan(Settings(), gpu_machine(memory_mb=8192)).instances
    assert choice.value == 1
    assert "MAX_BATCH_SIZE" in choice.reason


@pytest.mark.parametrize(
    ("hardware", "settings", "limit_s"),
    [(LAPTOP, Settings(), 600), (gpu_machine(), Settings(), 30), (gpu_machine(), Settings(execute_limit_s=5), 5)],
)
def test_a_batch_may_take_as_long_as_the_device_needs(hardware: Hardware, settings: Settings, limit_s: int) -> None:
    assert make_plan(settings, hardware).execute_limit_s.value == limit_s


@pytest.mark.parametrize("settings", [Settings(), Settings(max_in_flight=1000), Settings(pieces_in_flight=32)])
def test_triton_queues_every_piece_that_the_gateway_admits(settings: Settings) -> None:
    plan = make_plan(settings, gpu_machine())
    assert plan.max_queue_size.value >= settings.max_in_flight * plan.pieces_in_flight.value + settings.gateway_workers
    assert make_plan(dataclasses.replace(settings, max_queue_size=7), gpu_machine()).max_queue_size.value == 7


def test_more_recognisers_on_a_cpu_than_large_ones_fit_are_doubted() -> None:
    reason = make_plan(Settings(mps_instance_count=3), LAPTOP).instances.reason
    assert reason == "MPS_INSTANCE_COUNT; of 0.6 B parameters only 2 fit into 8192 MiB"
