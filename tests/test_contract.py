"""What the recogniser says comes back from the document in which it travels."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fakes import HELLO
from parakeet_mps.contract import Recognition, Token, Word

ODD = Recognition(
    'so "\u2581\u00e9\u2028" \U0001f600',
    1.0000625,
    (Token("\u2581\u00e9", 0, 0.1, 1 / 3, 1.0),),
    (Word("\u00e9", 0.1, 1e-7, 0.0),),
)


@pytest.mark.parametrize("recognition", [HELLO, ODD, Recognition("", 0.1), Recognition("no times", 60.0)])
def test_a_recognition_is_read_as_it_was_written(recognition: Recognition) -> None:
    read = Recognition.from_json(recognition.to_json())
    assert read == recognition
    assert [type(row) for row in (*read.tokens, *read.words)] == [
        type(row) for row in (*recognition.tokens, *recognition.words)
    ]


def test_the_document_names_each_field_once() -> None:
    document = HELLO.to_json()
    assert document.count(b"confidence") == 2
    assert json.loads(document)["tokens"]["id"] == [11, 12, 13, 14]


GOOD = json.loads(HELLO.to_json())


@pytest.mark.parametrize(
    "other",
    [
        [],
        {},
        {**GOOD, "tokens": []},
        {**GOOD, "tokens": {}},
        {**GOOD, "words": [{"text": "a", "start": 0.0, "end": 1.0, "confidence": 1.0}]},
        {**GOOD, "words": {**GOOD["words"], "start": [0.0]}},
        {**GOOD, "words": {**GOOD["words"], "end": None}},
    ],
)
def test_a_document_of_another_shape_is_refused(other: Any) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Recognition.from_json(json.dumps(other).encode())
