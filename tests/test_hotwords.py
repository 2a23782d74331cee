"""How the phrases to boost are read from a request's fields."""

from __future__ import annotations

import pytest

from parakeet_mps.errors import RequestError
from parakeet_mps.hotwords import (
    MAX_CHARACTERS,
    MAX_PHRASES,
    MAX_PROMPT_PHRASES,
    find_fault,
    parse_hotwords,
    read_hotword,
)


@pytest.mark.parametrize(
    ("fields", "phrases"),
    [
        ([], ()),
        ([""], ()),
        (["tramadol"], ("tramadol",)),
        (["tramadol, left  ventricle\nXarelto"], ("tramadol", "left ventricle", "Xarelto")),
        (["tramadol", "xarelto"], ("tramadol", "xarelto")),
        (["tramadol,TRAMADOL, ,"], ("tramadol",)),
        (["tramadol :1.5"], ("tramadol :1.5",)),
    ],
)
def test_fields_hold_phrases_between_commas_and_line_ends(fields: list[str], phrases: tuple[str, ...]) -> None:
    assert parse_hotwords(fields) == phrases


@pytest.mark.parametrize(
    ("text", "expected"),
    [("tramadol", ("tramadol", 1.0)), ("left knee :.5", ("left knee", 0.5)), ("ratio 3:1", ("ratio 3:1", 1.0))],
)
def test_a_phrase_may_end_with_its_weight(text: str, expected: tuple[str, float]) -> None:
    assert read_hotword(text) == expected


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (",".join(f"word{number}" for number in range(MAX_PHRASES + 1)), "101 phrases"),
        ("short," + "x" * (MAX_CHARACTERS + 1), "phrase 2 has 101 characters"),
        (",".join(f"{number:03}" + "x" * 57 for number in range(51)), "3060 characters together"),
        ("tramadol :9", "the weight 9"),
        ("tramadol :0", "the weight 0"),
    ],
)
def test_what_is_not_allowed_is_refused_naming_the_field(field: str, reason: str) -> None:
    with pytest.raises(RequestError, match=reason) as refusal:
        parse_hotwords([field])
    assert refusal.value.param == "hotwords"
    assert refusal.value.status == 400


def test_a_list_of_terms_in_the_prompt_is_boosted_mildly_entry_by_entry() -> None:
    assert parse_hotwords([], "Tramadol, left ventricle; Dr. Xu.") == (
        "Tramadol :0.5",
        "left ventricle :0.5",
    )


def test_a_sentence_in_the_prompt_gives_its_content_words() -> None:
    prompt = "The patient was given tramadol and xarelto by the doctor in the ward."
    words = [read_hotword(text).phrase for text in parse_hotwords([], prompt)]
    assert words == ["patient", "given", "tramadol", "xarelto", "doctor", "ward"]


def test_a_prompt_adds_nothing_to_what_the_hotwords_name() -> None:
    assert parse_hotwords(["Tramadol"], "tramadol") == ("Tramadol",)


def test_a_long_prompt_counts_from_its_end_and_is_never_refused() -> None:
    prompt = ", ".join(f"term{number}" for number in range(1000)) + ", " + "x" * 1000
    phrases = parse_hotwords([], prompt)
    assert len(phrases) == MAX_PROMPT_PHRASES
    assert phrases[-1] == "term999 :0.5"
    assert find_fault(phrases) is None


def test_hotwords_leave_the_prompt_only_the_room_that_is_left() -> None:
    asked = ",".join(f"word{number}" for number in range(MAX_PHRASES - 1))
    assert parse_hotwords([asked], "xarelto, tramadol")[MAX_PHRASES - 1 :] == ("tramadol :0.5",)
    full = asked + ",last"
    assert len(parse_hotwords([full], "xarelto")) == MAX_PHRASES
