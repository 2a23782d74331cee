"""Containers of the built images, driven through Docker's own client: started, watched, asked, removed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "models/sample.wav"
SAMPLE_TEXT = "good morning doctor smith i have had a dry cough for three weeks the pain in my chest is worse at night"
START_LIMIT_S = 240

WORKERS = ("--env", "GATEWAY_WORKERS=2")
"""An option of `docker run`: as many as these tests need."""

UNPRIVILEGED = ("--user", "12345:12345", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
READ_ONLY = ("--read-only", "--tmpfs", "/tmp:exec")

_LIST_PROCESSES = """
import json, pathlib
rows = []
for folder in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        stat = (folder / "stat").read_text().rpartition(")")[2].split()
        rows.append((int(folder.name), stat[0], (folder / "cmdline").read_bytes().replace(b"\\0", b" ").decode()))
    except OSError:
        pass
print(json.dumps(rows))
"""


def docker(*arguments: str, timeout_s: float = 120) -> str:
    """Run a Docker command and return what it printed."""
    return command([os.environ.get("DOCKER") or "docker", *arguments], timeout_s)


def command(words: list[str], timeout_s: float, **environ: str) -> str:
    """Run a command and return what it printed; fail with its error output."""
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=timeout_s, cwd=ROOT, env={**os.environ, **environ}
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


def wait_until(condition: Callable[[], object], what: str, limit_s: float = START_LIMIT_S) -> None:
    """Return when `condition` holds; fail when it does not within `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {limit_s:g} s: {what}")
        time.sleep(0.2)


def health(url: str) -> dict[str, Any]:
    """Return what `/health` answers, with its status; status 0 when nothing answers."""
    try:
        answer = httpx.get(f"{url}/health", timeout=10)
    except httpx.HTTPError:
        return {"status_code": 0}
    return {"status_code": answer.status_code, **answer.json()}


def transcribe(url: str) -> str:
    """Return what the service hears in the sample."""
    form = {"model": "parakeet-tdt"}
    with SAMPLE.open("rb") as file:
        answer = httpx.post(f"{url}/v1/audio/transcriptions", data=form, files={"file": file}, timeout=120)
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["text"]
    return text


class Container:
    """One container; `remove` must be called in the end."""

    def __init__(self, identity: str) -> None:
        self.identity = identity

    @classmethod
    def run(cls, image: str, *options: str) -> Container:
        """Start a container whose HTTP port is published on a free port of this machine."""
        return cls(docker("run", "--detach", "--publish", "127.0.0.1::8002", *options, image))

    @property
    def url(self) -> str:
        """Where its HTTP API is; another port after each start."""
        return f"http://{docker('port', self.identity, '8002/tcp').splitlines()[0]}"

    def start(self) -> None:
        """Start it again."""
        docker("start", self.identity)

    def wait_healthy(self) -> None:
        """Return when a transcription would succeed; fail with its log when it ends or is late."""
        url = self.url
        deadline = time.monotonic() + START_LIMIT_S
        while health(url)["status_code"] != 200:
            if not self.inspect("State.Running") or time.monotonic() > deadline:
                pytest.fail(f"the container did not become healthy:\n{self.logs()[-4000:]}")
            time.sleep(0.2)

    def inspect(self, path: str) -> Any:
        """Return one value of `docker inspect`, such as State.ExitCode."""
        return json.loads(docker("inspect", "--format", f"{{{{json .{path}}}}}", self.identity))

    def execute(self, *words: str) -> str:
        """Run a command in it and return what it printed."""
        return docker("exec", self.identity, *words)

    def processes(self, pattern: str) -> list[int]:
        """Return its processes whose command line has `pattern`, zombies excluded."""
        rows = json.loads(self.execute("python3", "-c", _LIST_PROCESSES))
        return [pid for pid, state, line in rows if state != "Z" and re.search(pattern, line)]

    def zombies(self) -> list[int]:
        """Return its processes that ended and were not collected."""
        return [pid for pid, state, _ in json.loads(self.execute("python3", "-c", _LIST_PROCESSES)) if state == "Z"]

    def logs(self) -> str:
        """Return what it printed so far, both streams."""
        words = [os.environ.get("DOCKER") or "docker", "logs", self.identity]
        return subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout

    def remove(self) -> None:
        """Stop it at once and remove it with its volumes."""
        docker("rm", "--force", "--volumes", self.identity)
