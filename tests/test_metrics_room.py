"""What a worker counts in has room on the disk, or the worker does without."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateways import HeldGateway
from parakeet_mps.gateway.metrics_room import BYTES
from processes import ROOT

FILL = """
import itertools, os
from pathlib import Path

from parakeet_mps import errors
from parakeet_mps.gateway.metrics_room import take_counts_room
folder = Path(os.environ["PROMETHEUS_MULTIPROC_DIR"])
take_counts_room(folder)

from parakeet_mps.gateway.account import Account
from parakeet_mps.gateway.endpoints import KNOWN
from parakeet_mps.gateway.metrics import Metrics

metrics = Metrics(folder)
codes = {error.code for error in vars(errors).values() if isinstance(error, type) and hasattr(error, "code")}
accounts = Account(), Account(client_left=True), Account(complete=True, status=200)
for endpoint, account, code in itertools.product((*KNOWN, "/v1/models/{model}", "other"), accounts, codes):
    for status in (200, 400, 401, 404, 405, 408, 413, 415, 422, 429, 500, 503):
        metrics.began(is_work=True)
        metrics.ended(account, endpoint, status, code, is_work=True)
"""


def test_a_file_that_a_worker_counts_in_has_all_its_blocks_and_never_grows(tmp_path: Path) -> None:
    environ = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", FILL], env=environ, check=True)
    sizes = {file.stem.rpartition("_")[0]: file.stat() for file in tmp_path.iterdir()}
    latencies = sizes.pop("latencies")
    assert {kind: size.st_size for kind, size in sizes.items()} == BYTES
    for size in (latencies, *sizes.values()):
        assert size.st_blocks * 512 >= size.st_size


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[HeldGateway]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (BYTES["histogram"] - 1, before[1]))
    gateway = HeldGateway(tmp_path)
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    yield gateway
    gateway.stop()


def test_a_worker_without_room_for_its_counts_answers_and_says_so(gateway: HeldGateway) -> None:
    gateway.wait_ready()
    assert gateway.post().status_code == 200
    assert gateway.get("/metrics").status_code == 200
    assert "will be missing in /metrics" in gateway.log()
