"""Phrases that a request asks the recogniser to expect: how its fields are read, and what is allowed.

A phrase is text that may end with its weight, as in `tramadol :2.0` (the notation of icefall's and sherpa's hotword
files); without one it weighs 1. Standard library only; what a phrase does to a recognition is `engine.boosting`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from parakeet_mps.errors import RequestError

MAX_PHRASES = 100
"""Most phrases of one request, those of its prompt included."""

MAX_CHARACTERS = 100
"""Longest phrase, without its weight."""

MAX_TOTAL_CHARACTERS = 3000
"""All phrases of one request together: they are compiled while other requests wait."""

WEIGHTS = (0.1, 2.0)
"""Smallest and largest weight."""

PROMPT_WEIGHT = 0.5
"""Weight of the phrases of a prompt: it shows what the talk is about, not what is certainly said."""

MAX_PROMPT_PHRASES = 40
"""A prompt that holds more of them counts from its end, as OpenAI's models read no more than its end."""

_ENTRY_WORDS = 3
_WEIGHTED = re.compile(r"(.*\S)\s+:(\d+(?:\.\d*)?|\.\d+)", re.DOTALL)
_ENTRY_END = re.compile(r"[,;:!?()\[\]{}\"“”«»\r\n]+|\.+(?=\s|$)")
_EDGE = ".'\u2018\u2019-\u2013\u2014*_/"
_FUNCTION_WORDS = frozenset(
    """a about after again all also am an and any are as at back be because been before being but by can could did do
    does doing don't done down each even for from get give go good got had has have he her here him his how i i'd i'll
    i'm i've if in into is isn't it it's its just know let like look made make many may me might more most much must my
    need new no nor not now of off ok okay on one only or other our out over please really right said same say see she
    should so some such take than thank thanks that that's the their them then there these they this those to today
    too two under up upon us use very want was way we we're well were what when where which while who why will with
    would yes yet you you're your""".split()  # noqa: SIM905  one word a line would bury the module
)


class Hotword(NamedTuple):
    """A phrase and its weight."""

    phrase: str
    weight: float


def parse_hotwords(fields: Iterable[str], prompt: str | None = None, name: str = "hotwords") -> tuple[str, ...]:
    """Return the phrases of the `hotwords` fields and, each weighted `PROMPT_WEIGHT`, those of the `prompt`.

    Fields hold phrases between commas or line ends. Raises `RequestError` naming their field when they are too many,
    too long, or have a weight out of range; a prompt is free text and raises nothing.
    """
    asked = _distinct(part for field in fields for part in re.split(r"[,\r\n]", field))
    if fault := find_fault(asked):
        raise RequestError(f"{name}: {fault}", param=name)
    known = {read_hotword(text).phrase.casefold() for text in asked}
    hints = [f"{phrase} :{PROMPT_WEIGHT}" for phrase in _prompt_phrases(prompt or "") if phrase.casefold() not in known]
    hints = hints[-MAX_PROMPT_PHRASES:]
    while hints and find_fault([*asked, *hints]):
        del hints[0]
    return (*asked, *hints)


def read_hotword(text: str) -> Hotword:
    """Return the phrase and the weight that `text` gives."""
    if weighted := _WEIGHTED.fullmatch(text.strip()):
        return Hotword(weighted[1], float(weighted[2]))
    return Hotword(text.strip(), 1.0)


def find_fault(texts: Sequence[str]) -> str | None:
    """Return why these phrases are not accepted, without quoting them, or `None`."""
    if len(texts) > MAX_PHRASES:
        return f"{len(texts)} phrases, at most {MAX_PHRASES} allowed."
    for number, (phrase, weight) in enumerate(map(read_hotword, texts), start=1):
        if len(phrase) > MAX_CHARACTERS:
            return f"phrase {number} has {len(phrase)} characters, at most {MAX_CHARACTERS} allowed."
        if not WEIGHTS[0] <= weight <= WEIGHTS[1]:
            return f"phrase {number} has the weight {weight:g}; from {WEIGHTS[0]:g} to {WEIGHTS[1]:g} are allowed."
    if (total := _count_characters(texts)) > MAX_TOTAL_CHARACTERS:
        return f"{total} characters together, at most {MAX_TOTAL_CHARACTERS} allowed."
    return None


def _count_characters(texts: Iterable[str]) -> int:
    return sum(len(read_hotword(text).phrase) for text in texts)


def _prompt_phrases(prompt: str) -> list[str]:
    """Return the entries of a prompt, last mention counting.

    Between marks of punctuation, up to three words with a content word among them are one phrase, as in a list of
    terms; longer text is a sentence, of which each content word counts alone.
    """
    found: list[str] = []
    for entry in _ENTRY_END.split(prompt):
        words = [word for part in entry.split() if (word := part.strip(_EDGE))]
        content = [word for word in words if _is_content(word)]
        found += [" ".join(words)] if content and len(words) <= _ENTRY_WORDS else content
    latest = _distinct(reversed([phrase for phrase in found if len(phrase) <= MAX_CHARACTERS]))
    return list(reversed(latest))


def _is_content(word: str) -> bool:
    return (
        len(word) > 2 and any(map(str.isalpha, word)) and word.casefold().replace("\u2019", "'") not in _FUNCTION_WORDS
    )


def _distinct(texts: Iterable[str]) -> list[str]:
    """Return the texts with single spaces, without empty ones and without repetitions that differ in case only."""
    tidy = {" ".join(text.split()).casefold(): " ".join(text.split()) for text in reversed(list(texts))}
    return [text for key, text in reversed(tidy.items()) if key]
