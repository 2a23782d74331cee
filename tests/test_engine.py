"""The recogniser gives NeMo's own text and times, whatever an utterance shares its batch with."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from parakeet_mps.contract import MAX_PIECE_S, SAMPLE_RATE_HZ, Recognition, Token, Word
from parakeet_mps.engine.batching import MAX_PADDING, group_by_length
from parakeet_mps.engine.edges import LATEST_FRAMES
from parakeet_mps.engine.utterance import UtteranceError
from parakeet_mps.engine.vocabulary import Vocabulary
from parakeet_mps.engine.words import FrameTimes, join_words, split_words, time_tokens

if TYPE_CHECKING:
    from parakeet_mps.engine.recognizer import Recognizer

FRAME_S = 0.08


def seconds(duration: float) -> int:
    return int(duration * SAMPLE_RATE_HZ)


def texts(results: list[Recognition | UtteranceError]) -> list[str]:
    return [result.text for result in results if isinstance(result, Recognition)]


@pytest.fixture(scope="module")
def recognitions(recognizer: Recognizer, clips: list[torch.Tensor]) -> list[Recognition]:
    results = recognizer.recognize(clips)
    return [result for result in results if isinstance(result, Recognition)]


@pytest.fixture(scope="module")
def nemo_hypotheses(checkpoint: Path, clips: list[torch.Tensor]) -> list[Any]:
    """What NeMo's own `transcribe(timestamps=True)` makes of the clips."""
    from nemo.collections.asr.models.asr_model import ASRModel
    from nemo.core.connectors.save_restore_connector import SaveRestoreConnector

    from parakeet_mps.engine.unpacking import unpacked

    connector = SaveRestoreConnector()
    with unpacked(checkpoint) as folder:  # which NeMo cannot do on Debian 12
        connector.model_extracted_dir = str(folder)
        model = ASRModel.restore_from(str(checkpoint), map_location="cpu", save_restore_connector=connector)
    model.eval()
    return model.transcribe([clip.numpy() for clip in clips], batch_size=1, timestamps=True, verbose=False)


@pytest.mark.filterwarnings("ignore")  # NeMo's data loader warns of its own dependencies
def test_the_text_is_what_nemo_transcribes(nemo_hypotheses: list[Any], recognitions: list[Recognition]) -> None:
    assert len(recognitions) == 50
    assert [recognition.text for recognition in recognitions] == [hypothesis.text for hypothesis in nemo_hypotheses]
    assert any(recognition.text for recognition in recognitions)


