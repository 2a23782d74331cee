"""Every utterance of a batch is answered once, whatever becomes of the others."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pytest
import torch

from parakeet_mps.contract import Recognition
from parakeet_mps.engine.hypotheses import Hypothesis
from parakeet_mps.engine.recognizer import Heard
from parakeet_mps.engine.utterance import UtteranceError
from parakeet_mps.instance import FAILED, UNHEALTHY, Instance, Refusal

NOTHING = Hypothesis([], [], [], [])


class Recognizer:
    """Makes of an utterance the number of its samples. It fails on three, refuses fewer than two, cannot read five."""

    def hear(self, utterances: Sequence[torch.Tensor], phrases: object) -> list[Heard | UtteranceError]:
        if any(len(utterance) == 3 for utterance in utterances):
            raise RuntimeError("CUDA out of memory")
        return [Heard(u, NOTHING) if len(u) > 1 else UtteranceError("too short") for u in utterances]

    def read(self, heard: Heard) -> Recognition:
        if len(heard.utterance) == 5:
            raise ValueError("a vocabulary without such an entry")
        return Recognition(str(len(heard.utterance)), 1.0)


class Heartbeat:
    """A device that has failed or not."""

    def __init__(self, healthy: bool = True) -> None:
        self.healthy = healthy

    def check(self) -> bool:
        return self.healthy

    def busy(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def stop(self) -> None:
        """There is nothing to stop."""


class Batch:
    """Takes the answers to utterances of so many samples; the one `gone` cannot be answered, or only be refused."""

    def __init__(self, *samples: int, gone: int | None = None, refusable: bool = False) -> None:
        self._refusable = refusable
        self.utterances = [torch.zeros(count) for count in samples]
        self.phrases = [()] * len(samples)
        self.answers = [self._taker(index, gone) for index in range(len(samples))]
        self.answered: list[list[str | Refusal]] = [[] for _ in samples]

    def _taker(self, index: int, gone: int | None) -> object:
        def take(answer: bytes | Refusal) -> None:
            if index == gone and not (self._refusable and isinstance(answer, Refusal)):
                raise RuntimeError("the request is gone")
            self.answered[index].append(answer if isinstance(answer, Refusal) else Recognition.from_json(answer).text)

        return take


class Recogniser:
    """An instance of fakes, and the sizes of the batches that it told of."""

    def __init__(self, healthy: bool = True) -> None:
        self.told: list[int] = []
        self._instance = Instance(Recognizer(), Heartbeat(healthy), lambda size, _: self.told.append(size))

    def answered(self, batch: Batch) -> list[list[str | Refusal]]:
        """Return what became of a batch when all is done."""
        self._instance.recognise(batch.utterances, batch.phrases, batch.answers)
        self._instance.stop()
        return batch.answered


@pytest.fixture
def recogniser() -> Recogniser:
    return Recogniser()


def test_each_gets_what_was_heard_of_it_or_its_own_refusal(recogniser: Recogniser) -> None:
    refused = Refusal("bad utterance: too short", bad_utterance=True)
    assert recogniser.answered(Batch(2, 1, 4)) == [["2"], [refused], ["4"]]
    assert recogniser.told == [3]


def test_what_fails_a_batch_fails_only_who_fails_alone(recogniser: Recogniser) -> None:
    assert recogniser.answered(Batch(2, 3, 4)) == [["2"], [FAILED], ["4"]]


def test_what_cannot_be_read_is_refused_and_the_others_answered(recogniser: Recogniser) -> None:
    assert recogniser.answered(Batch(5, 4)) == [[FAILED], ["4"]]


def test_a_request_that_is_gone_leaves_the_others_their_answers(recogniser: Recogniser) -> None:
    assert recogniser.answered(Batch(2, 4, gone=0)) == [[], ["4"]]
    assert recogniser.told == [2]


def test_a_request_whose_answer_cannot_be_sent_is_refused(recogniser: Recogniser) -> None:
    assert recogniser.answered(Batch(2, 4, gone=0, refusable=True)) == [[FAILED], ["4"]]


def test_once_the_device_has_failed_all_are_told_so_and_none_is_tried_alone() -> None:
    assert Recogniser(healthy=False).answered(Batch(2, 3)) == [[UNHEALTHY]] * 2
