"""Phrase boosting in the recogniser: what it brings out, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import jiwer
import pytest
import torch

from parakeet_mps.audio import decode
from parakeet_mps.checkpoint import ROOT
from parakeet_mps.contract import HOTWORDS_FAULT, Recognition
from parakeet_mps.engine.utterance import UtteranceError
from parakeet_mps.hotwords import MAX_PHRASES, parse_hotwords
from parakeet_mps.settings import Settings
from recordings import speech

if TYPE_CHECKING:
    from parakeet_mps.engine.boosting import Booster
    from parakeet_mps.engine.recognizer import Recognizer

RARE = "no known allergies to advil"
OTHER = "i have been taking sepsis for two weeks"
DRUGS = """tramadol xarelto apixaban clopidogrel ramipril bisoprolol furosemide citalopram levothyroxine naproxen
    diclofenac rituximab methotrexate carbamazepine doxycycline ciprofloxacin salbutamol tamsulosin losartan digoxin"""


@pytest.fixture(autouse=True)
def only_the_demo_misses_these_words(checkpoint: Path) -> None:
    if checkpoint != ROOT / Settings().model:
        pytest.skip("these words are strange to the demo recogniser")


@pytest.fixture(scope="module")
def rare() -> torch.Tensor:
    return decode(speech(RARE), max_audio_s=60)


@pytest.fixture(scope="module")
def other() -> torch.Tensor:
    return decode(speech(OTHER), max_audio_s=60)


def heard(outcome: Recognition | UtteranceError) -> str:
    assert isinstance(outcome, Recognition)
    return outcome.text


def test_a_rare_word_comes_out_only_when_boosted(recognizer: Recognizer, rare: torch.Tensor) -> None:
    plain, boosted = recognizer.recognize([rare, rare], [(), ("advil",)])
    assert "advil" not in heard(plain)
    assert heard(boosted) == RARE


def test_a_boosted_word_has_times_and_confidence_like_any_other(recognizer: Recognizer, rare: torch.Tensor) -> None:
    (boosted,) = recognizer.recognize([rare], [("advil",)])
    assert isinstance(boosted, Recognition)
    assert [word.text for word in boosted.words] == RARE.split()
    assert all(0 <= word.start < word.end <= boosted.duration for word in boosted.words)
    assert all(0 <= word.confidence <= 1 for word in boosted.words)


def test_the_terms_of_a_prompt_are_boosted(recognizer: Recognizer, rare: torch.Tensor) -> None:
    hints = parse_hotwords([], "The patient is worried about reactions to Advil, a pain killer.")
    (boosted,) = recognizer.recognize([rare], [hints])
    assert heard(boosted) == RARE


@pytest.mark.parametrize("spelling", ["Advil", "ADVIL", "\u00c1dvil!", '"advil"', "advil\u00ae"])
def test_case_accents_and_marks_that_the_model_does_not_write_do_not_matter(
    spelling: str, recognizer: Recognizer, rare: torch.Tensor
) -> None:
    assert heard(recognizer.recognize([rare], [(spelling,)])[0]) == RARE


def test_each_utterance_of_a_batch_favours_its_own_phrases(
    recognizer: Recognizer, rare: torch.Tensor, other: torch.Tensor
) -> None:
    outcomes = recognizer.recognize([rare, other, rare, other], [("advil",), ("sepsis",), ("sepsis",), ("advil",)])
    own, foreign = outcomes[:2], outcomes[2:]
    assert [heard(outcome) for outcome in own] == [RARE, OTHER]
    assert all(word not in heard(outcome).split() for outcome in foreign for word in ("advil", "sepsis"))


def test_utterances_without_phrases_are_recognised_as_in_a_batch_without_any(
    recognizer: Recognizer, rare: torch.Tensor, clips: list[torch.Tensor]
) -> None:
    utterances = [rare, *clips[:15]]
    mixed = recognizer.recognize(utterances, [("advil",), *[()] * 15])
    assert heard(mixed[0]) == RARE
    assert mixed[1:] == recognizer.recognize(utterances)[1:]


def test_unrelated_phrases_hardly_change_what_is_heard(recognizer: Recognizer, clips: list[torch.Tensor]) -> None:
    plain = [heard(outcome) for outcome in recognizer.recognize(clips)]
    boosted = [heard(outcome) for outcome in recognizer.recognize(clips, [tuple(DRUGS.split())] * len(clips))]
    assert jiwer.wer(plain, boosted) <= 0.01


def test_phrases_are_not_heard_in_silence(recognizer: Recognizer) -> None:
    silence = [torch.zeros(48_000), torch.randn(48_000, generator=torch.Generator().manual_seed(1)) * 0.01]
    outcomes = recognizer.recognize(silence, [("advil", "sepsis")] * 2)
    assert [heard(outcome) for outcome in outcomes] == ["", ""]


@pytest.mark.parametrize(
    ("phrases", "reason"),
    [
        (("advil", "\u60a3\u8005"), "phrase 2 has characters that this model does not write"),
        (("advil :7",), "the weight 7"),
        (("word",) * (MAX_PHRASES + 1), "101 phrases"),
    ],
    ids=["foreign letters", "weight", "too many"],
)
def test_phrases_at_fault_are_that_request_s_error_alone(
    phrases: tuple[str, ...], reason: str, recognizer: Recognizer, rare: torch.Tensor
) -> None:
    good, bad = recognizer.recognize([rare, rare], [("advil",), phrases])
    assert heard(good) == RARE
    assert isinstance(bad, UtteranceError)
    assert str(bad).startswith(HOTWORDS_FAULT)
    assert reason in str(bad)


def test_what_the_model_cannot_write_of_a_prompt_is_left_out(recognizer: Recognizer, rare: torch.Tensor) -> None:
    prompt = "\u60a3\u8005, \u533b\u751f"
    plain, hinted = recognizer.recognize([rare, rare], [(), parse_hotwords([], prompt)])
    assert hinted == plain


class TestTrees:
    """Compiled phrases are kept for the next request, within a bound."""

    @pytest.fixture(scope="class")
    def model(self, checkpoint: Path) -> Any:
        from parakeet_mps.engine.loading import load_model

        return load_model(checkpoint, torch.device("cpu"))

    @pytest.fixture
    def booster(self, model: Any) -> Booster:
        from parakeet_mps.engine.boosting import Booster
        from parakeet_mps.engine.counters import Counters

        self.spell = model.decoding.decode_tokens_to_str_with_strip_punctuation
        return Booster(model.decoding, model.tokenizer, Counters())

    @pytest.fixture(scope="class")
    def encoded(self, model: Any, rare: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.inference_mode():
            features, lengths = model.preprocessor(input_signal=rare[None], length=torch.tensor([rare.numel()]))
            frames, lengths = model.encoder(audio_signal=features, length=lengths)
        return frames.transpose(1, 2), lengths

    def texts(
        self, booster: Booster, encoded: tuple[torch.Tensor, torch.Tensor], *phrases: tuple[str, ...]
    ) -> list[str]:
        frames, lengths = encoded
        with torch.inference_mode():
            decoded = booster.decode(frames.expand(len(phrases), -1, -1), lengths.expand(len(phrases)), phrases)
        return [self.spell(hypothesis.tokens) for hypothesis in decoded]

    def test_the_same_phrases_are_compiled_once(
        self, booster: Booster, encoded: tuple[torch.Tensor, torch.Tensor]
    ) -> None:
        for _ in range(3):
            assert self.texts(booster, encoded, ("advil",), ("advil",)) == [RARE, RARE]
        assert booster.size == 1

    def test_hundreds_of_sets_of_phrases_leave_few_behind_and_nothing_wrong(
        self, booster: Booster, encoded: tuple[torch.Tensor, torch.Tensor]
    ) -> None:
        from parakeet_mps.engine.boosting import CACHED_TREES

        plain = self.texts(booster, encoded, ())
        for number in range(3):
            strangers = [(f"{chr(97 + number)}{chr(97 + other // 26)}{chr(97 + other % 26)}",) for other in range(63)]
            assert self.texts(booster, encoded, (), *strangers)[:1] == plain
            assert booster.size == CACHED_TREES
        assert self.texts(booster, encoded, ("advil",), ()) == [RARE, *plain]

    def test_a_batch_may_hold_more_sets_than_are_kept(
        self, booster: Booster, encoded: tuple[torch.Tensor, torch.Tensor]
    ) -> None:
        sets = [("advil", f"{chr(97 + number // 26)}{chr(97 + number % 26)}xyz") for number in range(64)]
        assert set(self.texts(booster, encoded, *sets)) == {RARE}
