"""Where the `tritonserver` program is, and the command line and environment it is started with.

NVIDIA's image has it in /opt/tritonserver. Elsewhere the one inside the `nvidia-pytriton` wheel serves: a real
`tritonserver` with the Python backend and a stub for each Python version.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from parakeet_mps.contract import ASR_MODEL
from parakeet_mps.http_probe import bracketed, loopback
from parakeet_mps.plan import Plan
from parakeet_mps.settings import Settings

NVIDIA_HOME = Path("/opt/tritonserver")
BUNDLING_PACKAGE = "pytriton"
STUB = "triton_python_backend_stub"

CONNECTION_AGE_S = 60
"""Gateways elsewhere have their connections ended after this time, once what is on them has been answered: then they
look the server's name up again, and so find servers that were added. https://grpc.io/docs/guides/keepalive/"""

EXIT_TIMEOUT_S = 5
"""Time Triton waits for requests in flight when it ends. The gateway ends first, so there should be none."""


class TritonNotFoundError(RuntimeError):
    """There is no `tritonserver` on this machine; the message says how to get one."""


@dataclass(frozen=True)
class TritonInstallation:
    """A `tritonserver` program, its backends and the folders of its shared libraries."""

    program: Path
    backends: Path
    libraries: tuple[Path, ...] = ()


def find_installation(
    overlay: Path, nvidia_home: Path = NVIDIA_HOME, package: str = BUNDLING_PACKAGE
) -> TritonInstallation:
    """Return NVIDIA's installation, else the one inside `package` with its backend laid out in `overlay`.

    Raises `TritonNotFoundError`.
    """
    program = nvidia_home / "bin" / "tritonserver"
    if program.exists():
        return TritonInstallation(program, nvidia_home / "backends")
    return _bundled(overlay, package)


def server_command(
    installation: TritonInstallation, settings: Settings, plan: Plan, repository: Path, shm_prefix: str
) -> list[str]:
    """Return the command line of `tritonserver` for the rendered `repository`."""
    return [
        str(installation.program),
        f"--model-repository={repository}",
        f"--backend-directory={installation.backends}",
        f"--backend-config=python,shm-default-byte-size={plan.shm_region_mb.value * 2**20}",
        f"--backend-config=python,shm-region-prefix-name={shm_prefix}",
        *_addresses(settings),
        *([f"--grpc-max-connection-age={CONNECTION_AGE_S * 1000}"] if settings.role == "triton" else []),
        *trace_flags(settings),
        *_quiet(settings),
        "--metrics-config=summary_latencies=true",  # quantiles of the time in the queue and at work
        # A second copy of the audio in pinned memory gains nothing: the Python backend reads it from shared memory.
        "--pinned-memory-pool-byte-size=0",
        *_gpu_flags(plan),
        "--disable-auto-complete-config",
        "--strict-readiness=true",
        f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
    ]


def server_environ(
    installation: TritonInstallation, plan: Plan, environ: Mapping[str, str], mps_environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of `tritonserver`, which its stubs inherit.

    The stub takes its modules from the first `python3` on the PATH: this interpreter's, virtual environment included.
    """
    libraries = [*map(str, installation.libraries), environ.get("LD_LIBRARY_PATH", "")]
    return {
        # OpenMP threads that spin while they wait stall for seconds as soon as the gateway needs one of their cores.
        "OMP_WAIT_POLICY": "passive",
        **environ,
        "PATH": f"{Path(sys.executable).parent}:{environ.get('PATH', os.defpath)}",
        "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
        "CUDA_VISIBLE_DEVICES": plan.gpu.value,
        **mps_environ,
    }


def ready_paths() -> tuple[str, ...]:
    """HTTP paths that all answer 200 once the server and the recogniser are ready."""
    return ("/v2/health/ready", f"/v2/models/{ASR_MODEL}/ready")


def reached_at(settings: Settings) -> str:
    """Return host:port at which the gateway reaches the Triton that is started here.

    It follows from where that listens: TRITON_URL may call this machine by an address on which nothing does.
    """
    return f"{bracketed(loopback(settings.triton_host))}:{settings.triton_grpc_port}"


def _addresses(settings: Settings) -> list[str]:
    host = settings.triton_host
    # gRPC and libevent, which serves HTTP, each write an IPv6 address in their own way.
    http_host = f"ipv6:{host}" if ":" in host else host
    return [
        f"--grpc-address={bracketed(host)}",
        f"--grpc-port={settings.triton_grpc_port}",
        f"--http-address={http_host}",
        f"--http-port={settings.triton_http_port}",
        f"--metrics-address={http_host}",
        f"--metrics-port={settings.triton_metrics_port}",
    ]


def _quiet(settings: Settings) -> list[str]:
    info = "true" if settings.log_level == "debug" else "false"
    return [f"--log-info={info}", "--log-format=ISO8601"]


def trace_flags(settings: Settings) -> list[str]:
    """Requests that carry the gateway's trace are traced, whatever the rate; the rate spares the other ones.

    https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/trace.html
    """
    if settings.traces_url is None:
        return []
    own = {"url": settings.traces_url, "resource": "service.name=tritonserver"}
    return [
        "--trace-config=mode=opentelemetry",
        "--trace-config=level=TIMESTAMPS",
        f"--trace-config=rate={2**31 - 1}",
        *(f"--trace-config=opentelemetry,{name}={value}" for name, value in own.items()),
    ]


def _gpu_flags(plan: Plan) -> list[str]:
    if plan.device.value == "cpu":
        return ["--allow-gpu-metrics=false"]
    # The server is a CUDA client of its own: it must hold as little of the GPU as it can, above all under MPS.
    return ["--enable-peer-access=false", "--cuda-memory-pool-byte-size=0:0"]


def _bundled(overlay: Path, module: str) -> TritonInstallation:
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise TritonNotFoundError(
            f"no tritonserver: neither {NVIDIA_HOME} (NVIDIA's image) nor the package nvidia-pytriton is there"
        )
    package = Path(spec.submodule_search_locations[0])
    home = package / "tritonserver"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = home / "python_backend_stubs" / python / STUB
    if not stub.exists():
        raise TritonNotFoundError(f"nvidia-pytriton has no stub for Python {python}: use Python 3.11 or 3.12")
    _lay_out(home / "backends" / "python", stub, overlay / "backends" / "python")
    libraries = (package.parent / "nvidia_pytriton.libs", _link_python_library(python, overlay / "lib"))
    return TritonInstallation(home / "bin" / "tritonserver", overlay / "backends", libraries)


def _link_python_library(python: str, folder: Path) -> Path:
    """Link this interpreter's `libpython` in a `folder` of its own; where there is none, the system's is found.

    Where it lies there may be other libraries, such as another cuDNN, which must not hide those that PyTorch brings.
    """
    library = Path(sysconfig.get_config_var("LIBDIR"), f"libpython{python}.so.1.0")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if library.exists():
        (folder / library.name).symlink_to(library)
    return folder


def _lay_out(backend: Path, stub: Path, target: Path) -> None:
    """Link the backend's files and copy the stub beside them: installed packages stay as they are."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in backend.iterdir():
        if file.is_file():
            (target / file.name).symlink_to(file)
    shutil.copy2(stub, target / STUB)
