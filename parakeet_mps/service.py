"""The whole service on one machine: MPS, Triton and the gateway, put together from the settings.

The start script runs it. Usage: python -m parakeet_mps.service     (settings come from the environment)
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from parakeet_mps import logs, outlet
from parakeet_mps.api_keys import read_keys
from parakeet_mps.http_probe import bracketed, loopback
from parakeet_mps.log_lines import output_of
from parakeet_mps.orphans import adopt_orphans, reap_orphans
from parakeet_mps.plan import Plan
from parakeet_mps.ports import check_ports, listening_ports
from parakeet_mps.process import ServiceFailure, run_to_end
from parakeet_mps.run_folder import RunFolder, RunFolderError
from parakeet_mps.settings import SettingError, Settings
from parakeet_mps.supervisor import Restarts, Unit, first_of, supervise
from parakeet_mps.triton_server import TritonNotFoundError, reached_at
from parakeet_mps.units import ROOT, gateway_services, recogniser_services
from parakeet_mps.usage import answered
from parakeet_mps.wedge import History, Journal, Sentinel, prepare

LOG = logging.getLogger("supervisor")


async def configure(run: RunFolder, environ: Mapping[str, str], log_format: str) -> Plan:
    """Fetch the checkpoint, run `auto_config.py` and return its plan. Raises `ServiceFailure`."""
    begin = time.monotonic()
    module = [sys.executable, "-m", "parakeet_mps.checkpoint"]
    checkpoint = (await run_to_end("checkpoint", module, environ, ROOT)).strip()
    LOG.info("the checkpoint is there after %.1f s", time.monotonic() - begin)
    begin = time.monotonic()
    choices = await run_to_end("auto_config", [sys.executable, "auto_config.py", checkpoint], environ, ROOT)
    output = output_of("auto_config", log_format)
    output.write(choices.encode())
    output.flush()
    LOG.info("the model repository is written after %.1f s", time.monotonic() - begin)
    return Plan.from_json(run.plan.read_text(encoding="utf-8"))


async def make_units(settings: Settings, run: RunFolder, environ: Mapping[str, str]) -> list[Unit]:
    """Everything to start on this machine, in order. Raises `ServiceFailure` or `TritonNotFoundError`."""
    sentinel = Path(settings.wedge_sentinel)
    history, limit_s = History(sentinel), settings.startup_timeout_s
    recogniser: Unit | None = None
    if settings.starts_triton:
        plan = await configure(run, environ, settings.log_format)
        environ = {**environ, **plan.gateway_environ(), "TRITON_URL": reached_at(settings)}
        services = recogniser_services(settings, plan, run, environ)
        recogniser = Unit(services, Journal(history, Sentinel(sentinel)), Restarts(), startup_timeout_s=limit_s)
    else:
        LOG.info("Triton is elsewhere, at %s: only the gateway is started", settings.triton_url)
    if not settings.starts_gateway:
        return [recogniser] if recogniser else []
    services = gateway_services(settings, environ)
    gateway = Unit(services, Journal(history), Restarts(), startup_timeout_s=limit_s, needs=recogniser)
    return [recogniser, gateway] if recogniser else [gateway]


async def serve(settings: Settings, run: RunFolder, environ: Mapping[str, str]) -> int:
    """Run the service until SIGTERM, SIGINT or SIGHUP; return the exit status."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGCHLD, reap_orphans)
    adopt_orphans()
    run.ready.unlink(missing_ok=True)
    units = await first_of(stop.wait(), make_units(settings, run, environ))
    if not isinstance(units, list):
        return 0
    begin, times = time.monotonic(), itertools.count()

    def changed(ready: bool) -> None:
        run.mark_ready(ready)
        if not ready:
            return
        when = "again" if next(times) else f"after {time.monotonic() - begin:.1f} s"
        LOG.info("everything is ready %s: %s", when, _where(settings))

    try:
        return await supervise(units, stop, changed)
    finally:
        run.remove_unpacked()  # of a start that was not waited for, or failed
        run.remove_shared_memory()


def prepare_sentinel(settings: Settings) -> None:
    """Raise `SettingError` when a failure could not be told, or one that is over is told for ever."""
    try:
        prepare(Path(settings.wedge_sentinel))
    except OSError as error:
        why = f"cannot be written: {error.strerror} ({error.filename})"
        raise SettingError(f"WEDGE_SENTINEL={settings.wedge_sentinel!r} {why}") from None


def _where(settings: Settings) -> str:
    if not settings.starts_gateway:
        return f"Triton, on {bracketed(settings.triton_host)}:{settings.triton_grpc_port}"
    return f"http://{bracketed(loopback(settings.host))}:{settings.port}"


def main(environ: Mapping[str, str]) -> int:
    """Check what can be checked before anything starts, then serve. Refusals end with status 2 and one line."""
    try:
        settings = Settings.from_env(environ)
        outlet.install(settings.log_format)
        logs.configure(settings.log_level, settings.log_format)
        read_keys(settings)
        run = RunFolder(settings.run_path)
        with run.acquire():
            check_ports(listening_ports(settings))
            if settings.starts_triton:
                prepare_sentinel(settings)
            return asyncio.run(serve(settings, run, environ))
    except (SettingError, RunFolderError, TritonNotFoundError, ServiceFailure, OSError) as error:
        sys.stderr.write(f"parakeet-mps: {error}\n")
        return 2


if __name__ == "__main__":
    status = answered(sys.argv[1:], "start-single-container.sh", "Start the whole service on this machine.")
    sys.exit(main(os.environ) if status is None else status)
