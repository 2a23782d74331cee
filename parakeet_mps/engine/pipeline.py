"""Waveforms -> hypotheses by the fastest ways that work for a model on its device, chosen and tested at the start."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from parakeet_mps.contract import SAMPLE_RATE_HZ
from parakeet_mps.engine.acoustics import (
    Acoustics,
    EagerAcoustics,
    Frontend,
    NemoAcoustics,
    find_difference,
    find_obstacle,
    longest_frames,
)
from parakeet_mps.engine.batching import MOST
from parakeet_mps.engine.boosting import Booster
from parakeet_mps.engine.buckets import BATCHES, make_grid
from parakeet_mps.engine.decoders import Decode, build_decoder, make_steps
from parakeet_mps.engine.graphs import Capture, GraphedAcoustics
from parakeet_mps.engine.groundwork import Groundwork
from parakeet_mps.engine.hypotheses import Hypothesis
from parakeet_mps.engine.label_looping import LabelLooping
from parakeet_mps.engine.self_test import find_change

log = logging.getLogger(__name__)

Passed = Callable[[str], None]
"""Is called with the name of each phase of loading when it has ended."""


def say_nothing(_: str) -> None:
    """Be called for nothing."""


class Pipeline:
    """The device's half of a recogniser. Its batches have at most `most` utterances of at most `max_samples`.

    Weights are held in the `groundwork`'s dtype; where our encoder is used, the `model` gives up its own. `capture`
    makes CUDA graphs, or what stands for them; without it everything runs eagerly. All work goes to `stream`. `passed`
    hears of each phase of loading.
    """

    def __init__(
        self,
        model: Any,
        max_samples: int,
        groundwork: Groundwork,
        capture: Capture | None,
        stream: torch.cuda.Stream | None,
        passed: Passed = say_nothing,
    ) -> None:
        self._counters, self._passed = groundwork.counters, passed
        self.device, dtype = groundwork.device, groundwork.dtype
        self.stream = stream
        self.most = MOST
        self._longest_s = max_samples / SAMPLE_RATE_HZ
        channels, frames = model.encoder.d_model, longest_frames(model, max_samples)
        self.acoustics: Acoustics = self._build_acoustics(model, frames, groundwork)
        model.decoder.to(dtype)
        model.joint.to(dtype)
        self._booster = Booster(model.decoding, model.tokenizer, self._counters)
        self.decoder: Decode = LabelLooping(model.decoding.decoding.decoding_computer, self._counters)
        self.find_fault = self._booster.find_fault
        passed("encoder")
        if capture is not None:
            self._capture(model, frames, torch.empty(channels, dtype=dtype, device=self.device), capture)

    @property
    def captured(self) -> bool:
        """Whether the encoder runs from CUDA graphs, or what stands for them."""
        return isinstance(self.acoustics, GraphedAcoustics)

    @torch.inference_mode()
    def __call__(
        self, utterances: Sequence[torch.Tensor], phrases: Sequence[Sequence[str]] = (), *, via: Acoustics | None = None
    ) -> list[Hypothesis]:
        """Return the hypotheses of utterances (float32 [samples] at 16 kHz, on the CPU), given each one's phrases.

        `via` encodes instead of what was chosen.
        """
        with torch.cuda.stream(self.stream):
            encoded, lengths = (via or self.acoustics)(utterances)
            if any(phrases):
                return self._booster.decode(encoded, lengths, phrases)
            return self.decoder(encoded, lengths)

    def _build_acoustics(self, model: Any, frames: int, groundwork: Groundwork) -> Acoustics:
        reason = find_obstacle(model)
        if reason is None:
            frontend = Frontend(model, frames, groundwork.dtype, groundwork.operations)
            reason = find_difference(frontend, model, self.device)
            if reason is None:
                model.encoder = None
                return EagerAcoustics(frontend, self.device)
            self._counters.add("self_test_failed")
        log.warning("NeMo's own encoder is used, without CUDA graphs: %s", reason)
        return NemoAcoustics(model, self.device, groundwork.dtype)

    def _capture(self, model: Any, frames: int, like: torch.Tensor, capture: Capture) -> None:
        """Use captured decoders and, if they can be made and the self-test finds them right, captured acoustics."""
        self.most = max(BATCHES)
        gc.freeze()  # see `lay_groundwork`
        with torch.cuda.stream(self.stream):
            self.decoder = build_decoder(model, like, (self.most, frames), capture, self._counters, make_steps)
            self._passed("decoder")
            self._booster.fix(self.most, frames, like)
            self._passed("boosting")
        if isinstance(self.acoustics, EagerAcoustics):
            self._capture_acoustics(self.acoustics, frames, capture)

    def _capture_acoustics(self, eager: EagerAcoustics, frames: int, capture: Capture) -> None:
        grid = make_grid(frames)
        try:
            graphed = GraphedAcoustics(eager, grid, self.device, capture, self._counters)
        except RuntimeError as error:  # of CUDA; its memory may not suffice, its libraries may refuse to be captured
            self._give_up_graphs(str(error))
            return
        self._passed("graphs")
        change = find_change(
            lambda batch: self(batch, via=graphed.replayed),
            lambda batch: self(batch, via=graphed.eagerly),
            self._longest_s,
        )
        self._passed("self-test")
        if change:
            self._give_up_graphs(change)
        else:
            self.acoustics = graphed

    def _give_up_graphs(self, reason: str) -> None:
        log.warning("CUDA graphs of the encoder are not used: %s", reason)
        self._counters.add("self_test_failed")
