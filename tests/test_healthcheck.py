"""What the images' HEALTHCHECK says of a service, with stand-ins for the processes behind it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from parakeet_mps.healthcheck import find_fault
from parakeet_mps.http_probe import http_status
from parakeet_mps.settings import Settings
from processes import free_port, http_server


@asynccontextmanager
async def listening(tmp_path: Path, status: int) -> AsyncIterator[int]:
    """An HTTP server that answers everything with `status`; yields its port."""
    server = http_server("stand-in", tmp_path, {"STATUS": str(status)})
    await server.start()
    port = int(server.environ["SERVER_PORT"])
    try:
        while await http_status("127.0.0.1", port, "/") is None:
            await asyncio.sleep(0.05)
        yield port
    finally:
        await server.stop()


async def verdict(tmp_path: Path, status: int, role: str) -> str | None:
    (tmp_path / "ready").write_text("1\n")
    async with listening(tmp_path, status) as port:
        ports = {"PORT": str(port)} if role == "gateway" else {"TRITON_HTTP_PORT": str(port)}
        settings = Settings.from_env({"ROLE": role, "RUN_DIR": str(tmp_path), "HOST": "127.0.0.1", **ports})
        return await find_fault(settings)


@pytest.mark.anyio
@pytest.mark.parametrize("role", ["gateway", "triton"])
async def test_what_the_role_serves_is_asked(tmp_path: Path, role: str) -> None:
    assert await verdict(tmp_path, 200, role) is None
    fault = await verdict(tmp_path, 503, role)
    assert fault is not None
    assert fault.endswith("503")


@pytest.mark.anyio
async def test_a_health_that_needs_a_key_is_left_to_the_supervisor(tmp_path: Path) -> None:
    assert await verdict(tmp_path, 401, "gateway") is None
    assert await verdict(tmp_path, 401, "triton") is not None


@pytest.mark.anyio
async def test_nothing_that_listens_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "ready").write_text("1\n")
    settings = Settings.from_env({"RUN_DIR": str(tmp_path), "HOST": "127.0.0.1", "PORT": str(free_port())})
    assert str(await find_fault(settings)).endswith("no answer")


def test_a_service_that_is_not_ready_ends_it_with_status_1_and_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "parakeet_mps.healthcheck"]
    environ = {"PATH": os.environ["PATH"], "RUN_DIR": str(tmp_path)}
    check = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60)
    assert (check.returncode, check.stdout) == (1, "the supervisor has not everything ready\n")
    refused = subprocess.run(command, capture_output=True, text=True, env={**environ, "PORT": "x"}, timeout=60)
    assert refused.returncode == 1
    assert "PORT='x' is not allowed" in refused.stdout
