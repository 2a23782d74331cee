"""The recogniser behind Triton's gRPC interface."""

from __future__ import annotations

import torch
from tritonclient.grpc import InferInput
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from parakeet_mps.contract import ASR_MODEL, AUDIO_INPUT, BAD_UTTERANCE, RECOGNITION_OUTPUT, SAMPLE_RATE_HZ, Recognition
from parakeet_mps.errors import AudioError, DeadlineError, ServiceError, UnavailableError

_FLOAT32_BYTES = 4
_MESSAGE_ROOM_BYTES = 1 << 20
_GRPC_MESSAGE_LIMIT = (1 << 31) - 1

# What Triton says when it is alive but this request cannot be served: a full queue, a model being (re)loaded, a dead
# Python stub. https://github.com/triton-inference-server/core/blob/main/src/dynamic_batch_scheduler.cc
_UNAVAILABLE_MARKS = ("exceeds maximum queue size", "is not healthy", "is not ready", "unknown model")
_EXPIRED_MARK = "timeout expired"


class TritonTranscriber:
    """A `Transcriber` over one gRPC channel. Connects on first use, in the event loop that uses it."""

    def __init__(self, url: str, max_audio_s: float) -> None:
        self._url = url
        self._max_message_bytes = min(
            _GRPC_MESSAGE_LIMIT, int(max_audio_s * SAMPLE_RATE_HZ) * _FLOAT32_BYTES + _MESSAGE_ROOM_BYTES
        )
        self._connected: InferenceServerClient | None = None

    async def transcribe(self, waveform: torch.Tensor, timeout_s: float) -> Recognition:
        """See `Transcriber`. Triton drops the request from its queue once `timeout_s` is over."""
        try:
            result = await self._client.infer(
                ASR_MODEL,
                [_audio_input(waveform)],
                timeout=int(timeout_s * 1e6),
                client_timeout=timeout_s,
            )
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
            await self._connected.close()
            self._connected = None

    @property
    def _client(self) -> InferenceServerClient:
        if self._connected is None:  # an asyncio channel belongs to the event loop that is running when it is made
            self._connected = InferenceServerClient(self._url, channel_args=self._channel_args())
        return self._connected

    def _channel_args(self) -> list[tuple[str, int]]:
        return [
            ("grpc.max_send_message_length", self._max_message_bytes),
            ("grpc.max_receive_message_length", self._max_message_bytes),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),  # the default of two minutes would outlast Triton's restart
            ("grpc.enable_http_proxy", 0),
        ]


def _audio_input(waveform: torch.Tensor) -> InferInput:
    batch = waveform.unsqueeze(0).numpy()
    audio = InferInput(AUDIO_INPUT, batch.shape, "FP32")
    audio.set_data_from_numpy(batch)
    return audio


def known_failure(error: InferenceServerException) -> ServiceError | None:
    """Return the public error for what Triton said, or None when nobody foresaw it."""
    message, status = error.message() or "", error.status()
    if BAD_UTTERANCE in message:
        return AudioError(message.partition(BAD_UTTERANCE)[2].partition("\n")[0])
    if status == "StatusCode.DEADLINE_EXCEEDED" or _EXPIRED_MARK in message.lower():
        return DeadlineError("The recogniser did not answer in time.")
    if status == "StatusCode.UNAVAILABLE" or any(mark in message.lower() for mark in _UNAVAILABLE_MARKS):
        return UnavailableError("The recogniser is not available now; try again later.")
    return None
