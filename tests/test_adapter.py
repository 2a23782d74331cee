"""Triton's adapter answers every request of a batch once, whatever becomes of the others. Triton's module is a fake."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from parakeet_mps import contract
from parakeet_mps.checkpoint import ROOT
from parakeet_mps.contract import Recognition
from parakeet_mps.engine.utterance import UtteranceError


class Heard(SimpleNamespace):
    said: str


class Sender:
    def __init__(self, broken: bool = False) -> None:
        self.sent: list[Any] = []
        self._broken = broken

    def send(self, response: Any, flags: int) -> None:
        assert flags == 1
        if self._broken:
            raise RuntimeError("the request is gone")
        self.sent.append(response)

    def get_response_sender(self) -> Sender:
        return self


class Recognizer:
    """Hears the number of samples, and cannot hear three, refuse fewer than two, nor read five."""

    def hear(self, utterances: list[torch.Tensor], hotwords: list[Any]) -> list[Any]:
        if any(len(utterance) == 3 for utterance in utterances):
            raise RuntimeError("CUDA out of memory")
        return [Heard(said=str(len(u))) if len(u) > 1 else UtteranceError("too short") for u in utterances]

    def read(self, heard: Heard) -> Recognition:
        if heard.said == "5":
            raise ValueError("a vocabulary without such an entry")
        return Recognition(heard.said, 1.0)


def fake_pb_utils() -> ModuleType:
    module = ModuleType("triton_python_backend_utils")
    module.TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1  # type: ignore[attr-defined]

    class TritonError(SimpleNamespace):
        INVALID_ARG = 3

        def __init__(self, message: str, code: int = 0) -> None:
            super().__init__(message=message, code=code)

    class Tensor:
        @staticmethod
        def from_dlpack(name: str, document: torch.Tensor) -> str:
            assert name == contract.RECOGNITION_OUTPUT
            return Recognition.from_json(bytes(document.tolist())).text

    def response(outputs: tuple[str, ...] | list[str] = (), error: Any = None) -> Any:
        return (error.message, error.code) if error else outputs[0]

    module.TritonError, module.Tensor, module.InferenceResponse = TritonError, Tensor, response  # type: ignore[attr-defined]
    return module


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", fake_pb_utils())
    path = ROOT / "triton_model_repo" / contract.ASR_MODEL / "1" / "model.py"
    spec = importlib.util.spec_from_file_location("adapter", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel()
    model._contract, model._heard, model._utterance_error = contract, Heard, UtteranceError
    model._recognizer = Recognizer()
    model._heartbeat = SimpleNamespace(busy=contextlib.nullcontext, check=lambda: True, healthy=True)
    model._metrics = SimpleNamespace(told=[], tell_batch=lambda size, _: model._metrics.told.append(size))
    model._after_work = SimpleNamespace(put=lambda job: job())
    model._utterance = lambda sender: torch.zeros(sender.samples)
    model._hotwords = lambda sender: ()
    return model


def batch(*samples: int, broken: int | None = None) -> list[Any]:
    senders = [Sender(broken=number == broken) for number in range(len(samples))]
    for sender, count in zip(senders, samples, strict=True):
        sender.samples = count  # type: ignore[attr-defined]
    return senders


def test_each_gets_what_was_heard_of_it_or_its_own_error(adapter: Any) -> None:
    senders = batch(2, 1, 4)
    assert adapter.execute(senders) is None
    assert [sender.sent for sender in senders] == [["2"], [("bad utterance: too short", 3)], ["4"]]
    assert adapter._metrics.told == [3]


def test_what_fails_a_batch_fails_only_who_fails_alone(adapter: Any) -> None:
    senders = batch(2, 3, 4)
    adapter.execute(senders)
    assert [sender.sent for sender in senders] == [["2"], [("recognition failed; see the log", 0)], ["4"]]


def test_what_cannot_be_read_is_refused_and_the_others_answered(adapter: Any) -> None:
    senders = batch(5, 4)
    adapter.execute(senders)
    assert [sender.sent for sender in senders] == [[("recognition failed; see the log", 0)], ["4"]]


def test_a_request_that_is_gone_leaves_the_others_their_answers(adapter: Any) -> None:
    senders = batch(2, 4, broken=0)
    adapter.execute(senders)
    assert [sender.sent for sender in senders] == [[], ["4"]]
    assert adapter._metrics.told == [2]


def test_once_the_device_has_failed_all_are_told_so_and_none_is_tried_alone(adapter: Any) -> None:
    adapter._heartbeat.check = lambda: False
    adapter._heartbeat.healthy = False
    senders = batch(2, 3)
    adapter.execute(senders)
    assert [sender.sent for sender in senders] == [[("the recogniser is not healthy", 0)]] * 2
