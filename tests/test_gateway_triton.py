"""What Triton says becomes the right public error."""

from __future__ import annotations

import grpc
import pytest
import torch
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from parakeet_mps.contract import BAD_UTTERANCE, HOTWORDS_FAULT
from parakeet_mps.errors import (
    AudioError,
    DeadlineError,
    LostError,
    RequestError,
    UnavailableError,
    UnreachableError,
)
from parakeet_mps.gateway.triton import TritonTranscriber, known_failure
from processes import free_port


@pytest.fixture
def unused_url() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        ("StatusCode.INTERNAL", f"in request: {BAD_UTTERANCE}too short\ntrace", AudioError),
        ("StatusCode.DEADLINE_EXCEEDED", "Deadline Exceeded", DeadlineError),
        ("StatusCode.UNAVAILABLE", "Request timeout expired", DeadlineError),
        ("StatusCode.UNAVAILABLE", "Exceeds maximum queue size", UnavailableError),
        ("StatusCode.UNAVAILABLE", "failed to connect to all addresses; last error: Socket closed", UnreachableError),
        ("StatusCode.UNAVAILABLE", "DNS resolution failed for triton:8001", UnreachableError),
        ("StatusCode.NOT_FOUND", "Request for unknown model: 'parakeet_asr' is not found", UnreachableError),
        ("StatusCode.UNAVAILABLE", "Stream removed (Socket closed)", LostError),
        ("StatusCode.UNAVAILABLE", "recvmsg:Connection reset by peer", LostError),
        ("StatusCode.UNAVAILABLE", "GOAWAY received", LostError),
        ("StatusCode.CANCELLED", "CANCELLED", LostError),
        ("StatusCode.INTERNAL", "Stub process 'parakeet_asr_0_1' is not healthy.", LostError),
    ],
)
def test_foreseen_failures_have_a_public_error(status: str, message: str, kind: type[Exception]) -> None:
    assert type(known_failure(InferenceServerException(message, status))) is kind


def test_a_bad_utterance_keeps_its_reason_and_nothing_else() -> None:
    error = known_failure(InferenceServerException(f"x {BAD_UTTERANCE}too short\nTraceback", "StatusCode.INTERNAL"))
    assert str(error) == "too short"


def test_phrases_at_fault_are_told_apart_from_audio() -> None:
    message = f"in request: {BAD_UTTERANCE}{HOTWORDS_FAULT}phrase 2 has a fault."
    error = known_failure(InferenceServerException(message, "StatusCode.INVALID_ARGUMENT"))
    assert type(error) is RequestError
    assert (str(error), error.param) == ("hotwords: phrase 2 has a fault.", "hotwords")


def test_other_failures_have_none() -> None:
    assert known_failure(InferenceServerException("CUDA error", "StatusCode.INTERNAL")) is None


@pytest.mark.anyio
async def test_without_a_server_nothing_hangs(unused_url: str) -> None:
    transcriber = TritonTranscriber(unused_url)
    assert not await transcriber.live(timeout_s=1)
    assert not await transcriber.ready(timeout_s=1)
    with pytest.raises(UnreachableError):
        await transcriber.transcribe(torch.zeros(16_000), timeout_s=5)
    await transcriber.close()


class CountingTriton(service_pb2_grpc.GRPCInferenceServiceServicer):
    """A gRPC server on a port of its own that counts how often it is asked whether it is live."""

    def __init__(self) -> None:
        self.asked = 0
        self.server = grpc.aio.server()
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self.server)

    async def ServerLive(self, request: object, context: object) -> service_pb2.ServerLiveResponse:  # noqa: N802
        self.asked += 1
        return service_pb2.ServerLiveResponse(live=True)


@pytest.mark.anyio
async def test_requests_take_turns_among_the_servers_that_a_name_stands_for() -> None:
    servers = [CountingTriton() for _ in range(3)]
    for server in servers[:2]:  # the third is known, too, but does not answer
        await server.server.start()
    transcriber = TritonTranscriber("ipv4:" + ",".join(f"127.0.0.1:{server.port}" for server in servers))
    assert all([await transcriber.live(timeout_s=5) for _ in range(20)])
    assert all(server.asked >= 5 for server in servers[:2])
    await transcriber.close()
    for server in servers[:2]:
        await server.server.stop(None)
