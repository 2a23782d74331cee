"""Whether a transcription would succeed now, and if not, what stands in its way."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from parakeet_mps.contract import SAMPLE_RATE_HZ, Recognition
from parakeet_mps.errors import DeadlineError, ServiceError
from parakeet_mps.gateway.draining import Drain
from parakeet_mps.gateway.transcriber import Transcriber
from parakeet_mps.wedge import Sentinel

_log = logging.getLogger(__name__)

CACHE_S = 1.0
"""An answer is kept this long, so that many probes cost one canary."""

PROBE_TIMEOUT_S = 1.5
CANARY_TIMEOUT_S = 4.0
"""Together less than a prober's patience, so that it hears which check fails."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The name of the check that fails and why; both None when all pass."""

    failing_check: str | None = None
    reason: str | None = None

    @property
    def healthy(self) -> bool:
        """Whether every check passed."""
        return self.failing_check is None


class Health:
    """Runs the checks in order of cost: `draining`, `wedge_sentinel`, `triton_live`, `model_ready`, `canary`.

    The canary is half a second of silence sent through the recogniser. A transcription that succeeds for a client
    proves the same, so a canary that waits behind heavy traffic is no failure while that traffic is answered.
    """

    def __init__(self, transcriber: Transcriber, sentinel: Path, drain: Drain) -> None:
        self._transcriber = transcriber
        self._sentinel = Sentinel(sentinel)
        self._drain = drain
        self._lock = asyncio.Lock()
        self._verdict = Verdict()
        self._judged_at = -float("inf")
        self._proved_at = -float("inf")

    def proved(self) -> None:
        """Note that a transcription has just succeeded."""
        self._proved_at = time.monotonic()

    async def verdict(self) -> Verdict:
        """Return the verdict, at most `CACHE_S` old; drain and sentinel are looked at every time."""
        if self._drain.draining:
            return Verdict("draining", "this server is stopping")
        if wedge := self._sentinel.read():
            return Verdict("wedge_sentinel", f"{wedge.who} {wedge.why}; recovery is under way since {wedge.at}")
        async with self._lock:
            if time.monotonic() - self._judged_at >= CACHE_S:
                self._verdict = await self._judge()
                self._judged_at = time.monotonic()
            return self._verdict

    async def _judge(self) -> Verdict:
        if not await self._transcriber.live(PROBE_TIMEOUT_S):
            return Verdict("triton_live", "Triton does not answer")
        if not await self._transcriber.ready(PROBE_TIMEOUT_S):
            return Verdict("model_ready", "the recogniser is not loaded")
        return await self._canary()

    async def _canary(self) -> Verdict:
        began_at = time.monotonic()
        try:
            await self._transcribe_silence()
        except DeadlineError as error:
            return Verdict() if self._proved_at >= began_at else Verdict("canary", error.message)
        except ServiceError as error:
            return Verdict("canary", error.message)
        except Exception:  # noqa: BLE001  whatever breaks the canary would break a transcription
            _log.exception("the canary failed")
            return Verdict("canary", "a test transcription failed")
        return Verdict()

    async def _transcribe_silence(self) -> Recognition:
        return await self._transcriber.transcribe(torch.zeros(SAMPLE_RATE_HZ // 2), CANARY_TIMEOUT_S)
