"""The recogniser: one loaded model, driven directly, without NeMo's `transcribe()`, its data loaders and locks."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from parakeet_mps.contract import MAX_PIECE_S, PREFERRED_BATCH_SIZES, SAMPLE_RATE_HZ, Recognition
from parakeet_mps.engine.batching import group_by_length
from parakeet_mps.engine.decoding import HypothesisReader
from parakeet_mps.engine.graphs import Capture, CudaCapture
from parakeet_mps.engine.groundwork import Groundwork, lay_groundwork
from parakeet_mps.engine.hypotheses import Hypothesis
from parakeet_mps.engine.loading import place_model, read_model
from parakeet_mps.engine.pipeline import Passed, Pipeline, say_nothing
from parakeet_mps.engine.unpacking import unpacked
from parakeet_mps.engine.utterance import UtteranceError, find_fault

WARM_UP_S = ((1.0, 15.0),)
"""Durations of the batches recognised before the first request, so that it pays for no lazy initialisation."""

UNCAPTURED_WARM_UP_S = (
    *((seconds,) for seconds in (5.0, 15.0, 30.0, 45.0, 60.0)),
    *((15.0,) * n for n in PREFERRED_BATCH_SIZES),
)
"""The same on CUDA without graphs of the encoder, whose capture would have run it in every shape."""


class Heard(NamedTuple):
    """An utterance (float32 [samples] at 16 kHz) and what the device made of it."""

    utterance: torch.Tensor
    hypothesis: Hypothesis


class Recognizer:
    """A loaded recogniser of utterances of at most `max_samples`.

    To recognise is to hear, which is the device's part, and to read what was heard, which is the host's. Not
    thread-safe: one call at a time; but one thread may read while another hears.

    The other arguments are `Pipeline`'s: what it computes with, and how.
    """

    def __init__(
        self,
        model: Any,
        max_samples: int,
        groundwork: Groundwork | None = None,
        *,
        capture: Capture | None = None,
        stream: torch.cuda.Stream | None = None,
        passed: Passed = say_nothing,
    ) -> None:
        self._max_samples = max_samples
        groundwork = groundwork or Groundwork()
        self._counters = groundwork.counters
        frame_s = model.cfg.preprocessor.window_stride * model.encoder.subsampling_factor
        self._reader = HypothesisReader(model.decoding, frame_s)
        self.pipeline = Pipeline(model, max_samples, groundwork, capture, stream, passed)

    @classmethod
    def load(cls, path: Path, device: str | None = None, *, threads: int | None = None) -> Recognizer:
        """Load the `.nemo` file `path` to `device` (default: CUDA where there is one); see `start`.

        `threads` bounds the CPU threads of this process. Raises `CheckpointError` for another kind of model.
        """
        if threads:
            torch.set_num_threads(threads)
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        with unpacked(path) as folder:
            model = read_model(path, folder)
        return cls.start(model, lay_groundwork(model, place))

    @classmethod
    def start(cls, model: Any, groundwork: Groundwork, passed: Passed = say_nothing) -> Recognizer:
        """Return the recogniser of a model that was read, with its `groundwork`, warmed up and frozen.

        `passed` hears of each phase.
        """
        samples, place = MAX_PIECE_S * SAMPLE_RATE_HZ, groundwork.device
        place_model(model, place)
        passed("placing")
        if place.type == "cuda":
            stream = torch.cuda.Stream(place)  # type: ignore[no-untyped-call]
            recognizer = cls(model, samples, groundwork, capture=CudaCapture(stream), stream=stream, passed=passed)
        else:
            recognizer = cls(model, samples, groundwork, passed=passed)
        recognizer._warm_up()
        passed("warm-up")
        # What is loaded stays for the life of the process: the collector need not walk through it again.
        gc.collect()
        gc.freeze()
        return recognizer

    def recognize(
        self, utterances: Sequence[torch.Tensor], hotwords: Sequence[Sequence[str]] | None = None
    ) -> list[Recognition | UtteranceError]:
        """Return what is said in each utterance, in the order given: `hear`, and `read`."""
        outcomes = self.hear(utterances, hotwords)
        return [self.read(outcome) if isinstance(outcome, Heard) else outcome for outcome in outcomes]

    def hear(
        self, utterances: Sequence[torch.Tensor], hotwords: Sequence[Sequence[str]] | None = None
    ) -> list[Heard | UtteranceError]:
        """Return what is heard in each utterance (float32 [samples] at 16 kHz), in the order given.

        `hotwords` gives each utterance's phrases to boost (see `parakeet_mps.hotwords`); they change no other's result.
        An utterance that cannot be recognised yields its `UtteranceError` and does not touch the others.
        """
        phrases = hotwords or [()] * len(utterances)
        results: dict[int, Heard | UtteranceError] = {}
        for index, (utterance, texts) in enumerate(zip(utterances, phrases, strict=True)):
            if fault := find_fault(utterance, self._max_samples) or (texts and self.pipeline.find_fault(texts)):
                results[index] = fault
        good = [index for index in range(len(utterances)) if index not in results]
        for group in group_by_length([utterances[index].numel() for index in good], self.pipeline.most):
            members = [good[position] for position in group]
            heard = self._hear_group([utterances[i] for i in members], [phrases[i] for i in members])
            results.update(zip(members, heard, strict=True))
        return [results[index] for index in range(len(utterances))]

    def read(self, heard: Heard) -> Recognition:
        """Return what is said in an utterance."""
        return self._reader.read(heard.hypothesis, heard.utterance)

    def counters(self) -> dict[str, float]:
        """Return what was counted since the start; see `parakeet_mps.engine.counters.COUNTERS`."""
        return self._counters.read()

    def _hear_group(self, utterances: list[torch.Tensor], phrases: list[Sequence[str]]) -> list[Heard]:
        self._counters.add("batches")
        self._counters.add("utterances", len(utterances))
        return list(map(Heard, utterances, self.pipeline(utterances, phrases)))

    def _warm_up(self) -> None:
        uncaptured = self.pipeline.device.type == "cuda" and not self.pipeline.captured
        for durations in UNCAPTURED_WARM_UP_S if uncaptured else WARM_UP_S:
            samples = [min(int(seconds * SAMPLE_RATE_HZ), self._max_samples) for seconds in durations]
            self.recognize([torch.zeros(count) for count in samples])
        self.recognize([torch.zeros(SAMPLE_RATE_HZ)], [("warm up",)])
