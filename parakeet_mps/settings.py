"""Every setting of the service: one table (the fields of `Settings`) that drives parsing, refusals and help.

Standard library only. Nothing is read at import: the environment is handed in.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from parakeet_mps.contract import MAX_PIECE_S

AUTO = 0
"""Value of a count whose environment variable says `auto`: chosen by `auto_config.py`."""


class SettingError(ValueError):
    """A setting has a value that is not allowed; the message names the variable, the value and what is allowed."""


def _setting(default: Any, help_text: str, **limits: Any) -> Any:
    return field(default=default, repr=not limits.get("secret"), metadata={"help": help_text, **limits})


@dataclass(frozen=True)
class Settings:
    """The service's settings. Field `port` is read from the environment variable `PORT`, and so on."""

    role: str = _setting(
        "all",
        "What is started here: `all`, or of the two containers `triton` or `gateway`.",
        choices=("all", "triton", "gateway"),
    )
    host: str = _setting("0.0.0.0", "Address the gateway listens on.")  # noqa: S104  a container serves outside
    port: int = _setting(8002, "Port of the HTTP API.", minimum=1, maximum=65535)
    gateway_workers: int = _setting(4, "Gateway processes.", minimum=1, maximum=64)
    triton_url: str = _setting(
        "127.0.0.1:8001", "Triton's gRPC address. On this machine, a Triton is started on its port.", address=True
    )
    triton_host: str = _setting("127.0.0.1", "Address the local Triton listens on.")
    triton_http_port: int = _setting(8000, "HTTP port of the local Triton.", minimum=1, maximum=65535)
    triton_metrics_port: int = _setting(8003, "Metrics port of the local Triton.", minimum=1, maximum=65535)
    audio_transport: str = _setting(
        "auto",
        "How audio reaches Triton: `shm` is shared memory, `grpc` inside requests, `auto` the first that works.",
        choices=("auto", "shm", "grpc"),
    )
    model: str = _setting("models/demo.nemo", "A `.nemo` file, a Hugging Face name, or `s3://bucket/key.nemo`.")
    model_cache: str = _setting("~/.cache/parakeet-mps", "Folder for downloaded models and compiled kernels.")
    cuda_visible_devices: str | None = _setting(None, "GPUs to use, as CUDA reads it; empty means none.")
    mps: str = _setting(
        "auto", "CUDA MPS: `auto` uses it when several recognisers share an NVIDIA GPU.", choices=("auto", "on", "off")
    )
    mps_instance_count: int = _setting(AUTO, "Recognisers on each GPU, or `auto`.", minimum=1, maximum=48, auto=True)
    mps_thread_percentage: int = _setting(
        AUTO,
        "Most of the GPU's multiprocessors that each recogniser uses under MPS, in percent, or `auto`: an equal part.",
        minimum=1,
        maximum=100,
        auto=True,
    )
    max_batch_size: int = _setting(16, "Most utterances in one batch.", minimum=1, maximum=64)
    batch_delay_ms: int = _setting(
        2, "How long a request may wait for company at an idle recogniser.", minimum=0, maximum=1000
    )
    max_queue_size: int = _setting(
        AUTO, "Pieces that may wait in Triton, or `auto`; more are refused.", minimum=1, maximum=65536, auto=True
    )
    max_audio_s: int = _setting(14400, "Longest audio accepted, in seconds.", minimum=1, maximum=86400)
    piece_s: int = _setting(
        AUTO,
        "Longest piece that a recording is cut into, in seconds, or `auto`.",
        minimum=5,
        maximum=MAX_PIECE_S,
        auto=True,
    )
    pieces_in_flight: int = _setting(
        AUTO, "Pieces of one recording that are recognised at once, or `auto`.", minimum=1, maximum=64, auto=True
    )
    max_upload_mb: int = _setting(1024, "Largest upload accepted, in MiB.", minimum=1, maximum=4096)
    request_timeout_s: int = _setting(
        60,
        "Time a transcription may take, and half of the audio's length on top; bounds each piece, too.",
        minimum=1,
        maximum=3600,
    )
    max_in_flight: int = _setting(
        128, "Transcriptions in flight over all gateway processes; more are refused.", minimum=1, maximum=65536
    )
    upload_grace_s: int = _setting(
        20, "Time that an upload may fall behind `MIN_UPLOAD_KIB_S`.", minimum=1, maximum=3600
    )
    min_upload_kib_s: int = _setting(4, "Slowest upload accepted, in KiB/s.", minimum=1, maximum=1048576)
    execute_limit_s: int = _setting(
        AUTO,
        "Time that one batch may take, or `auto`; a recogniser that takes longer is restarted.",
        minimum=1,
        maximum=3600,
        auto=True,
    )
    startup_timeout_s: int = _setting(300, "Time the service may take to become ready.", minimum=10, maximum=7200)
    stop_timeout_s: int = _setting(
        20, "Time requests in flight may take when the service stops.", minimum=0, maximum=3600
    )
    run_dir: str = _setting(
        "run", "Folder for the rendered model repository, locks, logs, and the checkpoint, unpacked, while it loads."
    )
    wedge_sentinel: str = _setting(
        "/tmp/parakeet_wedged",  # noqa: S108
        "File that is there while a failed recogniser recovers, its history beside it; each service needs its own.",
    )
    log_level: str = _setting("info", "Log level.", choices=("debug", "info", "warning", "error"))
    log_format: str = _setting("text", "Log lines: `text`, or `json` objects.", choices=("text", "json"))
    otel_exporter_otlp_endpoint: str = _setting(
        "", "Collector of traces (OTLP over HTTP), such as `http://localhost:4318`; empty means no traces.", url=True
    )
    api_keys: str = _setting("", "Keys that may use the API, comma separated; empty means everybody may.", secret=True)
    api_keys_file: str = _setting("", "File of further keys, one a line; read again when it changes.")
    open_health: str = _setting("on", "Whether `/health` is open to those without a key.", choices=("on", "off"))
    open_metrics: str = _setting("on", "Whether `/metrics` is open to those without a key.", choices=("on", "off"))
    open_page: str = _setting("on", "Whether the page at `/` is open to those without a key.", choices=("on", "off"))
    open_docs: str = _setting("off", "Whether the documentation is open to those without a key.", choices=("on", "off"))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """Read every setting from `environ`. Raises `SettingError` on the first bad value; empty means default."""
        values: dict[str, Any] = {}
        for row in fields(cls):
            raw = environ.get(row.name.upper())
            if raw or (raw is not None and row.default is None):
                values[row.name] = _parse(row.name.upper(), raw, row.default, row.metadata)
        return cls(**values)

    @property
    def run_path(self) -> Path:
        """`run_dir` as an absolute path."""
        return Path(self.run_dir).expanduser().absolute()

    @property
    def cache_path(self) -> Path:
        """`model_cache` as an absolute path."""
        return Path(self.model_cache).expanduser().absolute()

    @property
    def traces_url(self) -> str | None:
        """Where traces are sent to; None when there are none."""
        endpoint = self.otel_exporter_otlp_endpoint
        return f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None

    @property
    def triton_grpc_port(self) -> int:
        """Port part of `triton_url`."""
        return int(self.triton_url.rpartition(":")[2])

    @property
    def triton_is_local(self) -> bool:
        """Whether `triton_url` names this machine, so that a Triton is started here."""
        host = self.triton_url.rpartition(":")[0].strip("[]")
        return host in ("localhost", "::1", self.triton_host) or host.startswith("127.")

    @property
    def starts_triton(self) -> bool:
        """Whether a Triton is started here: the one that `triton_url` names, or this is its container."""
        return self.role == "triton" or (self.role == "all" and self.triton_is_local)

    @property
    def starts_gateway(self) -> bool:
        """Whether the gateway is started here."""
        return self.role != "triton"


