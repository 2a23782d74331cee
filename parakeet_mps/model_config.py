"""Triton's `config.pbtxt` and model repository, rendered from a plan. The repository in git is only read.

The renderer is strict: a value that still holds a placeholder, or a character that must not be in a path, is an error.
It knows how Triton writes a configuration, not why a value was chosen: that is `plan`.
Fields: https://github.com/triton-inference-server/common/blob/main/protobuf/model_config.proto
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from parakeet_mps.contract import ASR_MODEL, AUDIO_INPUT, HOTWORDS_INPUT, RECOGNITION_OUTPUT
from parakeet_mps.plan import Plan

_PLACEHOLDER = re.compile(r"\$\{|\$\(|\{\{|\}\}|<[A-Z_]+>")
_HEADER = "# Rendered by auto_config.py; the choices and their reasons are printed at start and kept in plan.json.\n"


class ConfigError(ValueError):
    """A value cannot be written into a Triton configuration."""


class Identifier(str):
    """An enumeration value or boolean: written without quotes."""

    __slots__ = ()


Value = str | int | Identifier | list["Value"] | dict[str, "Value"]


class Locations(NamedTuple):
    """Paths handed to the model: the checkpoint, where to unpack it, this package's folder, load lock, heartbeats."""

    checkpoint: str
    unpacked: str
    package: str
    load_lock: str
    heartbeats: str


@dataclass(frozen=True)
class ModelConfig:
    """One `config.pbtxt`: `fields` in writing order; a list is a repeated field, a dict is a message."""

    fields: dict[str, Value]

    def render(self) -> str:
        """Return the protobuf text. Raises `ConfigError`."""
        return _HEADER + "\n".join(_message(self.fields, 0)) + "\n"


def recogniser_config(plan: Plan, locations: Locations) -> ModelConfig:
    """Configuration of the recogniser: see the names in `contract`."""
    # Without allow_ragged_batch, requests of different lengths never share a batch.
    ragged = {"allow_ragged_batch": Identifier("true")}
    return ModelConfig(
        {
            "name": ASR_MODEL,
            "backend": "python",
            "max_batch_size": plan.max_batch_size.value,
            "input": [
                _tensor(AUDIO_INPUT, "TYPE_FP32") | ragged,
                _tensor(HOTWORDS_INPUT, "TYPE_UINT8") | ragged | {"optional": Identifier("true")},
            ],
            "output": [_tensor(RECOGNITION_OUTPUT, "TYPE_UINT8")],
            "dynamic_batching": _batching(plan),
            "instance_group": [_instance_group(plan)],
            "parameters": [_parameter(key, value) for key, value in model_parameters(plan, locations).items()],
        }
    )


def model_parameters(plan: Plan, locations: Locations) -> dict[str, str]:
    """Return what the model file reads from `parameters`; Triton carries strings only."""
    return {
        "model_path": locations.checkpoint,
        "unpacked": locations.unpacked,
        "package_path": locations.package,
        "device": plan.device.value,
        "torch_threads": str(plan.torch_threads.value),
        "active_thread_percentage": str(plan.thread_percentage.value),
        "multiprocessors": str(plan.multiprocessors.value),
        "memory_limit_mb": str(plan.memory_limit_mb.value),
        "load_lock": locations.load_lock,
        "heartbeats": locations.heartbeats,
    }


def write_repository(plan: Plan, locations: Locations, source: Path, target: Path) -> Path:
    """Write `config.pbtxt` and the model file of `source` (the repository in git) under `target`; return its folder.

    Raises `ConfigError` before anything is written, `OSError` when a file cannot be.
    """
    text = recogniser_config(plan, locations).render()
    shutil.rmtree(target, ignore_errors=True)
    version = target / ASR_MODEL / "1"
    version.mkdir(parents=True)
    shutil.copyfile(source / ASR_MODEL / "1" / "model.py", version / "model.py")
    (target / ASR_MODEL / "config.pbtxt").write_text(text, encoding="utf-8")
    return target


def _tensor(name: str, data_type: str) -> dict[str, Value]:
    return {"name": name, "data_type": Identifier(data_type), "dims": [-1]}


def _batching(plan: Plan) -> dict[str, Value]:
    sizes: list[Value] = list(plan.preferred_batch_sizes.value)
    return {
        "preferred_batch_size": sizes,
        "max_queue_delay_microseconds": plan.batch_delay_ms.value * 1000,
        "default_queue_policy": {
            "timeout_action": Identifier("REJECT"),
            "default_timeout_microseconds": plan.queue_timeout_s.value * 1_000_000,
            "allow_timeout_override": Identifier("true"),
            "max_queue_size": plan.max_queue_size.value,
        },
    }


def _instance_group(plan: Plan) -> dict[str, Value]:
    count = plan.instances.value
    if plan.device.value == "cpu":
        return {"count": count, "kind": Identifier("KIND_CPU")}
    # The server sees the chosen GPU alone, as number 0.
    return {"count": count, "kind": Identifier("KIND_GPU"), "gpus": [0]}


def _parameter(key: str, value: str) -> dict[str, Value]:
    return {"key": key, "value": {"string_value": value}}


def _message(fields: dict[str, Value], depth: int) -> list[str]:
    return [line for name, value in fields.items() for line in _field(name, value, depth)]


def _field(name: str, value: Value, depth: int) -> list[str]:
    indent = "  " * depth
    if isinstance(value, dict):
        return [f"{indent}{name} {{", *_message(value, depth + 1), f"{indent}}}"]
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return [line for item in value for line in _field(name, item, depth)]
    if isinstance(value, list):
        return [f"{indent}{name}: [{', '.join(_scalar(name, item) for item in value)}]"]
    return [f"{indent}{name}: {_scalar(name, value)}"]


def _scalar(name: str, value: Value) -> str:
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise ConfigError(f"{name}: {value!r} is no scalar")
    if _PLACEHOLDER.search(value):
        raise ConfigError(f"{name}: {value!r} still holds a placeholder")
    if any(ord(character) < 32 for character in value):
        raise ConfigError(f"{name}: {value!r} holds a control character")
    return str(value) if isinstance(value, Identifier) else json.dumps(value, ensure_ascii=False)
