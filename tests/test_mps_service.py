import asyncio
import os
from pathlib import Path

import pytest

from parakeet_mps.mps import CONTROL, MpsDaemon
from parakeet_mps.mps_service import MpsService
from parakeet_mps.process import ServiceFailure
from processes import runs

SLOW_FAKE = r"""#!/bin/bash
pidfile="$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
if [ "${1:-}" = --daemon ]; then
    while :; do sleep 0.05; done
fi
if [ "${1:-}" = -d ]; then
    [ -z "${FAKE_FAILS:-}" ] || exit 1
    while [ ! -e "$GATE" ]; do sleep 0.02; done
    setsid bash "$0" --daemon </dev/null &
    echo $! >"$pidfile"
    exit 0
fi
read -r command
[ "$command" != quit ] || kill "$(cat "$pidfile")"
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    program = tmp_path / CONTROL
    program.write_text(SLOW_FAKE)
    program.chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GATE": str(tmp_path / "gate")}


def service(tmp_path: Path, environ: dict[str, str]) -> tuple[MpsService, MpsDaemon]:
    daemon = MpsDaemon(tmp_path / "mps", "GPU-1", environ)
    return MpsService(daemon, poll_s=0.02), daemon


def test_a_daemon_that_dies_is_a_failure(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "gate").touch()

    async def scenario() -> None:
        mps, daemon = service(tmp_path, environ)
        await mps.start()
        await mps.wait_ready()
        os.kill(daemon.pid or 0, 9)
        assert str(await asyncio.wait_for(mps.wait_failed(), 10)) == "mps ended"
        await mps.stop()

    asyncio.run(scenario())


def test_a_daemon_that_does_not_start_is_a_failure(tmp_path: Path, environ: dict[str, str]) -> None:
    async def scenario() -> None:
        mps, _ = service(tmp_path, {**environ, "FAKE_FAILS": "1"})
        with pytest.raises(ServiceFailure, match="mps did not start"):
            await mps.start()

    asyncio.run(scenario())


def test_a_start_that_is_given_up_leaves_no_daemon(tmp_path: Path, environ: dict[str, str]) -> None:
    async def scenario() -> None:
        mps, daemon = service(tmp_path, environ)
        starting = asyncio.create_task(mps.start())
        while not (tmp_path / "mps/log/commands.log").exists():
            await asyncio.sleep(0.01)
        starting.cancel()
        await asyncio.wait([starting])
        (tmp_path / "gate").touch()
        await mps.stop()
        assert daemon.pid is None
        assert not runs(int((tmp_path / f"mps/pipe/{CONTROL}.pid").read_text()))

    asyncio.run(scenario())
