"""`make serve` in a terminal, with a stand-in for the service behind it."""

import contextlib
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from parakeet_mps.gateway.catalogue import MODEL_ID
from parakeet_mps.settings import Settings
from processes import ROOT, free_port, runs

CTRL_C = b"\x03"

STAND_IN = """#!/usr/bin/env bash
exec {python} -c '
import http.server, os, pathlib, signal, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = int(os.environ.get("STATUS", 200))
        if "API_KEYS" in os.environ and self.headers["Authorization"] != "Bearer sk-one":
            status = 401
        self.send_response(status); self.end_headers()
        self.wfile.write(b"{{\\"text\\": \\"heard %d bytes\\"}}" % body.count(b"sample"))
    def log_message(self, *args):
        pass
if os.environ.get("FAILS"):
    sys.exit(2)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: (print("service stopped", flush=True), os._exit(0)))
server = http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler)
pathlib.Path(os.environ["RUN_DIR"], "ready").write_text(str(os.getpid()))
server.serve_forever()
'
"""


class Terminal(NamedTuple):
    """A command that runs as the foreground job of its own terminal."""

    process: subprocess.Popen[bytes]
    master: int

    def read_until(self, text: str) -> str:
        """Return all output up to `text`, or to the end when the command ends before."""
        printed = b""
        while text.encode() not in printed:
            try:
                chunk = os.read(self.master, 4096)
            except OSError:
                break
            printed += chunk
        return printed.decode().replace("\r\n", "\n")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "models").mkdir()
    (tmp_path / "run").mkdir()
    shutil.copy(ROOT / "scripts/serve.sh", tmp_path / "scripts/serve.sh")
    (tmp_path / "models/sample.wav").write_bytes(b"RIFF")
    (tmp_path / "start-single-container.sh").write_text(STAND_IN.format(python=sys.executable))
    (tmp_path / "start-single-container.sh").chmod(0o755)
    (tmp_path / "Makefile").write_text("serve:\n\t@scripts/serve.sh\n")
    return tmp_path


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        with contextlib.suppress(OSError):  # nothing runs in the terminal any more
            os.write(terminal.master, CTRL_C)
        terminal.process.wait(timeout=20)
        os.close(terminal.master)


def serve(checkout: Path, terminals: list[Terminal], **environ: str) -> Terminal:
    master, slave = pty.openpty()
    environ = {"PATH": os.environ["PATH"], "PORT": str(free_port()), "RUN_DIR": str(checkout / "run"), **environ}
    # A new session whose controlling terminal is the pty: Ctrl-C then reaches the whole foreground group.
    command = ["setsid", "--ctty", "--wait", "make", "serve"]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, cwd=checkout, env=environ)
    os.close(slave)
    terminals.append(Terminal(process, master))
    return terminals[-1]


def test_it_shows_the_command_and_the_answer_and_ctrl_c_stops_the_service(
    checkout: Path, terminals: list[Terminal]
) -> None:
    terminal = serve(checkout, terminals, PORT=(port := str(free_port())))
    shown = terminal.read_until("Ctrl-C stops the service.")
    url = f"localhost:{port}/v1/audio/transcriptions"
    assert f"$ curl -F file=@models/sample.wav -F model=parakeet-tdt {url}\n" in shown
    assert '{"text": "heard 1 bytes"}' in shown
    service = int((checkout / "run/ready").read_text())
    assert runs(service)
    os.write(terminal.master, CTRL_C)
    assert "service stopped" in terminal.read_until("service stopped")
    terminal.process.wait(timeout=20)
    assert not runs(service)


def test_with_keys_it_uses_the_first_and_shows_none(checkout: Path, terminals: list[Terminal]) -> None:
    shown = serve(checkout, terminals, API_KEYS=" sk-one,sk-two").read_until("Ctrl-C stops the service.")
    assert "$ curl -H 'Authorization: Bearer KEY' -F file=" in shown
    assert "heard 1 bytes" in shown
    assert "sk-" not in shown


def test_its_defaults_are_those_of_the_settings_and_the_catalogue() -> None:
    script = (ROOT / "scripts/serve.sh").read_text()
    settings = Settings()
    assert set(re.findall(r"\$\{(\w+):-([^}]*)\}", script)) == {
        ("PORT", str(settings.port)),
        ("RUN_DIR", settings.run_dir),
    }
    assert f"-F model={MODEL_ID} " in script


def test_a_service_that_does_not_start_ends_it_with_its_status(checkout: Path, terminals: list[Terminal]) -> None:
    terminal = serve(checkout, terminals, FAILS="1")
    assert "Error 2" in terminal.read_until("Error 2")
    assert terminal.process.wait(timeout=20) != 0


def test_a_sample_that_is_not_transcribed_stops_the_service(checkout: Path, terminals: list[Terminal]) -> None:
    terminal = serve(checkout, terminals, STATUS="503")
    assert "service stopped" in terminal.read_until("service stopped")
    assert terminal.process.wait(timeout=20) != 0


def test_a_ready_file_left_by_another_service_is_not_believed(checkout: Path, terminals: list[Terminal]) -> None:
    (checkout / "run/ready").write_text("1")
    terminal = serve(checkout, terminals, FAILS="1")
    assert "curl" not in terminal.read_until("Error 2")
