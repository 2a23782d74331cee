"""Every entry program explains itself, from the same table that is parsed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from parakeet_mps.settings import describe
from processes import ROOT

ENTRIES = {
    "gateway": [sys.executable, "server.py"],
    "configuration": [sys.executable, "auto_config.py"],
    "service": [sys.executable, "-m", "parakeet_mps.service"],
    "script": ["bash", "start-single-container.sh"],
}


def run(entry: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "PARAKEET_PYTHON": sys.executable, "PORT": "not even a number"}
    command = [*ENTRIES[entry], *arguments]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("entry", ENTRIES)
def test_help_tells_every_setting_with_its_default(entry: str) -> None:
    answer = run(entry, "--help")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith("Usage: ")
    paragraphs = " ".join(answer.stdout.split())
    for variable, default, text in describe():
        assert f"{variable}={default} {text}" in paragraphs if default else f"{variable} {text}" in paragraphs
    assert max(map(len, answer.stdout.splitlines())) <= 100


@pytest.mark.parametrize("entry", ["gateway", "service", "script"])
def test_settings_on_the_command_line_are_refused_with_where_they_belong(entry: str) -> None:
    answer = run(entry, "--port", "8002")
    assert answer.returncode == 2
    assert "its settings are environment variables" in answer.stderr
