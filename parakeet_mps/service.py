"""The whole service on one machine: MPS, Triton and the gateway, put together from the settings.

The start script runs it. Usage: python -m parakeet_mps.service     (settings come from the environment)
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from parakeet_mps import logs
from parakeet_mps.api_keys import read_keys
from parakeet_mps.http_probe import http_status, loopback
from parakeet_mps.mps import MpsDaemon
from parakeet_mps.mps_service import MpsService
from parakeet_mps.orphans import adopt_orphans, reap_orphans
from parakeet_mps.plan import Plan
from parakeet_mps.ports import check_ports, listening_ports
from parakeet_mps.process import ChildProcess, ServiceFailure, run_to_end
from parakeet_mps.run_folder import RunFolder, RunFolderInUseError
from parakeet_mps.settings import SettingError, Settings
from parakeet_mps.supervisor import Restarts, Service, Supervisor, first_of
from parakeet_mps.triton_server import (
    EXIT_TIMEOUT_S,
    TritonNotFoundError,
    find_installation,
    ready_paths,
    server_command,
    server_environ,
)

LOG = logging.getLogger("supervisor")
ROOT = Path(__file__).resolve().parent.parent


def gateway_service(settings: Settings, environ: Mapping[str, str]) -> ChildProcess:
    """The gateway: HTTP workers that decode audio and ask Triton. Ready when a transcription would succeed."""
    probe_key = secrets.token_urlsafe() if settings.api_keys or settings.api_keys_file else None

    async def ask() -> int | None:
        return await http_status(loopback(settings.host), settings.port, "/health", key=probe_key)

    async def ready() -> bool:
        return await ask() == 200

    async def alive() -> bool:
        return await ask() is not None

    return ChildProcess(
        name="gateway",
        command=[sys.executable, "server.py"],
        # It computes on the CPU alone; a CUDA context of its own would only take GPU memory.
        environ={**environ, "CUDA_VISIBLE_DEVICES": "", **_keys(settings, probe_key)},
        folder=ROOT,
        ready=ready,
        alive=alive,
        grace_s=settings.stop_timeout_s + 5,
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

    async def ready() -> bool:
        statuses = [await http_status(host, settings.triton_http_port, path) for path in ready_paths()]
        return all(status == 200 for status in statuses)

    async def alive() -> bool:
        return await http_status(host, settings.triton_http_port, "/v2/health/live") is not None

    return ChildProcess(
        name="tritonserver",
        command=server_command(installation, settings, plan, run.model_repository, run.shm_prefix),
        environ=server_environ(installation, plan, {**environ, "API_KEYS": ""}, mps_environ),  # none of its business
        folder=ROOT,
        ready=ready,
        alive=alive,
        prepare=run.remove_shared_memory,
        grace_s=EXIT_TIMEOUT_S + 10,
    )


async def configure(run: RunFolder, environ: Mapping[str, str]) -> Plan:
    """Fetch the checkpoint, run `auto_config.py` and return its plan. Raises `ServiceFailure`."""
    begin = time.monotonic()
    module = [sys.executable, "-m", "parakeet_mps.checkpoint"]
    checkpoint = (await run_to_end("checkpoint", module, environ, ROOT)).strip()
    LOG.info("the checkpoint is there after %.1f s", time.monotonic() - begin)
    begin = time.monotonic()
    choices = await run_to_end("auto_config", [sys.executable, "auto_config.py", checkpoint], environ, ROOT)
    sys.stdout.write(choices)
    sys.stdout.flush()
    LOG.info("the model repository is written after %.1f s", time.monotonic() - begin)
    return Plan.from_json(run.plan.read_text(encoding="utf-8"))


async def local_services(settings: Settings, run: RunFolder, environ: Mapping[str, str]) -> list[Service]:
    """Everything to start on this machine, in order. Raises `ServiceFailure` or `TritonNotFoundError`."""
    if not settings.triton_is_local:
        LOG.info("TRITON_URL=%s is another machine: only the gateway is started", settings.triton_url)
        return [gateway_service(settings, environ)]
    plan = await configure(run, environ)
    gateway = gateway_service(settings, {**environ, **plan.gateway_environ()})
    if not plan.mps.value:
        return [triton_service(settings, plan, run, environ, {}), gateway]
    daemon = MpsDaemon(run.mps, plan.gpu.value, environ)
    return [MpsService(daemon), triton_service(settings, plan, run, environ, daemon.client_environ()), gateway]


async def serve(settings: Settings, run: RunFolder, environ: Mapping[str, str]) -> int:
    """Run the service until SIGTERM, SIGINT or SIGHUP; return the exit status."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGCHLD, reap_orphans)
    adopt_orphans()

    def ready(seconds: float) -> None:
        run.ready.write_text(f"{os.getpid()}\n")
        LOG.info("everything is ready after %.1f s: http://%s:%d", seconds, loopback(settings.host), settings.port)

    def unready() -> None:
        run.ready.unlink(missing_ok=True)

    unready()
    services = await first_of(stop.wait(), local_services(settings, run, environ))
    if not isinstance(services, list):
        return 0
    supervisor = Supervisor(
        services,
        startup_timeout_s=settings.startup_timeout_s,
        restarts=Restarts(),
        ready=ready,
        unready=unready,
    )
    try:
        return await supervisor.run(stop)
    finally:
        run.remove_shared_memory()


def main(environ: Mapping[str, str]) -> int:
    """Check what can be checked before anything starts, then serve. Refusals end with status 2 and one line."""
    try:
        settings = Settings.from_env(environ)
        logs.configure(settings.log_level, settings.log_format)
        read_keys(settings)
        run = RunFolder(settings.run_path)
        with run.acquire():
            check_ports(listening_ports(settings))
            return asyncio.run(serve(settings, run, environ))
    except (SettingError, RunFolderInUseError, TritonNotFoundError, ServiceFailure, OSError) as error:
        sys.stderr.write(f"parakeet-mps: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main(os.environ))
