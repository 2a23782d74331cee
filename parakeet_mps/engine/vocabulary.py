"""What the entries of a recogniser's vocabulary say and are, worked out once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

WORD_START = "▁"
"""SentencePiece's mark of an entry that begins a word."""

Decode = Callable[[list[int]], str]
"""Returns what entries spell together."""


class Vocabulary:
    """Entries by their id: what each is, and what they spell together.

    `texts` as SentencePiece writes them. Lists of a truth for each entry: it `begins` a word, it is `bare` (a lone word
    mark), it is `punctuation`, with or without a word mark.
    """

    def __init__(self, texts: Sequence[str], punctuation: Collection[str], decode: Decode) -> None:
        self.texts = texts
        bodies = [text.removeprefix(WORD_START) for text in texts]
        self.begins = [text.startswith(WORD_START) for text in texts]
        self.bare = [not body for body in bodies]
        self.punctuation = [body in punctuation for body in bodies]
        self._decode = decode
        self._shown = _find_shown(texts, decode)

    def spell(self, ids: Sequence[int]) -> str:
        """Return what entries spell together, without spaces around it."""
        try:
            shown = "".join(map(self._shown.__getitem__, ids))  # type: ignore[arg-type]
        except TypeError:  # one of them shows something that depends on the others
            shown = self._decode(list(ids))
        return shown.strip()


def _find_shown(texts: Sequence[str], decode: Decode) -> list[str | None]:
    """Return what each entry adds to what is spelled, whatever its neighbours; `None` where that depends on them."""
    shown = [text.replace(WORD_START, " ") for text in texts]

    def adds(*ids: int) -> bool:
        return decode(list(ids)).strip() == "".join(shown[entry] for entry in ids).strip()

    plain = next((entry for entry, text in enumerate(shown) if text.isalpha() and adds(entry, entry, entry)), None)
    if plain is None:
        return [None] * len(shown)
    return [text if adds(entry) and adds(plain, entry, plain) else None for entry, text in enumerate(shown)]
