"""What the service does on given hardware: a pure function from settings and hardware to a `Plan`.

It touches nothing; `hardware` looks at the machine and `model_config` writes the result down.
"""

from __future__ import annotations

from parakeet_mps.contract import MAX_PIECE_S, PREFERRED_BATCH_SIZES, SAMPLE_RATE_HZ
from parakeet_mps.gpu_memory import DEFAULT_WEIGHTS_MB, RESERVE_MB, InstanceMemory
from parakeet_mps.hardware import Gpu, Hardware
from parakeet_mps.plan import Choice, Plan
from parakeet_mps.settings import AUTO, SettingError, Settings

CORES_PER_CPU_INSTANCE = 8
"""More threads than this in one recogniser bring little: its matrices are small."""

CPU_INSTANCE_MB = 4096
"""Memory of one recogniser on the CPU: the 0.6 B weights in fp32 (2.4 GiB), its libraries and one batch."""

MOST_AUTOMATIC_GPU_INSTANCES = 4
"""Measured on one H200 with clips of 45 s: one answers 215 requests/s, two under MPS 324, four 422, eight 332.

Four that take turns answer 388. See benchmarks/RESULTS.md.
"""

LEAST_MULTIPROCESSORS = 24
"""Fewest for each of several recognisers under MPS: on an H200 four with 32 are faster than eight with 14.

What lies between was not measured, nor were other GPUs.
"""

CPU_PIECE_S = 5
"""Recognised in about the time of a whole 3 s request, so that another request at worst takes twice its time."""

GPU_EXECUTE_S = 30
"""A batch of 16 utterances of 60 s takes a GPU less than a second; the first of a shape may have kernels to compile."""

CPU_EXECUTE_S = 600
"""A batch of 16 pieces of 60 s, by 0.6 B parameters on two cores, takes some minutes."""

LEAST_QUEUE_SIZE = 256
"""Pieces that may wait when gateways elsewhere, of which nothing is known here, send them."""

SHM_SHARE = 0.5
"""Part of the shared memory that Triton's regions may take at start; they grow with the audio in flight."""

BATCHES_AT_HAND = 3
"""Batches whose audio an instance's region holds at most: one is heard while one is read and one waits to be."""

MOST_SHM_REGION_MB = 64
"""First size of an instance's shared-memory region: a batch of 16 clips of 45 s (46 MB) fits without growing."""


def make_plan(settings: Settings, hardware: Hardware, weights_mb: int = DEFAULT_WEIGHTS_MB) -> Plan:
    """Choose everything for a checkpoint of `weights_mb`.

    Raises `SettingError` when the settings ask for what the hardware cannot do.
    """
    gpu = hardware.gpus[0] if hardware.gpus else None
    instances = _instances(settings, hardware, gpu, InstanceMemory.of(weights_mb, settings.max_batch_size))
    mps = _mps(settings, hardware, gpu, instances.value)
    pieces_in_flight = _pieces_in_flight(settings, instances.value)
    return Plan(
        device=_device(settings, gpu),
        gpu=_gpu(hardware, gpu),
        mps=mps,
        instances=instances,
        thread_percentage=_thread_percentage(settings, instances.value, shared=mps.value),
        multiprocessors=_multiprocessors(gpu),
        memory_limit_mb=_memory_limit(gpu, instances.value, shared=mps.value),
        torch_threads=_torch_threads(hardware, gpu, instances.value),
        max_batch_size=Choice(settings.max_batch_size, "MAX_BATCH_SIZE"),
        preferred_batch_sizes=_preferred_batch_sizes(settings),
        batch_delay_ms=_batch_delay(settings),
        max_queue_size=_max_queue_size(settings, pieces_in_flight.value),
        queue_timeout_s=Choice(settings.request_timeout_s, "REQUEST_TIMEOUT_S; nobody waits for the answer after that"),
        execute_limit_s=_execute_limit(settings, gpu),
        piece_s=_piece_s(settings, gpu),
        pieces_in_flight=pieces_in_flight,
        shm_region_mb=_shm_region(settings, hardware, instances.value),
    )


def _device(settings: Settings, gpu: Gpu | None) -> Choice[str]:
    if gpu is not None:
        return Choice("cuda", f"{gpu.name} with {gpu.memory_mb} MiB")
    if settings.mps == "on":
        raise SettingError("MPS='on' is not allowed here: no NVIDIA GPU is visible; use auto or off")
    hidden = settings.cuda_visible_devices
    return Choice("cpu", "no NVIDIA GPU is visible" + ("" if hidden is None else f" (CUDA_VISIBLE_DEVICES={hidden!r})"))


