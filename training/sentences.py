"""What the demo recogniser is taught to hear: consultation sentences from a grammar, and strings of common words.

Text is lower case with no punctuation. Training never speaks the fiftieth of all sentences whose hash is held out.
"""

from __future__ import annotations

import random
import re
import tomllib
import zlib
from collections.abc import Callable
from pathlib import Path

WORDS = tuple((Path(__file__).parent / "words.txt").read_text().split())

GRAMMAR: dict[str, list[str]] = tomllib.loads((Path(__file__).parent / "grammar.toml").read_text())

_SLOT = re.compile(r"<(\w+)>")


def consultation(rng: random.Random) -> str:
    """Return one sentence of the consultation grammar."""
    text = "<sentence>"
    while match := _SLOT.search(text):
        text = text[: match.start()] + rng.choice(GRAMMAR[match[1]]) + text[match.end() :]
    return text


def random_words(rng: random.Random) -> str:
    """Return one to twelve of the common words in no order."""
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 12)))


def held_out(text: str) -> bool:
    """Whether this sentence belongs to the fiftieth that training never speaks."""
    return zlib.crc32(text.encode()) % 50 == 0


def draw(rng: random.Random, source: Callable[[random.Random], str], *, test: bool) -> str:
    """Draw from `source` until a sentence falls on the asked side of the split."""
    while held_out(text := source(rng)) is not test:
        pass
    return text


def everything_said() -> str:
    """Return all the text the grammar and the word list can produce once, for the tokenizer and vocabulary checks."""
    return "\n".join([*WORDS, *(_SLOT.sub(" ", line) for lines in GRAMMAR.values() for line in lines)])