def test_loading_draws_no_random_weights_only_to_overwrite_them(checkpoint: Path) -> None:
    from parakeet_mps.engine.loading import load_model

    before = torch.get_rng_state()
    load_model(checkpoint, torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.filterwarnings("ignore")
def test_words_are_nemos_words_at_nemos_times_but_for_the_edges_of_their_sound(
    nemo_hypotheses: list[Any], recognitions: list[Recognition]
) -> None:
    near = []
    for hypothesis, recognition in zip(nemo_hypotheses, recognitions, strict=True):
        theirs = [word for word in hypothesis.timestamp["word"] if word["word"]]
        assert [word.text for word in recognition.words] == [word["word"] for word in theirs]
        for word, their in zip(recognition.words, theirs, strict=True):
            near.append(abs(word.start - their["start"]) <= LATEST_FRAMES * FRAME_S)
    assert sum(near) >= 0.95 * len(near)


def test_words_are_in_order_inside_the_audio_and_last(recognitions: list[Recognition]) -> None:
    for recognition in recognitions:
        times = [time for word in recognition.words for time in (word.start, word.end)]
        assert times == sorted(times)
        assert all(word.end > word.start for word in recognition.words)
        assert all(0 <= time <= recognition.duration for time in times)
        assert " ".join(word.text for word in recognition.words) == recognition.text


def test_tokens_spell_the_text_and_carry_confidences(recognitions: list[Recognition]) -> None:
    for recognition in recognitions:
        assert "".join(token.text for token in recognition.tokens).replace("▁", " ").strip() == recognition.text
        assert all(0 < token.confidence <= 1 for token in recognition.tokens)
        assert all(0 < word.confidence <= 1 for word in recognition.words)


def test_an_utterance_gives_the_same_text_alone_and_in_mixed_company(
    recognizer: Recognizer, clips: list[torch.Tensor]
) -> None:
    company = [clips[0], torch.cat(clips[:6]), clips[1], torch.randn(seconds(0.3)) * 0.1, torch.cat(clips[6:8])]
    assert texts(recognizer.recognize(company)) == [texts(recognizer.recognize([clip]))[0] for clip in company]


@pytest.mark.filterwarnings("ignore")
def test_the_weights_of_the_gpu_give_the_same_text(
    checkpoint: Path, clips: list[torch.Tensor], recognitions: list[Recognition]
) -> None:
    from parakeet_mps.engine.groundwork import Groundwork
    from parakeet_mps.engine.loading import load_model
    from parakeet_mps.engine.recognizer import Recognizer

    model = load_model(checkpoint, torch.device("cpu"))
    results = Recognizer(model, seconds(60), Groundwork(dtype=torch.bfloat16)).recognize(clips[:10])
    assert texts(results) == [recognition.text for recognition in recognitions[:10]]
    assert model.preprocessor.featurizer.fb.dtype == torch.float32
    assert all(isinstance(json.loads(result.to_json()), dict) for result in results if isinstance(result, Recognition))


def test_results_come_in_the_order_of_the_utterances(recognizer: Recognizer, clips: list[torch.Tensor]) -> None:
    lengths = [result.duration for result in recognizer.recognize(clips[:8]) if isinstance(result, Recognition)]
    assert lengths == [clip.numel() / SAMPLE_RATE_HZ for clip in clips[:8]]


BAD_UTTERANCES = {
    "not a number": (torch.full((seconds(1),), float("nan")), "not finite"),
    "one infinity": (torch.cat([torch.zeros(seconds(1)), torch.tensor([float("inf")])]), "not finite"),
    "one negative infinity": (torch.cat([torch.zeros(seconds(1)), torch.tensor([float("-inf")])]), "not finite"),
    "beyond any scale": (torch.full((seconds(1),), 1e30), "full scale is 1"),
    "empty": (torch.zeros(0), "too short"),
    "too short": (torch.zeros(seconds(0.1) - 1), "too short"),
    "too long": (torch.zeros(seconds(MAX_PIECE_S) + 1), "too long"),
    "two channels": (torch.zeros(2, seconds(1)), "one channel"),
    "16-bit integers": (torch.zeros(seconds(1), dtype=torch.int16), "not torch.float32"),
}


@pytest.mark.parametrize(("utterance", "reason"), BAD_UTTERANCES.values(), ids=BAD_UTTERANCES)
def test_a_bad_utterance_gets_its_error_and_leaves_the_others_alone(
    utterance: torch.Tensor, reason: str, recognizer: Recognizer, clips: list[torch.Tensor]
) -> None:
    before, fault, after = recognizer.recognize([clips[0], utterance, clips[1]])
    assert isinstance(fault, UtteranceError)
    assert reason in str(fault)
    assert [before, after] == recognizer.recognize([clips[0], clips[1]])


@pytest.mark.parametrize("duration", [0.1, 0.15, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("level", [0.0, 0.1])
def test_very_short_audio_and_silence_are_recognised(duration: float, level: float, recognizer: Recognizer) -> None:
    audio = torch.randn(seconds(duration), generator=torch.Generator().manual_seed(1)) * level
    (result,) = recognizer.recognize([audio])
    assert isinstance(result, Recognition)
    assert result.duration == pytest.approx(duration)
    assert all(token.end <= result.duration for token in result.tokens)


def test_no_utterances_give_no_results(recognizer: Recognizer) -> None:
    assert recognizer.recognize([]) == []


def test_groups_hold_every_utterance_once_with_little_padding() -> None:
    lengths = [seconds(s) for s in (40, 0.5, 39, 1, 0.6, 20, 19, 1.1, 2, 7, 8, 21)]
    groups = list(group_by_length(lengths))
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    for group in groups:
        longest = max(lengths[index] for index in group)
        assert sum(longest - lengths[index] for index in group) <= MAX_PADDING * longest * len(group)


def test_long_utterances_are_not_computed_together() -> None:
    assert [len(group) for group in group_by_length([seconds(300)] * 3)] == [1, 1, 1]
    assert [len(group) for group in group_by_length([seconds(60)] * 20)] == [16, 4]


def test_tokens_of_one_frame_share_it() -> None:
    assert time_tokens([0, 0, 5, 6, 6, 6, 6], FrameTimes(FRAME_S), 10.0) == [0.0, 0.04, 0.4, 0.48, 0.5, 0.52, 0.54]


def test_tokens_of_the_last_frame_share_what_there_is_of_it() -> None:
    assert time_tokens([1, 1], FrameTimes(FRAME_S), 0.1) == [0.08, 0.09]


def read_words(*said: tuple[str, float]) -> list[Word]:
    """Return the words of tokens (text, confidence) of one second each."""
    texts = [text for text, _ in said]

    def decode(ids: list[int]) -> str:
        return "".join(texts[entry] for entry in ids).replace("▁", " ")

    vocabulary = Vocabulary(texts, {",", ".", "'"}, decode)
    words = split_words(range(len(texts)), vocabulary)
    tokens = [Token(texts[at], at, float(at), at + 1.0, said[at][1]) for at in words.tokens]
    return list(join_words(tokens, words, vocabulary))


def spell(*texts: str) -> list[tuple[str, float, float]]:
    """Return (text, start, end) of the words that tokens of one second each spell."""
    return [(word.text, word.start, word.end) for word in read_words(*((text, 0.5) for text in texts))]


def test_words_are_merged_at_word_marks() -> None:
    assert spell("▁he", "ll", "o", "▁you") == [("hello", 0.0, 3.0), ("you", 3.0, 4.0)]


def test_a_lone_word_mark_opens_the_next_word() -> None:
    assert spell("▁a", "▁", "q") == [("a", 0.0, 1.0), ("q", 1.0, 3.0)]


def test_punctuation_belongs_to_the_word_before_and_does_not_lengthen_it() -> None:
    assert spell("▁yes", ",", "▁no", "▁", ".") == [("yes,", 0.0, 1.0), ("no.", 2.0, 3.0)]


def test_punctuation_inside_a_word_does_not_end_it() -> None:
    assert spell("▁don", "'", "t") == [("don't", 0.0, 3.0)]


def test_punctuation_alone_is_a_word() -> None:
    assert spell(",", ".", "▁so") == [(",.", 0.0, 2.0), ("so", 2.0, 3.0)]


def test_lone_word_marks_that_open_nothing_are_left_out() -> None:
    assert spell("▁", "▁a", "▁", "▁", "b", "▁") == [("a", 1.0, 2.0), ("b", 3.0, 5.0)]
    assert spell() == spell("▁") == []


def test_a_word_is_as_certain_as_its_least_certain_token() -> None:
    assert [word.confidence for word in read_words(("▁a", 0.9), ("b", 0.3), ("▁c", 0.8))] == [0.3, 0.8]


@pytest.mark.parametrize(
    ("captured", "warmed"),
    [
        (True, [[1, 15], [1]]),
        (False, [[5], [15], [30], [45], [60], [15] * 4, [15] * 8, [15] * 16, [1]]),
    ],
)
def test_on_a_gpu_without_graphs_every_usual_shape_is_warmed_up(captured: bool, warmed: list[list[int]]) -> None:
    from parakeet_mps.engine.recognizer import Recognizer

    recognizer, seen = object.__new__(Recognizer), []
    recognizer._max_samples = seconds(60)
    recognizer.pipeline = SimpleNamespace(device=torch.device("cuda"), captured=captured)  # type: ignore[assignment]
    recognizer.recognize = lambda batch, *_: seen.append([len(clip) // seconds(1) for clip in batch])  # type: ignore[method-assign]
    recognizer._warm_up()
    assert seen == warmed