def _gpu(hardware: Hardware, gpu: Gpu | None) -> Choice[str]:
    if gpu is None:
        return Choice("", "none is used")
    if gpu.compute_mode.lower() == "prohibited":
        raise SettingError(f"GPU {gpu.index} is in compute mode Prohibited: choose another with CUDA_VISIBLE_DEVICES")
    count = len(hardware.gpus)
    return Choice(gpu.uuid, "the only visible GPU" if count == 1 else f"the first of {count} visible GPUs; one is used")


def _instances(settings: Settings, hardware: Hardware, gpu: Gpu | None, memory: InstanceMemory) -> Choice[int]:
    asked = settings.mps_instance_count
    if gpu is None:
        return _asked_cpu_instances(asked, hardware) if asked != AUTO else _cpu_instances(hardware)
    fitting = memory.fitting(gpu.memory_mb)
    room = f"{memory}; {fitting} fit into {gpu.memory_mb} MiB"
    if asked != AUTO:
        return _asked_gpu_instances(asked, fitting, room, gpu)
    if fitting == 0:
        return Choice(1, f"{room}: the largest batches may fail; a smaller MAX_BATCH_SIZE needs less")
    return _best_gpu_instances(fitting, room, gpu, shared=_mps_possible(settings, hardware))


def _best_gpu_instances(fitting: int, room: str, gpu: Gpu, *, shared: bool) -> Choice[int]:
    count, why = min(MOST_AUTOMATIC_GPU_INSTANCES, fitting), f"{room}, at most {MOST_AUTOMATIC_GPU_INSTANCES}"
    if not shared:
        return Choice(count, f"{why}; without MPS they take turns on the GPU")
    if not gpu.multiprocessors:
        return Choice(count, why)
    parts = max(1, gpu.multiprocessors // LEAST_MULTIPROCESSORS)
    why += f", with {LEAST_MULTIPROCESSORS} of {gpu.multiprocessors} multiprocessors each or more"
    return Choice(min(count, parts), why)


def _asked_gpu_instances(asked: int, fitting: int, room: str, gpu: Gpu) -> Choice[int]:
    if asked > max(1, fitting) and gpu.memory_mb:
        raise SettingError(
            f"MPS_INSTANCE_COUNT={asked} is not allowed here: {room}; use at most {max(1, fitting)}, "
            "or a smaller MAX_BATCH_SIZE"
        )
    return Choice(asked, f"MPS_INSTANCE_COUNT; {room}")


def _asked_cpu_instances(asked: int, hardware: Hardware) -> Choice[int]:
    fitting = _fitting_cpu(hardware)
    doubt = f"; of 0.6 B parameters only {fitting} fit into {hardware.memory_mb} MiB" if asked > fitting else ""
    return Choice(asked, f"MPS_INSTANCE_COUNT{doubt}")


def _cpu_instances(hardware: Hardware) -> Choice[int]:
    count = max(1, min(hardware.cpu_cores // CORES_PER_CPU_INSTANCE, _fitting_cpu(hardware)))
    cores, memory = hardware.cpu_cores, hardware.memory_mb
    return Choice(
        count, f"one for each {CORES_PER_CPU_INSTANCE} of {cores} cores, {CPU_INSTANCE_MB} of {memory} MiB each"
    )


def _fitting_cpu(hardware: Hardware) -> int:
    return max(1, hardware.memory_mb // CPU_INSTANCE_MB)


def _mps_possible(settings: Settings, hardware: Hardware) -> bool:
    return settings.mps != "off" and hardware.mps_control


def _mps(settings: Settings, hardware: Hardware, gpu: Gpu | None, instances: int) -> Choice[bool]:
    if gpu is None:
        return Choice(False, "there is no GPU to share")
    if gpu.exclusive:
        return _mps_of_exclusive_gpu(settings, hardware, gpu)
    if settings.mps == "off":
        return Choice(False, "MPS=off")
    if not hardware.mps_control and settings.mps == "on":
        raise SettingError("MPS='on' is not allowed here: nvidia-cuda-mps-control is not on the PATH; use auto or off")
    if not hardware.mps_control:
        return Choice(False, "nvidia-cuda-mps-control is not on the PATH")
    if settings.mps == "auto" and instances == 1:
        return Choice(False, "one instance shares the GPU with nobody")
    return Choice(True, "MPS=on" if settings.mps == "on" else f"{instances} instances share the GPU at the same time")


def _mps_of_exclusive_gpu(settings: Settings, hardware: Hardware, gpu: Gpu) -> Choice[bool]:
    if not _mps_possible(settings, hardware):
        why = "MPS='off'" if settings.mps == "off" else "nvidia-cuda-mps-control is not on the PATH"
        raise SettingError(
            f"GPU {gpu.index} is in compute mode {gpu.compute_mode}: only one process may use it, and Triton and its "
            f"recognisers are several; they need CUDA MPS, but {why}"
        )
    return Choice(True, f"in compute mode {gpu.compute_mode} several processes need it")


def _multiprocessors(gpu: Gpu | None) -> Choice[int]:
    if gpu is None:
        return Choice(0, "there is no GPU")
    if not gpu.multiprocessors:
        return Choice(0, "the CUDA driver does not tell: that each recogniser gets its share is not verified")
    return Choice(gpu.multiprocessors, "each recogniser verifies that it sees its share of them")


def _memory_limit(gpu: Gpu | None, instances: int, *, shared: bool) -> Choice[int]:
    if gpu is None or not shared or not gpu.memory_mb:
        return Choice(0, "none: the GPU's memory is not divided")
    limit = (gpu.memory_mb - RESERVE_MB) // instances
    return Choice(limit, f"an equal part of {gpu.memory_mb} MiB less {RESERVE_MB}, so that none starves another")


def _thread_percentage(settings: Settings, instances: int, *, shared: bool) -> Choice[int]:
    if not shared:
        return Choice(100, "the GPU is not divided")
    if asked := settings.mps_thread_percentage:
        more = f"; {instances} instances share what is more than {100 // instances} % each"
        return Choice(asked, "MPS_THREAD_PERCENTAGE" + (more if asked * instances > 100 else ""))
    return Choice(100 // instances, f"100 % over {instances} instances, one partition each")


def _torch_threads(hardware: Hardware, gpu: Gpu | None, instances: int) -> Choice[int]:
    if gpu is not None:
        return Choice(1, "the GPU computes; one thread feeds it")
    return Choice(max(1, hardware.cpu_cores // instances), f"{hardware.cpu_cores} cores over {instances} instance(s)")


def _preferred_batch_sizes(settings: Settings) -> Choice[tuple[int, ...]]:
    sizes = {size for size in PREFERRED_BATCH_SIZES if size <= settings.max_batch_size} | {settings.max_batch_size}
    return Choice(tuple(sorted(sizes)), "a batch of one of these sizes leaves at once, others after the delay")


def _batch_delay(settings: Settings) -> Choice[int]:
    # An instance at work gathers a batch anyway, so the delay matters only while one is idle. Then it is pure latency:
    # 2 ms is a tenth of what one 45 s clip takes on an H200, and about what the members of one burst are apart.
    delay = settings.batch_delay_ms
    if delay == 0:
        return Choice(0, "BATCH_DELAY_MS; an idle instance takes what is there")
    why = "a request to an idle instance waits this long for company; busy instances gather batches without it"
    return Choice(delay, f"BATCH_DELAY_MS; {why}")


def _execute_limit(settings: Settings, gpu: Gpu | None) -> Choice[int]:
    if settings.execute_limit_s != AUTO:
        return Choice(settings.execute_limit_s, "EXECUTE_LIMIT_S")
    if gpu is None:
        return Choice(CPU_EXECUTE_S, "the longest batch takes a CPU minutes; what takes longer is stuck")
    return Choice(GPU_EXECUTE_S, "the longest batch takes a GPU about a second; what takes longer is stuck")


def _piece_s(settings: Settings, gpu: Gpu | None) -> Choice[int]:
    if settings.piece_s != AUTO:
        return Choice(settings.piece_s, "PIECE_S")
    if gpu is None:
        return Choice(CPU_PIECE_S, "other requests wait for the piece being recognised, and a CPU is slow")
    return Choice(MAX_PIECE_S, "the recogniser hears the widest context, and no request waits long for it on a GPU")


def _pieces_in_flight(settings: Settings, instances: int) -> Choice[int]:
    if settings.pieces_in_flight != AUTO:
        return Choice(settings.pieces_in_flight, "PIECES_IN_FLIGHT")
    return Choice(instances, "one for each recogniser; more would queue in front of other requests")


def _max_queue_size(settings: Settings, pieces_in_flight: int) -> Choice[int]:
    if settings.max_queue_size != AUTO:
        return Choice(settings.max_queue_size, "MAX_QUEUE_SIZE; Triton refuses more at once")
    admitted = settings.max_in_flight * pieces_in_flight + settings.gateway_workers
    why = "all that this machine's gateway admits and its health checks, or those of others"
    return Choice(max(LEAST_QUEUE_SIZE, admitted), f"{why}; Triton refuses more at once")


def _shm_region(settings: Settings, hardware: Hardware, instances: int) -> Choice[int]:
    size = min(MOST_SHM_REGION_MB, max(1, int(hardware.shm_mb * SHM_SHARE) // instances))
    largest_mb = BATCHES_AT_HAND * settings.max_batch_size * MAX_PIECE_S * SAMPLE_RATE_HZ * 4 // 2**20 + 1
    reason = f"{instances} region(s) in {hardware.shm_mb} MiB of /dev/shm"
    if largest_mb * instances > hardware.shm_mb:
        reason += f"; {BATCHES_AT_HAND} x {settings.max_batch_size} clips of {MAX_PIECE_S} s need {largest_mb} MiB: "
        reason += "give the container more --shm-size"
    return Choice(size, reason)
