"""What a service is made of, for each role."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateways import wait_until
from parakeet_mps.run_folder import RunFolder
from parakeet_mps.service import make_units
from parakeet_mps.settings import Settings
from parakeet_mps.triton_server import reached_at
from processes import ROOT, free_port


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({}, ["tritonserver, recogniser watch", "gateway"]),
        ({"ROLE": "triton", "TRITON_URL": "triton:8001"}, ["tritonserver, recogniser watch"]),
        ({"ROLE": "gateway"}, ["gateway"]),
        ({"TRITON_URL": "triton:8001"}, ["gateway"]),
    ],
)
def test_the_units_of_each_role(environ: dict[str, str], names: list[str], tmp_path: Path, checkpoint: Path) -> None:
    machine = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": "", "RUN_DIR": str(tmp_path)}
    environ = {**machine, "MODEL": str(checkpoint), **environ}
    run = RunFolder(tmp_path)
    units = asyncio.run(make_units(Settings.from_env(environ), run, environ))
    assert [unit.name for unit in units] == names


@pytest.mark.parametrize(
    ("url", "host", "address"),
    [
        ("[::1]:9001", "127.0.0.1", "127.0.0.1:9001"),
        ("localhost:9001", "0.0.0.0", "127.0.0.1:9001"),
        ("[::1]:9001", "::1", "[::1]:9001"),
    ],
)
def test_the_gateway_reaches_the_local_triton_by_the_address_it_listens_on(url: str, host: str, address: str) -> None:
    settings = Settings.from_env({"TRITON_URL": url, "TRITON_HOST": host})
    assert settings.starts_triton
    assert reached_at(settings) == address


def test_a_service_that_is_stopped_while_it_loads_leaves_nothing_of_the_checkpoint(
    tmp_path: Path, checkpoint: Path
) -> None:
    run = RunFolder(tmp_path / "run")
    ports = {name: str(free_port()) for name in ("PORT", "TRITON_HTTP_PORT", "TRITON_METRICS_PORT")}
    environ = {
        **os.environ,
        **ports,
        "TRITON_URL": f"localhost:{free_port()}",
        "ROLE": "triton",
        "MODEL": str(checkpoint),
        "RUN_DIR": str(run.root),
        "WEDGE_SENTINEL": str(tmp_path / "wedged"),
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [sys.executable, "-m", "parakeet_mps.service"]
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        wait_until(lambda: bool(list(run.unpacked.glob("*/model_weights.ckpt"))))
        process.send_signal(signal.SIGTERM)
        printed = process.communicate(timeout=60)[0].decode()
    assert process.returncode == 0, printed
    assert "Fatal Python error" not in printed
    assert not run.unpacked.exists()
    assert not run.unpacked.with_suffix(".old").exists()
