import asyncio
import os
import sys
from pathlib import Path

import numpy
import pytest
import tritonclient.grpc as triton

from parakeet_mps.choices import make_plan
from parakeet_mps.hardware import Gpu, Hardware
from parakeet_mps.plan import Plan
from parakeet_mps.process import ChildProcess
from parakeet_mps.run_folder import RunFolder
from parakeet_mps.settings import Settings
from parakeet_mps.triton_server import (
    TritonInstallation,
    TritonNotFoundError,
    find_installation,
    server_command,
    server_environ,
)
from parakeet_mps.units import triton_service
from processes import free_port

PLAN = make_plan(Settings(), Hardware(cpu_cores=2, memory_mb=8192, shm_mb=1024))
INSTALLATION = TritonInstallation(Path("/opt/tritonserver/bin/tritonserver"), Path("/opt/tritonserver/backends"))

ECHO_CONFIG = """
name: "parakeet_asr"
backend: "python"
max_batch_size: 4
input { name: "X" data_type: TYPE_FP32 dims: [-1] }
output { name: "PREFIX" data_type: TYPE_UINT8 dims: [-1] }
instance_group { count: 1 kind: KIND_CPU }
"""

ECHO_MODEL = """
import sys
import fastapi  # only the virtual environment has it
import numpy
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        prefix = numpy.frombuffer(sys.prefix.encode(), numpy.uint8)[None]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("PREFIX", prefix)]) for _ in requests]
"""


def gpu_plan() -> Plan:
    gpu = Gpu(1, "GPU-1", "NVIDIA H200", 143771, "Default")
    return make_plan(Settings(), Hardware(16, 131072, 65536, (gpu,), mps_control=True))


def command(settings: Settings, plan: Plan = PLAN) -> list[str]:
    return server_command(INSTALLATION, settings, plan, Path("/run/repo"), "parakeet_x_")


def test_ports_and_addresses_come_from_the_settings() -> None:
    line = command(Settings(triton_url="127.0.0.1:9001", triton_http_port=9000, triton_metrics_port=9003))
    assert {"--grpc-port=9001", "--http-port=9000", "--metrics-port=9003"} <= set(line)
    assert {"--grpc-address=127.0.0.1", "--http-address=127.0.0.1", "--metrics-address=127.0.0.1"} <= set(line)


def test_gateways_elsewhere_connect_anew_from_time_to_time() -> None:
    assert "--grpc-max-connection-age=60000" in command(Settings(role="triton"))
    assert not any("connection-age" in word for word in command(Settings()))


def test_an_ipv6_address_is_written_as_each_server_wants_it() -> None:
    line = command(Settings(triton_host="::1"))
    assert {"--grpc-address=[::1]", "--http-address=ipv6:::1", "--metrics-address=ipv6:::1"} <= set(line)


def test_shared_memory_regions_carry_the_prefix_and_the_planned_size() -> None:
    assert "--backend-config=python,shm-region-prefix-name=parakeet_x_" in command(Settings())
    assert f"--backend-config=python,shm-default-byte-size={64 * 2**20}" in command(Settings())


def test_on_a_gpu_the_server_itself_holds_as_little_of_it_as_it_can() -> None:
    expected = {
        "--enable-peer-access=false",
        "--pinned-memory-pool-byte-size=0",
        "--cuda-memory-pool-byte-size=0:0",
    }
    assert expected <= set(command(Settings(), gpu_plan()))


def test_the_server_sees_the_chosen_gpu_alone_and_the_mps_folders() -> None:
    environ = server_environ(INSTALLATION, gpu_plan(), {"HOME": "/root"}, {"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"})
    assert environ["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert environ["CUDA_MPS_PIPE_DIRECTORY"] == "/run/mps"
    assert environ["HOME"] == "/root"


def test_nvidias_installation_comes_first(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/tritonserver").touch()
    found = find_installation(tmp_path / "overlay", tmp_path)
    assert found == TritonInstallation(tmp_path / "bin/tritonserver", tmp_path / "backends")


def test_without_any_triton_the_error_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(TritonNotFoundError, match="nvidia-pytriton"):
        find_installation(tmp_path / "overlay", tmp_path, package="no_such_package")


def test_of_the_interpreters_folder_only_its_own_library_is_shown_to_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    for library in (name, "libcudnn.so.9"):
        (tmp_path / library).touch()
    monkeypatch.setattr("sysconfig.get_config_var", {"LIBDIR": str(tmp_path)}.get)
    found = find_installation(tmp_path / "overlay", tmp_path / "none")
    assert tmp_path not in found.libraries
    linked = [file for folder in found.libraries for file in folder.iterdir() if file.resolve().parent == tmp_path]
    assert [file.name for file in linked] == [name]


def test_the_bundled_backend_is_laid_out_anew_each_time(tmp_path: Path) -> None:
    for _ in range(2):
        found = find_installation(tmp_path / "overlay", tmp_path / "none")
    backend = found.backends / "python"
    assert os.access(backend / "triton_python_backend_stub", os.X_OK)
    assert (backend / "libtriton_python.so").resolve().is_file()


@pytest.fixture
def real_triton(tmp_path: Path) -> ChildProcess:
    run = RunFolder(tmp_path / "run")
    model = run.model_repository / "parakeet_asr"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(ECHO_CONFIG)
    (model / "1/model.py").write_text(ECHO_MODEL)
    settings = Settings(
        triton_url=f"127.0.0.1:{free_port()}", triton_http_port=free_port(), triton_metrics_port=free_port()
    )
    return triton_service(settings, PLAN, run, os.environ, {})


def test_a_real_triton_runs_models_in_this_virtual_environment_and_leaves_nothing(
    real_triton: ChildProcess, tmp_path: Path
) -> None:
    prefix = RunFolder(tmp_path / "run").triton_shm_prefix
    url = next(flag for flag in real_triton.command if flag.startswith("--grpc-port="))
    answers: list[str] = []

    async def scenario() -> None:
        try:
            async with asyncio.timeout(60):
                await real_triton.start()
                await real_triton.wait_ready()
            assert list(Path("/dev/shm").glob(f"{prefix}*"))
            answers.append(await asyncio.to_thread(ask, f"127.0.0.1:{url.partition('=')[2]}"))
        finally:
            await real_triton.stop()

    asyncio.run(scenario())
    assert answers == [sys.prefix]
    assert not list(Path("/dev/shm").glob(f"{prefix}*"))


def ask(url: str) -> str:
    with triton.InferenceServerClient(url) as client:
        tensor = triton.InferInput("X", [1, 3], "FP32")
        tensor.set_data_from_numpy(numpy.zeros((1, 3), numpy.float32))
        result = client.infer("parakeet_asr", [tensor])
        return bytes(result.as_numpy("PREFIX")[0]).decode()
