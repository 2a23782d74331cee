"""Words are spelled as the tokenizer itself would, from what its entries show."""

from __future__ import annotations

import io
import random
from typing import TYPE_CHECKING, Any

import pytest
import sentencepiece

from parakeet_mps.engine.vocabulary import Vocabulary

if TYPE_CHECKING:
    from parakeet_mps.engine.recognizer import Recognizer

SENTENCES = [
    "the patient's blood pressure is high.",
    "na\u00efve, caf\u00e9? yes!",
    "10 mg twice a day",
    "heart rate",
] * 5

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bytes": {"byte_fallback": True, "vocab_size": 330},
    "own symbols": {"user_defined_symbols": ["<x>", "\u2581<y>", "\u2581"], "control_symbols": ["<c>"]},
    "spaces kept": {"remove_extra_whitespaces": False, "add_dummy_prefix": False},
    "words": {"model_type": "word", "vocab_size": 15},
}


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> sentencepiece.SentencePieceProcessor:
    model = io.BytesIO()
    options = {"vocab_size": 60, "hard_vocab_limit": False, "minloglevel": 2, **KINDS[request.param]}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(SENTENCES), model_writer=model, **options)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


class Decoder:
    """Decodes, and counts how often it is asked."""

    def __init__(self, decode: Any) -> None:
        self.asked = 0
        self._decode = decode

    def __call__(self, ids: list[int]) -> str:
        self.asked += 1
        return str(self._decode(ids))


def assert_spelled_alike(vocabulary: Vocabulary, decode: Any, count: int) -> None:
    chosen = random.Random(1)
    groups = [[entry] for entry in range(count)]
    groups += [[first, second] for first in range(min(count, 60)) for second in range(min(count, 60))]
    groups += [chosen.choices(range(count), k=chosen.randint(0, 8)) for _ in range(5000)]
    for ids in groups:
        assert vocabulary.spell(ids) == decode(ids).strip(), ids


def test_entries_of_any_kind_are_spelled_as_the_tokenizer_spells_them(
    tokenizer: sentencepiece.SentencePieceProcessor,
) -> None:
    texts = [tokenizer.id_to_piece(entry) for entry in range(len(tokenizer))]

    def decode(ids: list[int]) -> str:
        return str(tokenizer.decode_pieces([texts[entry] for entry in ids]))

    assert_spelled_alike(Vocabulary(texts, (), decode), decode, len(texts))


def test_a_recognisers_whole_vocabulary_is_spelled_alike_and_mostly_without_asking(recognizer: Recognizer) -> None:
    decoding = recognizer._reader._decoding
    count = decoding.blank_id
    asked = Decoder(decoding.decode_ids_to_str)
    vocabulary = Vocabulary(decoding.decode_ids_to_tokens(list(range(count))), (), asked)
    asked.asked = 0
    for entry in range(count):
        vocabulary.spell([entry])
    assert asked.asked <= 3  # what is unknown, and entries of control
    assert_spelled_alike(vocabulary, decoding.decode_ids_to_str, count)


def test_a_tokenizer_that_does_not_join_its_entries_is_asked() -> None:
    texts = ["play", "##ing", "now"]

    def decode(ids: list[int]) -> str:
        return " ".join(texts[entry] for entry in ids).replace(" ##", "")

    vocabulary = Vocabulary(texts, (), decode)
    assert [vocabulary.spell(ids) for ids in ([0, 1], [0, 2], [2])] == ["playing", "play now", "now"]
