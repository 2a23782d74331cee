import os
import subprocess
from pathlib import Path

import pytest

from processes import ROOT

SCRIPT = ROOT / "scripts/install.sh"


def call(line: str, path: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """Source the script and run one line with its functions, with `path` first on the PATH."""
    first = f"{path}:" if path else ""
    environ = {"PATH": f"{first}{os.environ['PATH']}", **environ}
    command = ["bash", "-c", f"source {SCRIPT}; {line}"]
    return subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60)


def program(folder: Path, name: str, body: str) -> Path:
    file = folder / name
    file.write_text(f"#!/bin/bash\n{body}\n")
    file.chmod(0o755)
    return file


@pytest.mark.parametrize(("version", "accepted"), [("3.10", False), ("3.11", True), ("3.12", True), ("3.13", False)])
def test_only_the_supported_python_versions_are_taken(tmp_path: Path, version: str, accepted: bool) -> None:
    python = program(tmp_path, "python", f"echo {version}; exit {0 if accepted else 1}")
    assert (call(f"python_version {python}").returncode == 0) is accepted


def test_no_usable_python_is_refused_with_what_to_install() -> None:
    refusal = call("find_python", PYTHON="/nonexistent/python")
    assert refusal.returncode == 2
    assert "Python 3.11 or 3.12 is needed" in refusal.stderr
    assert "apt-get install python3" in refusal.stderr


def test_missing_programs_are_named_by_their_package(tmp_path: Path) -> None:
    python = program(tmp_path, "python", "exit 1")
    everything = [
        "curl",
        "ffmpeg",
        "libpython3.11",
        "python3.11-venv",
        "espeak-ng",
        "flite",
        "npm",
        "prometheus",
        "nodejs",
    ]
    for is_debian, browser in (("true", ["chromium"]), ("false", [])):
        line = f"is_debian() {{ {is_debian}; }}; PATH={tmp_path}; missing_packages {python} 3.11 test"
        assert call(line).stdout.split() == everything + browser


def test_where_chromium_is_no_package_playwright_brings_it_once(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin", "playwright", 'echo "$@" >>"$VENV/asked"')
    install = "command() { return 1; }; install_browser; install_browser"
    assert call(install, VENV=str(tmp_path)).returncode == 0
    assert (tmp_path / "asked").read_text() == "install --with-deps --only-shell chromium\n"


def test_a_person_without_root_is_told_the_command_to_run(tmp_path: Path) -> None:
    program(tmp_path, "id", "echo 1000")
    program(tmp_path, "apt-get", "exit 1")
    refusal = call(f"PATH={tmp_path}; apt_install ffmpeg flite", path=tmp_path)
    assert refusal.returncode == 2
    assert "run 'apt-get install ffmpeg flite' as root" in refusal.stderr


def test_without_apt_the_missing_packages_are_named(tmp_path: Path) -> None:
    refusal = call(f"PATH={tmp_path}; apt_install ffmpeg")
    assert refusal.returncode == 2
    assert "there is no apt-get: ffmpeg" in refusal.stderr


def test_a_folder_that_is_no_virtual_environment_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    refusal = call("make_environment python3 x", VENV=str(tmp_path))
    assert refusal.returncode == 2
    assert "is no virtual environment" in refusal.stderr
    assert (tmp_path / "precious").exists()


def test_an_installation_that_is_up_to_date_is_not_touched(tmp_path: Path) -> None:
    stand_ins = 'install_packages() { :; }; make_environment() { mkdir "$VENV"; }'
    once = f"{stand_ins}; install_python_packages() {{ echo installing; }}; _main serve"
    assert "installing" in call(once, VENV=str(tmp_path / "venv")).stdout
    assert call(once, VENV=str(tmp_path / "venv")).stdout == ""


def test_every_pin_is_exact() -> None:
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(line.count("==") == 1 and "+" not in line for line in pins)
    for together in ("torch==2.13.0", "torchcodec==0.13.0", "numpy==1.26.4", "nvidia-pytriton==0.7.0"):
        assert together in pins
