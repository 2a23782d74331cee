"""What runs on one machine, and which of it is restarted together: the recognisers with all below them, the gateway."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from parakeet_mps.heartbeat import remove_pulses
from parakeet_mps.http_probe import http_status, loopback
from parakeet_mps.instance_watch import BEAT_LIMIT_S, InstanceWatch
from parakeet_mps.kernel_cache import kernel_cache_environ
from parakeet_mps.log_lines import output_of
from parakeet_mps.mps import MpsDaemon
from parakeet_mps.mps_service import MpsService
from parakeet_mps.plan import Plan
from parakeet_mps.process import ChildProcess
from parakeet_mps.run_folder import RunFolder
from parakeet_mps.settings import Settings
from parakeet_mps.supervisor import Service
from parakeet_mps.triton_server import (
    EXIT_TIMEOUT_S,
    find_installation,
    ready_paths,
    server_command,
    server_environ,
)

ROOT = Path(__file__).resolve().parent.parent
ALIVE_LIMIT_S = 2.0
"""Time that a process gets to show that it is alive; it is asked again and again before it counts as failed."""


def gateway_services(settings: Settings, environ: Mapping[str, str]) -> list[Service]:
    """The gateway, which fails alone: accepted requests wait in it while the recognisers recover."""
    return [gateway_service(settings, environ)]


def recogniser_services(settings: Settings, plan: Plan, run: RunFolder, environ: Mapping[str, str]) -> list[Service]:
    """CUDA MPS where it is planned, Triton, and the watch over its recognisers. Raises `TritonNotFoundError`.

    They are restarted together. A dead Python stub is never replaced by a running Triton; and what fails takes MPS
    along, whose server is in an undefined state once a client of it was killed.
    """
    daemon = MpsDaemon(run.mps(plan.gpu.value), plan.gpu.value, environ) if plan.mps.value else None
    triton = triton_service(settings, plan, run, environ, daemon.client_environ() if daemon else {})
    release = daemon.terminate_clients if daemon else lambda: None
    watch = instance_watch(plan, run, release, server_runs=lambda: triton.pid is not None)
    return [MpsService(daemon), triton, watch] if daemon else [triton, watch]


def gateway_service(settings: Settings, environ: Mapping[str, str]) -> ChildProcess:
    """The gateway: HTTP workers that decode audio and ask Triton. Ready when a transcription would succeed."""
    probe_key = secrets.token_urlsafe() if settings.api_keys or settings.api_keys_file else None

    async def ask(timeout_s: float) -> int | None:
        return await http_status(loopback(settings.host), settings.port, "/health", timeout_s, key=probe_key)

    async def ready() -> bool:
        return await ask(10) == 200

    async def alive() -> bool:
        return await ask(10) is not None

    return ChildProcess(
        name="gateway",
        command=[sys.executable, "server.py"],
        # It computes on the CPU alone; a CUDA context of its own would only take GPU memory.
        environ={**environ, "CUDA_VISIBLE_DEVICES": "", **_keys(settings, probe_key)},
        folder=ROOT,
        ready=ready,
        alive=alive,
        grace_s=settings.stop_timeout_s + 5,
        output=output_of("gateway", settings.log_format),
    )


def _keys(settings: Settings, probe_key: str | None) -> dict[str, str]:
    """The supervisor has a key of its own, so that it can ask a `/health` that is closed to others."""
    return {"API_KEYS": ",".join(filter(None, (settings.api_keys, probe_key)))} if probe_key else {}


def triton_service(
    settings: Settings, plan: Plan, run: RunFolder, environ: Mapping[str, str], mps_environ: Mapping[str, str]
) -> ChildProcess:
    """The `tritonserver` process. Raises `TritonNotFoundError`."""
    installation = find_installation(run.triton)
    host = loopback(settings.triton_host)
    keyless = {**environ, "API_KEYS": ""}
    kernels = kernel_cache_environ(settings.cache_path) if plan.device.value == "cuda" else {}

    async def ready() -> bool:
        statuses = [await http_status(host, settings.triton_http_port, path) for path in ready_paths()]
        return all(status == 200 for status in statuses)

    async def alive() -> bool:
        return await http_status(host, settings.triton_http_port, "/v2/health/live", ALIVE_LIMIT_S) is not None

    restore = run.remembered()

    def prepare() -> None:
        restore()  # what somebody who cleans up has removed
        find_installation(run.triton)  # and its overlay
        run.remove_triton_memory()
        run.remove_unpacked()  # of a start that failed
        remove_pulses(run.heartbeats)

    return ChildProcess(
        name="tritonserver",
        command=server_command(installation, settings, plan, run.model_repository, run.triton_shm_prefix),
        environ=server_environ(installation, plan, {**kernels, **keyless}, mps_environ),
        folder=ROOT,
        ready=ready,
        alive=alive,
        prepare=prepare,
        output=output_of("tritonserver", settings.log_format),
        grace_s=EXIT_TIMEOUT_S + 10,
        alive_poll_s=1.0,
        idle_until_ready=True,  # and recognisers whose server leaves them while they load crash
    )


def instance_watch(
    plan: Plan, run: RunFolder, release: Callable[[], None], server_runs: Callable[[], bool]
) -> InstanceWatch:
    """The watch over the recognisers' processes; `release` makes CUDA MPS let go of them."""
    return InstanceWatch(
        run.heartbeats,
        plan.instances.value,
        plan.execute_limit_s.value,
        beat_limit_s=BEAT_LIMIT_S[plan.device.value],
        loaded=run.remove_unpacked,
        release=release,
        server_runs=server_runs,
    )
