"""How audio reaches Triton: through memory that both share, or inside the request.

Whether Triton sees this machine's shared memory is found out by asking it to: in another container it usually does not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext

import torch
from tritonclient.grpc import InferInput
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from parakeet_mps.contract import AUDIO_INPUT
from parakeet_mps.errors import UnavailableError
from parakeet_mps.gateway.audio_memory import AudioMemory
from parakeet_mps.run_folder import RunFolder
from parakeet_mps.settings import Settings

_log = logging.getLogger(__name__)

REGISTER_TIMEOUT_S = 5.0
UNREGISTER_TIMEOUT_S = 1.0
UNREGISTER_TRIES = 10
UNREGISTER_PAUSE_S = 0.1
FORGOTTEN = "unable to find shared memory region"
"""What Triton says, in lower case, of memory that it has not been told of, such as after its restart."""

_KNOWN_ALREADY = "StatusCode.ALREADY_EXISTS"
_NO_ANSWER = ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED", "StatusCode.CANCELLED")

Sent = Callable[[str, int], None]
"""Is told of every waveform that goes out: `shm` or `grpc`, and its bytes."""


class AudioTransport:
    """Carries waveforms to one Triton, inside the request when there is no `claim`, or no slot free.

    `claim` gives the shared memory when it is first needed. When Triton cannot read that, all audio goes inside
    requests from then on, or none at all if `insist`.
    """

    def __init__(
        self,
        claim: Callable[[], AudioMemory] | None = None,
        insist: bool = False,
        sent: Sent = lambda _transport, _size: None,
    ) -> None:
        self._claim = claim
        self._insist = insist
        self._sent = sent
        self._memory: AudioMemory | None = None
        self._registered = False
        self._registering = asyncio.Lock()

    @classmethod
    def of(cls, settings: Settings, sent: Sent) -> AudioTransport:
        """Return the one that the settings ask for."""
        if settings.audio_transport == "grpc":
            return cls(sent=sent)
        prefix = RunFolder(settings.run_path).audio_prefix
        insist = settings.audio_transport == "shm"
        return cls(lambda: AudioMemory.claim(prefix, settings.gateway_workers), insist, sent)

    @asynccontextmanager
    async def carry(self, waveform: torch.Tensor, triton: InferenceServerClient) -> AsyncIterator[InferInput]:
        """Yield the input that carries float32 [samples]; it is good for the length of the block.

        Raises `UnavailableError` when shared memory was insisted on and Triton cannot read it.
        """
        memory = await self._shared(triton)
        size = waveform.numel() * waveform.element_size()
        audio = InferInput(AUDIO_INPUT, [1, waveform.numel()], "FP32")
        with memory.lend(waveform) if memory else nullcontext() as offset:
            if memory and offset is not None:
                audio.set_shared_memory(memory.name, size, offset)
            else:
                audio.set_data_from_numpy(waveform.unsqueeze(0).numpy())
            self._sent("grpc" if offset is None else "shm", size)
            yield audio

    def forgotten(self) -> None:
        """Note that Triton does not know the memory, or not any more: it is told again."""
        self._registered = False

    def unshared(self) -> None:
        """Note that it did not help to tell: another Triton than the one that was told got the request."""
        if self._claim:
            self._registered = self._refused("several Tritons answer, and each would have to know the memory")

    async def withdraw(self, triton: InferenceServerClient) -> None:
        """Let Triton forget the memory, if it answers."""
        if self._memory is not None:
            await _unregister(self._memory.name, triton)

    def close(self) -> None:
        """Free the memory. No answer to a request that used it may be believed after that."""
        if self._memory is not None:
            self._memory.close()
        self._memory, self._claim = None, None

    async def _shared(self, triton: InferenceServerClient) -> AudioMemory | None:
        async with self._registering:
            if self._claim and not self._registered:
                self._registered = await self._register(self._claim, triton)
        return self._memory if self._claim and self._registered else None  # it may have been given up meanwhile

    async def _register(self, claim: Callable[[], AudioMemory], triton: InferenceServerClient) -> bool:
        """Tell Triton of the memory. False when it cannot be used, or not yet since Triton does not answer."""
        try:
            self._memory = self._memory or claim()
        except OSError as error:
            return self._refused(f"this machine gives no shared memory: {error}")
        name, size = self._memory.name, self._memory.size_bytes
        try:
            await triton.register_system_shared_memory(name, f"/{name}", size, client_timeout=REGISTER_TIMEOUT_S)
        except InferenceServerException as error:
            if error.status() == _KNOWN_ALREADY:
                return True
            if error.status() not in _NO_ANSWER:
                return self._refused(f"Triton does not read this machine's shared memory: {error.message()}")
            return False
        return True

    def _refused(self, why: str) -> bool:
        if self._insist:
            raise UnavailableError(f"AUDIO_TRANSPORT is shm, but {why}.")
        _log.info("%s; audio goes through gRPC", why)
        self._claim = None
        if self._memory and self._memory.idle:  # else its requests need it to the end
            self.close()
        return False


async def _unregister(name: str, triton: InferenceServerClient) -> None:
    """Let Triton forget the memory; if it will not, what it keeps is empty. It still reads for requests given up."""
    for _ in range(UNREGISTER_TRIES):
        try:
            await triton.unregister_system_shared_memory(name, client_timeout=UNREGISTER_TIMEOUT_S)
        except InferenceServerException as error:
            if error.status() in _NO_ANSWER:
                return
        else:
            return
        await asyncio.sleep(UNREGISTER_PAUSE_S)
