"""Entry: whether the service on this machine serves what its `ROLE` says; for the images' HEALTHCHECK and exec probes.

Healthy is what would transcribe now: the supervisor has everything ready, and the gateway's `/health`, or Triton's
where there is no gateway, agrees. Standard library only.

Usage: python -m parakeet_mps.healthcheck     (settings come from the environment; exit status 0 or 1, and one line)
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping

from parakeet_mps.http_probe import http_status, loopback
from parakeet_mps.run_folder import RunFolder
from parakeet_mps.settings import SettingError, Settings
from parakeet_mps.triton_server import ready_paths

TIMEOUT_S = 8.0
"""Longer than the gateway takes to find out which of its checks fails."""

_CLOSED = 401
"""`/health` is closed and this program knows no key: the supervisor, which has one, says that everything is ready."""


async def find_fault(settings: Settings) -> str | None:
    """Return what does not serve; None when everything does."""
    if not RunFolder(settings.run_path).ready.exists():
        return "the supervisor has not everything ready"
    if settings.starts_gateway:
        return await _fault(loopback(settings.host), settings.port, "/health", (200, _CLOSED))
    host = loopback(settings.triton_host)
    faults = [await _fault(host, settings.triton_http_port, path, (200,)) for path in ready_paths()]
    return next((fault for fault in faults if fault), None)


async def _fault(host: str, port: int, path: str, expected: tuple[int, ...]) -> str | None:
    status = await http_status(host, port, path, TIMEOUT_S)
    return None if status in expected else f"{path} on port {port}: {'no answer' if status is None else status}"


def main(environ: Mapping[str, str]) -> int:
    """Print the verdict; exit status 0 when healthy, else 1."""
    try:
        fault = asyncio.run(find_fault(Settings.from_env(environ)))
    except SettingError as error:
        fault = str(error)
    sys.stdout.write(f"{fault or 'healthy'}\n")
    return 1 if fault else 0


if __name__ == "__main__":
    sys.exit(main(os.environ))
