"""The recogniser: one loaded model, driven directly, without NeMo's `transcribe()`, its data loaders and locks."""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from parakeet_mps.contract import MAX_PIECE_S, SAMPLE_RATE_HZ, Recognition
from parakeet_mps.engine.acoustics import (
    Acoustics,
    EagerAcoustics,
    Frontend,
    NemoAcoustics,
    find_obstacle,
    longest_frames,
)
from parakeet_mps.engine.batching import MOST, group_by_length
from parakeet_mps.engine.boosting import Booster
from parakeet_mps.engine.buckets import BATCHES, Bucket, make_grid
from parakeet_mps.engine.counters import Counters
from parakeet_mps.engine.decoders import Decode, build_decoder, make_steps
from parakeet_mps.engine.decoding import HypothesisReader
from parakeet_mps.engine.graphs import Capture, CudaCapture, GraphedAcoustics
from parakeet_mps.engine.hypotheses import Hypothesis
from parakeet_mps.engine.label_looping import LabelLooping
from parakeet_mps.engine.loading import load_model
from parakeet_mps.engine.self_test import find_difference
from parakeet_mps.engine.utterance import UtteranceError, find_fault

GRAPH_MEMORY = 3 << 30
"""Bytes that what is computed inside CUDA graphs may take; enough for a batch of 16 of 60 s."""

WARM_UP_S = (1.0, 15.0)
"""Durations recognised before the first request, so that it pays for no lazy initialisation."""

log = logging.getLogger(__name__)


