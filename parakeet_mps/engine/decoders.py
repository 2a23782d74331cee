"""Which decoder a recogniser uses: our kernels on CUDA where they work, else NeMo's computer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from parakeet_mps.engine.counters import Counters
from parakeet_mps.engine.graphs import Capture
from parakeet_mps.engine.hypotheses import Hypothesis
from parakeet_mps.engine.label_looping import LabelLooping
from parakeet_mps.engine.tdt import self_check
from parakeet_mps.engine.tdt.decoder import Steps, TdtDecoder
from parakeet_mps.engine.tdt.reference import ReferenceSteps
from parakeet_mps.engine.tdt.weights import Weights, find_obstacle, read_weights

log = logging.getLogger(__name__)

Decode = Callable[[torch.Tensor, torch.Tensor], list[Hypothesis]]
"""From (encoded [utterances, frames, channels], lengths int64 [utterances]) to each utterance's hypothesis."""


class SteppedDecoder:
    """Decodes what there is room for by a `TdtDecoder`, the rest by `fallback`, and counts that."""

    def __init__(self, tdt: TdtDecoder, fallback: Decode, counters: Counters) -> None:
        self._tdt, self._fallback, self._counters = tdt, fallback, counters

    def __call__(self, encoded: torch.Tensor, lengths: torch.Tensor) -> list[Hypothesis]:
        """See `Decode`."""
        if self._tdt.fits(encoded):
            return self._tdt(encoded, lengths)
        self._counters.add("decoder_graph_misses")
        return self._fallback(encoded, lengths)


def build_decoder(
    model: Any,
    like: torch.Tensor,
    shape: tuple[int, int],
    capture: Capture,
    counters: Counters,
    steps_of: Callable[[Weights], Steps],
) -> Decode:
    """Return the fastest decoder that works for batches of up to `shape` (utterances, frames), its graphs captured.

    `like` has the encoder's channels as its last dimension, its dtype and device; `steps_of` makes fast steps. NeMo's
    computer gets graphs only when it is the one that is used.
    """
    looping = LabelLooping(model.decoding.decoding.decoding_computer, counters)
    reason = find_obstacle(model)
    if reason is None:
        try:
            tdt = _build_tdt(read_weights(model, like.dtype), like, shape, capture, steps_of)
            return SteppedDecoder(tdt, looping, counters)
        except Exception as error:  # noqa: BLE001 - a compiler's, a driver's: there is another decoder
            counters.add("self_test_failed")
            reason = f"{type(error).__name__}: {error}"
    log.warning("NeMo's decoder is used: %s", reason)
    looping.fix(*shape, like)
    return looping


def _build_tdt(
    weights: Weights, like: torch.Tensor, shape: tuple[int, int], capture: Capture, steps_of: Callable[[Weights], Steps]
) -> TdtDecoder:
    """Return a captured decoder. Raises `ArithmeticError` when it does not do what the plain steps do."""
    steps = steps_of(weights)
    if difference := self_check.find_difference(weights, steps, ReferenceSteps(weights)):
        raise ArithmeticError(f"its kernels compute other {difference}")
    captured = TdtDecoder(weights, steps, *shape, capture)
    called = TdtDecoder(weights, steps, 2, 64, lambda work: work)
    if fault := self_check.find_capture_fault(captured, called, like):
        raise ArithmeticError(fault)
    return captured


def make_steps(weights: Weights) -> Steps:
    """Return the steps in Triton's language on CUDA, plain ones elsewhere.

    Raises `ImportError` where PyTorch came without Triton's compiler.
    """
    if weights.join.device.type != "cuda":
        return ReferenceSteps(weights)
    from parakeet_mps.engine.tdt.kernels import KernelSteps

    return KernelSteps(weights)
