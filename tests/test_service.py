"""What a service is made of, for each role."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from parakeet_mps.run_folder import RunFolder
from parakeet_mps.service import make_units
from parakeet_mps.settings import Settings
from parakeet_mps.triton_server import reached_at


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
