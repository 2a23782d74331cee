"""The recogniser behind Triton's gRPC interface."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import torch
from tritonclient.grpc import InferInput, InferResult
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from parakeet_mps.contract import (
    ASR_MODEL,
    BAD_UTTERANCE,
    HOTWORDS_FAULT,
    HOTWORDS_INPUT,
    MAX_PIECE_S,
    RECOGNITION_OUTPUT,
    SAMPLE_RATE_HZ,
    Recognition,
    write_phrases,
)
from parakeet_mps.errors import (
    AudioError,
    DeadlineError,
    LostError,
    RequestError,
    ServiceError,
    UnavailableError,
    UnreachableError,
)
from parakeet_mps.gateway.audio_transport import FORGOTTEN, AudioTransport
from parakeet_mps.gateway.tracing import outgoing_headers

RECONNECT_MS = 200
"""Pause between two attempts to connect."""

_MESSAGE_BYTES = MAX_PIECE_S * SAMPLE_RATE_HZ * 4 + (1 << 20)
"""Largest message: the longest float32 waveform, with room for what goes with it."""

# What Triton and gRPC say, in lower case. A crash is told from a server that is not there by gRPC's own words for the
# latter, since both have the status UNAVAILABLE; a model is unknown while Triton starts or stops; a Python stub that
# died is "not healthy". https://github.com/triton-inference-server/core/blob/main/src/dynamic_batch_scheduler.cc
_FULL_MARK = "exceeds maximum queue size"
_UNREACHABLE_MARKS = (
    "failed to connect",
    "connections to all backends failing",
    "empty address list",
    "dns resolution failed",
    "unknown model",
    "not ready",
    "server is stopping",
)
_LOST_MARK = "is not healthy"
_LOST_STATUSES = ("StatusCode.UNAVAILABLE", "StatusCode.CANCELLED")  # the latter by a server that ends
_EXPIRED_MARK = "timeout expired"


class TritonTranscriber:
    """A `Transcriber` over one gRPC channel. Connects on first use, in the event loop that uses it."""

    def __init__(self, url: str, audio: AudioTransport | None = None) -> None:
        self._url = url
        self._audio = audio or AudioTransport()
        self._connected: InferenceServerClient | None = None

    async def transcribe(self, waveform: torch.Tensor, timeout_s: float, hotwords: Sequence[str] = ()) -> Recognition:
        """See `Transcriber`. Triton drops the request from its queue once `timeout_s` is over."""
        try:
            async with asyncio.timeout(timeout_s):
                result = await self._infer_known(waveform, timeout_s, hotwords)
        except TimeoutError:
            raise DeadlineError("The recogniser did not answer in time.") from None
        except InferenceServerException as error:
            known = known_failure(error)
            if known is None:
                raise
            raise known from error
        return Recognition.from_json(result.as_numpy(RECOGNITION_OUTPUT).tobytes())

    async def live(self, timeout_s: float) -> bool:
        """Say whether Triton answers."""
        try:
            return bool(await self._client.is_server_live(client_timeout=timeout_s))
        except InferenceServerException:
            return False

    async def ready(self, timeout_s: float) -> bool:
        """Say whether Triton has loaded the recogniser."""
        try:
            return bool(await self._client.is_model_ready(ASR_MODEL, client_timeout=timeout_s))
        except InferenceServerException:
            return False

    async def close(self) -> None:
        """Close the channel."""
        if self._connected is not None:
            await self._audio.withdraw(self._connected)
            await self._connected.close()  # ends all requests, so that none is answered for audio that is gone
            self._audio.close()
            self._connected = None

    async def _infer_known(self, waveform: torch.Tensor, timeout_s: float, hotwords: Sequence[str]) -> InferResult:
        for missed in (self._audio.forgotten, self._audio.unshared):
            try:
                return await self._infer(waveform, timeout_s, hotwords)
            except InferenceServerException as error:
                if FORGOTTEN not in (error.message() or "").lower():
                    raise
            missed()
        return await self._infer(waveform, timeout_s, hotwords)

    async def _infer(self, waveform: torch.Tensor, timeout_s: float, hotwords: Sequence[str]) -> InferResult:
        async with self._audio.carry(waveform, self._client) as audio:
            return await self._client.infer(
                ASR_MODEL,
                [audio, _hotwords_input(hotwords)],
                timeout=int(timeout_s * 1e6),
                client_timeout=timeout_s,
                headers=outgoing_headers.get(),
            )

    @property
    def _client(self) -> InferenceServerClient:
        if self._connected is None:  # an asyncio channel belongs to the event loop that is running when it is made
            self._connected = InferenceServerClient(self._url, channel_args=self._channel_args())
        return self._connected

    def _channel_args(self) -> list[tuple[str, int | str]]:
        return [
            # A name may stand for several Tritons: requests take turns among those that answer.
            ("grpc.lb_policy_name", "round_robin"),
            ("grpc.max_send_message_length", _MESSAGE_BYTES),
            ("grpc.max_receive_message_length", _MESSAGE_BYTES),
            # While a channel pauses between two attempts to connect, every request fails at once: let it pause little.
            ("grpc.initial_reconnect_backoff_ms", RECONNECT_MS),
            ("grpc.max_reconnect_backoff_ms", RECONNECT_MS),
            ("grpc.enable_http_proxy", 0),
        ]


def _hotwords_input(hotwords: Sequence[str]) -> InferInput:
    document = np.frombuffer(write_phrases(hotwords), dtype=np.uint8)[None]
    phrases = InferInput(HOTWORDS_INPUT, document.shape, "UINT8")
    phrases.set_data_from_numpy(document)
    return phrases


def known_failure(error: InferenceServerException) -> ServiceError | None:
    """Return the public error for what Triton said, or None when nobody foresaw it."""
    message, status = error.message() or "", error.status()
    said = message.lower()
    if BAD_UTTERANCE in message:
        reason = message.partition(BAD_UTTERANCE)[2].partition("\n")[0]
        return RequestError(reason, param="hotwords") if reason.startswith(HOTWORDS_FAULT) else AudioError(reason)
    if status == "StatusCode.DEADLINE_EXCEEDED" or _EXPIRED_MARK in said:
        return DeadlineError("The recogniser did not answer in time.")
    if _FULL_MARK in said:
        return UnavailableError("The recogniser has too much to do; try again later.")
    if any(mark in said for mark in _UNREACHABLE_MARKS):
        return UnreachableError("The recogniser is not available now; try again later.")
    if _LOST_MARK in said or status in _LOST_STATUSES:
        return LostError("The recogniser went away while it had the request; try again later.")
    return None
