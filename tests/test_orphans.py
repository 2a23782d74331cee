import subprocess
import sys
import time
from pathlib import Path

import pytest

from processes import ROOT


@pytest.mark.parametrize("orphan", ["sleep 0.3", "setsid sleep 0.3"], ids=["child", "daemon"])
def test_processes_whose_parent_ended_are_collected(tmp_path: Path, orphan: str) -> None:
    program = f"""
import asyncio, os, signal, sys
sys.path.insert(0, {str(ROOT)!r})
from parakeet_mps.orphans import adopt_orphans, reap_orphans
from parakeet_mps.process import ChildProcess
import pathlib
async def main():
    adopt_orphans()
    asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, reap_orphans)
    script = "({orphan} & echo $! > orphan; sleep 0.1) & exec sleep 600"
    child = ChildProcess("one", ["sh", "-c", script], os.environ, pathlib.Path.cwd())
    await child.start()
    orphan = pathlib.Path("orphan")
    while not orphan.exists() or not orphan.read_text():
        await asyncio.sleep(0.01)
    print(orphan.read_text(), flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert parent.stdout is not None
    process = Path("/proc") / parent.stdout.readline().strip()
    deadline = time.monotonic() + 15
    while process.exists() and time.monotonic() < deadline:
        pass
    parent.terminate()
    parent.communicate()
    assert not process.exists()