def describe() -> list[tuple[str, str, str]]:
    """Return (variable, default, help) of every setting, in table order."""
    return [
        (row.name.upper(), _default_text(row.default, row.metadata), row.metadata["help"]) for row in fields(Settings)
    ]


def _default_text(default: Any, limits: Mapping[str, Any]) -> str:
    if limits.get("auto"):
        return "auto"
    return "" if default is None else str(default)


def _parse(name: str, raw: str, default: Any, limits: Mapping[str, Any]) -> Any:
    if isinstance(default, int):
        return _parse_int(name, raw.strip(), limits)
    if limits.get("address") and not _is_address(raw.strip()):
        raise SettingError(f"{name}={raw!r} is not allowed: use host:port, such as {default}")
    if limits.get("url") and not _is_url(raw.strip()):
        raise SettingError(f"{name}={raw!r} is not allowed: use http://host:port or https://host:port")
    choices = limits.get("choices")
    if choices and raw.strip().lower() not in choices:
        raise SettingError(f"{name}={raw!r} is not allowed: use one of {', '.join(choices)}")
    return raw.strip().lower() if choices else raw.strip()


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and "/" not in text and port.isascii() and port.isdigit() and 0 < int(port) < 65536


def _is_url(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query


def _parse_int(name: str, raw: str, limits: Mapping[str, Any]) -> int:
    if limits.get("auto") and raw.lower() == "auto":
        return AUTO
    low, high = limits["minimum"], limits["maximum"]
    allowed = f"a whole number from {low} to {high}" + (", or auto" if limits.get("auto") else "")
    if not raw.isascii() or not raw.isdigit() or not low <= int(raw) <= high:
        raise SettingError(f"{name}={raw!r} is not allowed: use {allowed}")
    return int(raw)
