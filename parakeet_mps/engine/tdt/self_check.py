"""Do two kinds of steps do the same, with this model's weights on this device? Asked before kernels are used."""

from __future__ import annotations

import copy

import torch

from parakeet_mps.engine.tdt.decoder import Steps, TdtDecoder
from parakeet_mps.engine.tdt.state import State
from parakeet_mps.engine.tdt.weights import Weights

UTTERANCES = 20
FRAMES = 9
STEPS = 12

_INTEGERS = ("time", "count", "last_time", "last_count", "label", "found")
_NUMBERS = ("predicted", "hidden", "cell")
_FOUND = ("tokens", "times", "spans", "confidences")


@torch.inference_mode()
def find_difference(weights: Weights, kernels: Steps, plain: Steps, steps: int = STEPS) -> str | None:
    """Return what `kernels` do otherwise than `plain`, or `None`, over so many steps of a random batch.

    Each part of each step starts from the same state: once a rounding has decided otherwise, all that follows differs.
    """
    tolerance = 4 * torch.finfo(weights.join.dtype).eps
    theirs = _random_state(weights)
    for number in range(steps):
        ours = copy.deepcopy(theirs)
        plain.join(theirs)
        kernels.join(ours)
        if not _close(ours.logits, theirs.logits, tolerance):
            return "logits"
        ours.logits.copy_(theirs.logits)
        plain.decide(theirs)
        kernels.decide(ours)
        plain.predict(theirs, number % 2)
        kernels.predict(ours, number % 2)
        if differences := _differences(ours, theirs, tolerance):
            return ", ".join(differences)
    return None


def _random_state(weights: Weights) -> State:
    state = State(weights, UTTERANCES, FRAMES)
    generator = torch.Generator().manual_seed(0)
    for tensor in (state.projected, state.predicted, state.hidden, state.cell):
        tensor.copy_(torch.randn(tensor.shape, generator=generator))
    state.lengths[:UTTERANCES] = (torch.arange(UTTERANCES) % (FRAMES + 1)).to(state.lengths)
    state.last_time.fill_(-1)
    return state


def _differences(ours: State, theirs: State, tolerance: float) -> list[str]:
    """Name what differs. What was written where no token was found does not count."""
    wrong = [name for name in _INTEGERS if not torch.equal(getattr(ours, name), getattr(theirs, name))]
    wrong += [name for name in _NUMBERS if not _close(getattr(ours, name), getattr(theirs, name), tolerance)]
    found = torch.arange(theirs.tokens.shape[1], device=theirs.count.device) < theirs.count[:, None]
    return wrong + [
        name for name in _FOUND if not _close(getattr(ours, name)[found], getattr(theirs, name)[found], 1e-4)
    ]


def _close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float) -> bool:
    """Whether no difference is larger than `tolerance` of the largest value; 1e-4 of it for fp32."""
    scale = float(theirs.abs().max()) if theirs.numel() else 0.0
    return bool(torch.allclose(ours.float(), theirs.float(), rtol=0.0, atol=max(tolerance, 1e-4) * max(scale, 1.0)))


@torch.inference_mode()
def find_capture_fault(captured: TdtDecoder, called: TdtDecoder, like: torch.Tensor) -> str | None:
    """Return how a decoder with captured steps differs from one that calls the same steps, or `None`.

    `like` has the encoder's channels as its last dimension, its dtype and device.
    """
    encoded = torch.randn(2, 40, like.shape[-1], generator=torch.Generator().manual_seed(0)).to(like)
    lengths = torch.tensor([40, 23], device=like.device)
    if captured(encoded, lengths) != called(encoded, lengths):
        return "captured steps decode otherwise"
    return None if captured.at_end else "captured steps do not come to an end"
