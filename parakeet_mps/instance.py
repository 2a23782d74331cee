"""One recogniser in its process: loaded when it is its turn, it hears batches, reads them and has them answered.

A batch is read and answered from another thread while the next one is heard: reading is the host's work, some 2 ms an
utterance, for which the GPU would otherwise wait. Nothing here knows Triton.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from parakeet_mps.after_work import AfterWork
from parakeet_mps.contract import BAD_UTTERANCE
from parakeet_mps.engine.groundwork import lay_groundwork
from parakeet_mps.engine.loading import read_model
from parakeet_mps.engine.pipeline import Passed
from parakeet_mps.engine.recognizer import Heard, Recognizer
from parakeet_mps.engine.unpacking import unpack_once
from parakeet_mps.engine.utterance import UtteranceError
from parakeet_mps.file_lock import turn
from parakeet_mps.heartbeat import Heartbeat
from parakeet_mps.partition import check_partition

LOG = logging.getLogger(__name__)

THREAD_SWITCH_S = 0.0002
"""Longest that the thread that feeds the device waits for the one that reads. Python's own 5 ms are a batch's tenth."""


@dataclass(frozen=True)
class Refusal:
    """Why an utterance has no recognition, and whether the utterance itself is to blame."""

    reason: str
    bad_utterance: bool = False


FAILED = Refusal("recognition failed; see the log")
UNHEALTHY = Refusal("the recogniser is not healthy")

Answer = Callable[[bytes | Refusal], None]
"""Sends one utterance's recognition, as a document of `contract.Recognition`, or why there is none."""

Outcome = Heard | Exception
TellBatch = Callable[[int, float], None]
"""Is told of each batch how many utterances it had, and for how many seconds the recogniser was at work on it."""


def load_recognizer(settings: Mapping[str, str], passed: Passed) -> Recognizer:
    """Load what `settings` (of `model_config.model_parameters`) describe; `passed` hears of each phase.

    What takes none of the GPU's memory is done at once, the rest when it is this process's turn. Raises
    `PartitionError`, `CheckpointError`, and what CUDA raises.
    """
    device, path = settings["device"], Path(settings["model_path"])
    if device == "cuda":
        check_partition(settings, torch.cuda.get_device_properties(0).multi_processor_count)
    torch.set_num_threads(int(settings["torch_threads"]))
    sys.setswitchinterval(THREAD_SWITCH_S)
    passed("imports")
    model = read_model(path, unpack_once(path, Path(settings["unpacked"])))
    passed("reading")
    groundwork = lay_groundwork(model, torch.device(device))
    passed("groundwork")
    with turn(settings["load_lock"]):  # from here on memory peaks, of which all take from one GPU
        passed("waiting")
        return Recognizer.start(model, groundwork, passed)


class Instance:
    """A loaded recogniser at work, whose life `heartbeat` shows."""

    def __init__(self, recognizer: Recognizer, heartbeat: Heartbeat, tell_batch: TellBatch) -> None:
        self._recognizer, self._heartbeat, self._tell_batch = recognizer, heartbeat, tell_batch
        self._after_work = AfterWork(heartbeat.busy)

    def recognise(
        self, utterances: Sequence[torch.Tensor], phrases: Sequence[Sequence[str]], answers: Sequence[Answer]
    ) -> None:
        """Hear a batch of utterances (float32 [samples] at 16 kHz), given the phrases to boost in each.

        Return when it is heard. Each of `answers` is called from another thread, whatever becomes of the others: once,
        and with a refusal when that fails.
        """
        with self._heartbeat.busy():
            began = time.monotonic()
            outcomes = self._hear(utterances, phrases)
            self._after_work.put(partial(self._answer, answers, outcomes, time.monotonic() - began))

    def stop(self) -> None:
        """Answer what was heard, and stop the heartbeat."""
        self._after_work.stop()
        self._heartbeat.stop()

    def _hear(self, utterances: Sequence[torch.Tensor], phrases: Sequence[Sequence[str]]) -> Sequence[Outcome]:
        try:
            return self._recognizer.hear(utterances, phrases)
        except Exception as error:  # a batch must not fail because of one of its members
            if not self._heartbeat.check() or len(utterances) == 1:
                LOG.exception("recognition failed")
                return [error] * len(utterances)
        return [outcome for one, its in zip(utterances, phrases, strict=True) for outcome in self._hear([one], [its])]

    def _answer(self, answers: Sequence[Answer], outcomes: Sequence[Outcome], busy_s: float) -> None:
        for answer, outcome in zip(answers, outcomes, strict=True):
            try:
                answer(self._read(outcome))
            except Exception:  # the others of its batch must still be answered
                LOG.exception("answering failed")
                with contextlib.suppress(Exception):  # an answer that was begun cannot be followed by another
                    answer(FAILED)
        self._tell_batch(len(outcomes), busy_s)

    def _read(self, outcome: Outcome) -> bytes | Refusal:
        if isinstance(outcome, UtteranceError):
            return Refusal(f"{BAD_UTTERANCE}{outcome}", bad_utterance=True)
        if isinstance(outcome, Heard):
            try:
                return self._recognizer.read(outcome).to_json()
            except Exception:  # it must be answered all the same
                LOG.exception("reading failed")
        return FAILED if self._heartbeat.healthy else UNHEALTHY
