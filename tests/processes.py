"""Small real programs that stand in for Triton and the gateway, and a look at what still runs."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import sys
from pathlib import Path

from parakeet_mps.http_probe import http_status
from parakeet_mps.process import ChildProcess

ROOT = Path(__file__).parent.parent

HTTP_SERVER = """
import http.server, os, signal, subprocess, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(os.environ.get("STATUS", "200"))); self.end_headers()
    def log_message(self, *args):
        pass
if os.environ.get("STUBBORN"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if os.environ.get("WORKER"):
    subprocess.Popen(["sleep", os.environ["WORKER"]])
print("serving", flush=True)
http.server.HTTPServer(("127.0.0.1", int(os.environ["SERVER_PORT"])), Handler).serve_forever()
"""


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def http_server(
    name: str,
    tmp_path: Path,
    environ: dict[str, str] | None = None,
    heard: asyncio.Event | None = None,
    **options: object,
) -> ChildProcess:
    """A small HTTP server as a supervised process, ready when it answers 200; `heard` is set when it is alive."""
    port = free_port()

    async def ready() -> bool:
        return await http_status("127.0.0.1", port, "/", 0.5) == 200

    async def alive() -> bool:
        answered = await http_status("127.0.0.1", port, "/", 0.5) is not None
        if answered and heard:
            heard.set()
        return answered

    return ChildProcess(
        name=name,
        command=[sys.executable, "-c", HTTP_SERVER],
        environ={"PATH": os.environ["PATH"], "SERVER_PORT": str(port), **(environ or {})},
        folder=tmp_path,
        ready=ready,
        alive=alive,
        output=io.BytesIO(),
        alive_poll_s=0.1,
        **options,  # type: ignore[arg-type]
    )


def runs(pid: int) -> bool:
    """Tell whether the process runs; one that ended and waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def group_members(group: int) -> list[int]:
    """Return the processes of a process group, zombies included."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            members.append(int(stat.parent.name))
    return members
