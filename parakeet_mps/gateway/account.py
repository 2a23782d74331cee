"""What is known of one request: kept while it runs, counted and logged when it ends."""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """How a request ended; every accepted one ends in exactly one of these."""

    ANSWERED = "answered"
    REFUSED = "refused"
    CANCELLED = "cancelled"


@dataclass(slots=True)
class Account:
    """One request. Nothing in it tells what was said, nor how a file or a person is called."""

    request_id: str = ""
    status: int | None = None
    """HTTP status of the response, once its head is sent."""
    reason: str = ""
    """The error's public code, when the request is refused."""
    complete: bool = False
    """Whether the whole response was handed to a connected client."""
    client_left: bool = False
    """Whether the client closed the connection before the response was complete."""
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds spent in each stage of a transcription."""
    audio_s: float = 0.0
    model: str | None = None
    began_at: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """Seconds since the request came in."""
        return time.perf_counter() - self.began_at

    @property
    def outcome(self) -> Outcome:
        """How the request ended. A response that the server cut off or ended in an error is refused."""
        if self.client_left:
            return Outcome.CANCELLED
        if self.complete and self.status is not None and self.status < 400 and not self.reason:
            return Outcome.ANSWERED
        return Outcome.REFUSED

    def add_stage(self, name: str, seconds: float) -> None:
        """Add time to a stage; pieces of one recording add up."""
        self.stages[name] = self.stages.get(name, 0.0) + seconds

    def transcribed(self, audio_s: float, model: str) -> None:
        """Note recognised audio."""
        self.audio_s += audio_s
        self.model = model

    def leave(self) -> None:
        """Note that the client is gone, unless it has its answer."""
        self.client_left = self.client_left or not self.complete


_current: ContextVar[Account | None] = ContextVar("account", default=None)


def open_account(request_id: str) -> Account:
    """Start the account of the request that this task, and the tasks it starts, work for."""
    account = Account(request_id)
    _current.set(account)
    return account


def current() -> Account:
    """Return the account of the request being worked for; outside of one, an account that nobody reads."""
    return _current.get() or Account()
