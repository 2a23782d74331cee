"""Every choice that the service makes for its machine, each with its reason. How they are made is `choices`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Choice(Generic[T]):
    """A chosen value and why it was chosen, in one line."""

    value: T
    reason: str


@dataclass(frozen=True)
class Plan:
    """Every choice for one machine. `gpu` is a UUID, empty on CPU; `thread_percentage` is 100 without MPS.

    `multiprocessors` is 0 where nobody knows, `memory_limit_mb` where there is none.
    """

    device: Choice[str]
    gpu: Choice[str]
    mps: Choice[bool]
    instances: Choice[int]
    thread_percentage: Choice[int]
    multiprocessors: Choice[int]
    memory_limit_mb: Choice[int]
    torch_threads: Choice[int]
    max_batch_size: Choice[int]
    preferred_batch_sizes: Choice[tuple[int, ...]]
    batch_delay_ms: Choice[int]
    max_queue_size: Choice[int]
    queue_timeout_s: Choice[int]
    execute_limit_s: Choice[int]
    piece_s: Choice[int]
    pieces_in_flight: Choice[int]
    shm_region_mb: Choice[int]

    def lines(self) -> list[str]:
        """One line for each choice: its name, value and reason."""
        choices = {row.name: getattr(self, row.name) for row in fields(self)}
        return [f"{name} = {_text(choice.value)}: {choice.reason}" for name, choice in choices.items()]

    def gateway_environ(self) -> dict[str, str]:
        """Return the choices that the gateway acts on, as the environment variables of their settings."""
        return {"PIECE_S": str(self.piece_s.value), "PIECES_IN_FLIGHT": str(self.pieces_in_flight.value)}

    def to_json(self) -> str:
        """Return the plan as a JSON document."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, document: str) -> Plan:
        """Read a document made by `to_json`. Raises `ValueError`, `KeyError` or `TypeError` on another shape."""
        choices: dict[str, Any] = {
            name: Choice(_untuple(choice["value"]), choice["reason"]) for name, choice in json.loads(document).items()
        }
        return cls(**choices)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value) or "-"


def _untuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
