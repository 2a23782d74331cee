import os
import subprocess
import sys
from pathlib import Path

import pytest

from parakeet_mps.run_folder import RunFolder
from processes import ROOT, free_port, runs

SCRIPT = ROOT / "start-single-container.sh"


def call(line: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Source the script and run one line with its functions."""
    return bash("-c", f"source {SCRIPT}; {line}", **environ)


def start(tmp_path: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the script with settings that it should refuse."""
    ports = {name: str(free_port()) for name in ("PORT", "TRITON_HTTP_PORT", "TRITON_METRICS_PORT")}
    own = {"PARAKEET_PYTHON": sys.executable, "RUN_DIR": str(tmp_path), "TRITON_URL": f"127.0.0.1:{free_port()}"}
    return bash(str(SCRIPT), **{**ports, **own, **environ})


def bash(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], **environ}
    return subprocess.run(["bash", *arguments], capture_output=True, text=True, env=environ, timeout=60)


def test_sourcing_it_starts_nothing() -> None:
    assert call("echo sourced").stdout == "sourced\n"


def test_the_interpreter_is_the_one_named_else_of_the_virtual_environment_else_python3(tmp_path: Path) -> None:
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.touch(mode=0o755)
    assert call("choose_python", PARAKEET_PYTHON="/opt/python", VENV=str(tmp_path)).stdout == "/opt/python\n"
    assert call("choose_python", VENV=str(tmp_path)).stdout == f"{python}\n"
    assert call("choose_python", VENV=str(tmp_path / "none")).stdout == "python3\n"


def test_a_missing_interpreter_is_refused_with_what_to_do() -> None:
    refusal = call("check_python /nonexistent/python")
    assert refusal.returncode == 2
    assert "scripts/install.sh" in refusal.stderr


def test_an_interpreter_without_the_packages_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    refusal = call(f"check_python {tmp_path}/python")
    assert refusal.returncode == 2
    assert "lacks the service's packages" in refusal.stderr


def test_missing_shared_memory_is_refused_with_what_to_do(tmp_path: Path) -> None:
    refusal = call(f"check_shared_memory {tmp_path}/none")
    assert refusal.returncode == 2
    assert "--shm-size" in refusal.stderr


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"PORT": "eighty"}, "PORT='eighty' is not allowed: use a whole number from 1 to 65535"),
        ({"TRITON_URL": "nonsense"}, "TRITON_URL='nonsense' is not allowed: use host:port"),
        ({"WEDGE_SENTINEL": "/proc/none/x"}, "WEDGE_SENTINEL='/proc/none/x' cannot be written: No such file"),
        ({"WEDGE_SENTINEL": "/proc"}, "WEDGE_SENTINEL='/proc' cannot be written: "),
        ({"RUN_DIR": "/proc/none"}, "RUN_DIR=/proc/none cannot be written: No such file"),
        ({"PORT": "18002", "TRITON_HTTP_PORT": "18002"}, "PORT and TRITON_HTTP_PORT both name port 18002"),
    ],
)
def test_a_bad_setting_is_refused_in_one_line(tmp_path: Path, environ: dict[str, str], says: str) -> None:
    refusal = start(tmp_path, **environ)
    assert refusal.returncode == 2
    assert refusal.stderr.strip().splitlines()[-1].startswith(f"parakeet-mps: {says}")
    assert "Traceback" not in refusal.stderr


def test_a_missing_model_ends_the_start_with_the_reason(tmp_path: Path) -> None:
    refusal = start(tmp_path, MODEL=str(tmp_path / "none.nemo"))
    assert refusal.returncode == 2
    assert "none.nemo" in refusal.stderr
    assert "parakeet-mps: checkpoint ended with status" in refusal.stderr


def test_a_second_service_in_the_same_run_folder_is_refused(tmp_path: Path) -> None:
    with RunFolder(tmp_path).acquire():
        refusal = start(tmp_path)
    assert refusal.returncode == 2
    assert "set RUN_DIR to another folder" in refusal.stderr


def test_with_a_triton_elsewhere_only_the_gateway_is_started_and_a_signal_ends_it(tmp_path: Path) -> None:
    environ = {
        "PATH": os.environ["PATH"],
        "PARAKEET_PYTHON": sys.executable,
        "RUN_DIR": str(tmp_path),
        "TRITON_URL": "192.0.2.1:8001",
        "PORT": str(free_port()),
        "GATEWAY_WORKERS": "1",
    }
    script = subprocess.Popen(["bash", str(SCRIPT)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ)
    assert script.stdout is not None
    printed = b""
    while b"Uvicorn running" not in printed:
        line = script.stdout.readline()
        assert line, printed.decode()
        printed += line
    children = Path(f"/proc/{script.pid}/task/{script.pid}/children").read_text().split()
    script.terminate()
    script.communicate(timeout=60)
    assert b"only the gateway is started" in printed
    assert len(children) == 1
    assert not runs(int(children[0]))
    assert script.returncode == 0