class Recognizer:
    """A loaded recogniser. Not thread-safe: one call at a time.

    Utterances are at most `max_samples` long; weights are held in `dtype`, for which the `model` gives up its encoder.
    `capture` makes CUDA graphs, or what stands for them; without it everything runs eagerly. All work goes to `stream`.
    """

    def __init__(
        self,
        model: Any,
        max_samples: int,
        *,
        dtype: torch.dtype = torch.float32,
        capture: Capture | None = None,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        self._max_samples = max_samples
        self._stream = stream
        self._counters = Counters()
        self._device = next(model.joint.parameters()).device
        frame_s = model.cfg.preprocessor.window_stride * model.encoder.subsampling_factor
        self._reader = HypothesisReader(model.decoding, frame_s)
        self._booster = Booster(model.decoding, model.tokenizer, self._counters)
        self._decoder: Decode = LabelLooping(model.decoding.decoding.decoding_computer, self._counters)
        self._most = MOST
        self._acoustics = self._build_acoustics(model, dtype, capture)

    @classmethod
    def load(cls, path: str | Path, device: str | None = None, *, threads: int | None = None) -> Recognizer:
        """Load the `.nemo` file `path` to `device` (default: CUDA where there is one), warmed up and frozen.

        Weights are bf16 on CUDA, fp32 elsewhere. `threads` bounds the CPU threads of this process. Raises
        `CheckpointError` for another kind of model.
        """
        if threads:
            torch.set_num_threads(threads)
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        model, samples = load_model(path, place), MAX_PIECE_S * SAMPLE_RATE_HZ
        if place.type == "cuda":
            stream = torch.cuda.Stream(place)  # type: ignore[no-untyped-call]
            recognizer = cls(model, samples, dtype=torch.bfloat16, capture=CudaCapture(stream), stream=stream)
        else:
            recognizer = cls(model, samples)
        recognizer._warm_up()
        # What is loaded stays for the life of the process: the collector need not walk through it again.
        gc.collect()
        gc.freeze()
        return recognizer

    def recognize(
        self, utterances: Sequence[torch.Tensor], hotwords: Sequence[Sequence[str]] | None = None
    ) -> list[Recognition | UtteranceError]:
        """Return what is said in each utterance (float32 [samples] at 16 kHz), in the order given.

        `hotwords` gives each utterance's phrases to boost (see `parakeet_mps.hotwords`); they change no other's result.
        An utterance that cannot be recognised yields its `UtteranceError` and does not touch the others.
        """
        phrases = hotwords or [()] * len(utterances)
        results: dict[int, Recognition | UtteranceError] = {}
        for index, (utterance, texts) in enumerate(zip(utterances, phrases, strict=True)):
            if fault := find_fault(utterance, self._max_samples) or (texts and self._booster.find_fault(texts)):
                results[index] = fault
        good = [index for index in range(len(utterances)) if index not in results]
        for group in group_by_length([utterances[index].numel() for index in good], self._most):
            members = [good[position] for position in group]
            recognitions = self._recognize_group([utterances[i] for i in members], [phrases[i] for i in members])
            results.update(zip(members, recognitions, strict=True))
        return [results[index] for index in range(len(utterances))]

    def counters(self) -> dict[str, float]:
        """Return what was counted since the start; see `parakeet_mps.engine.counters.COUNTERS`."""
        return self._counters.read()

    def _recognize_group(self, utterances: list[torch.Tensor], phrases: list[Sequence[str]]) -> list[Recognition]:
        self._counters.add("batches")
        self._counters.add("utterances", len(utterances))
        hypotheses = self._decode(self._acoustics, utterances, phrases)
        return [
            self._reader.read(hypothesis, utterance)
            for hypothesis, utterance in zip(hypotheses, utterances, strict=True)
        ]

    @torch.inference_mode()
    def _decode(
        self, acoustics: Acoustics, utterances: Sequence[torch.Tensor], phrases: Sequence[Sequence[str]] = ()
    ) -> list[Hypothesis]:
        with torch.cuda.stream(self._stream):
            encoded, lengths = acoustics(utterances)
            if any(phrases):
                return self._booster.decode(encoded, lengths, phrases)
            return self._decoder(encoded, lengths)

    def _build_acoustics(self, model: Any, dtype: torch.dtype, capture: Capture | None) -> Acoustics:
        """Return the fastest way to encode that this model, device and `capture` allow; cast the decoder to `dtype`."""
        frames = longest_frames(model, self._max_samples)
        obstacle = find_obstacle(model)
        model.decoder.to(dtype)
        model.joint.to(dtype)
        if obstacle:
            log.warning("NeMo's own encoder is used, without CUDA graphs: %s", obstacle)
            return NemoAcoustics(model, self._device, dtype)
        frontend = Frontend(model, frames, dtype)
        model.encoder = None
        eager = EagerAcoustics(frontend, self._device)
        if capture is None:
            return eager
        grid, self._most = make_grid(frames, GRAPH_MEMORY), max(BATCHES)
        like = torch.empty(frontend.channels, dtype=dtype, device=self._device)
        with torch.cuda.stream(self._stream):
            self._decoder = build_decoder(model, like, (self._most, frames), capture, self._counters, make_steps)
            self._booster.fix(self._most, frames, like)
        return self._capture(frontend, grid, eager, capture)

    def _capture(self, frontend: Frontend, grid: Sequence[Bucket], eager: Acoustics, capture: Capture) -> Acoustics:
        """Return acoustics with a graph for every bucket, if they can be made and the self-test finds them right."""
        try:
            graphed = GraphedAcoustics(frontend, grid, self._device, capture, eager, self._counters)
        except RuntimeError as error:  # of CUDA; its memory may not suffice, its libraries may refuse to be captured
            return self._give_up_graphs(eager, str(error))
        difference = find_difference(
            lambda batch: self._decode(graphed.replayed, batch),
            lambda batch: self._decode(graphed.eagerly, batch),
            self._max_samples / SAMPLE_RATE_HZ,
        )
        return self._give_up_graphs(eager, difference) if difference else graphed

    def _give_up_graphs(self, eager: Acoustics, reason: str) -> Acoustics:
        log.warning("CUDA graphs of the encoder are not used: %s", reason)
        self._counters.add("self_test_failed")
        return eager

    def _warm_up(self) -> None:
        longest = self._max_samples / SAMPLE_RATE_HZ
        silence = [torch.zeros(int(min(seconds, longest) * SAMPLE_RATE_HZ)) for seconds in WARM_UP_S]
        self.recognize(silence)
        self.recognize(silence[:1], [("warm up",)])
