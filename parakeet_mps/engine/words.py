"""Sub-word pieces with frame times -> tokens with times in seconds -> words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from parakeet_mps.contract import Token, Word

WORD_START = "▁"
"""SentencePiece's mark of a piece that begins a word."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One decoded vocabulary entry: id, SentencePiece text, first frame, frames it lasts (may be 0), confidence."""

    id: int
    text: str
    frame: int
    frames: int
    confidence: float


def time_tokens(pieces: Sequence[Piece], frame_s: float, duration: float) -> tuple[Token, ...]:
    """Return the pieces with times (s): in order, disjoint, each longer than zero and inside [0, `duration`].

    TDT gives a piece zero frames when another symbol comes in the same frame; pieces of one frame share it equally.
    """
    return tuple(
        Token(piece.text, piece.id, round(start * frame_s, 4), min(round(end * frame_s, 4), duration), piece.confidence)
        for piece, start, end in _share_frames(pieces, duration / frame_s)
    )


def _share_frames(pieces: Sequence[Piece], last_frame: float) -> Iterator[tuple[Piece, float, float]]:
    """Yield (piece, start, end) in frames; `last_frame`, where the audio ends, may lie inside a frame."""
    for frame, group in groupby(pieces, key=lambda piece: piece.frame):
        sharing = list(group)
        share = min(1.0, last_frame - frame) / len(sharing)
        for position, piece in enumerate(sharing, start=1):
            end = frame + share * position
            if position == len(sharing):
                end = max(end, min(frame + piece.frames, last_frame))
            yield piece, frame + share * (position - 1), end


def merge_words(
    tokens: Sequence[Token], decode: Callable[[list[int]], str], punctuation: Collection[str]
) -> tuple[Word, ...]:
    """Return the words that `tokens` spell; `decode` turns vocabulary ids into text.

    A word lasts from its first token to its last one that is not punctuation, which comes long after the voice, and
    is as certain as its least certain token.
    """
    groups = _split(tokens, punctuation)
    return tuple(_join(group, decode([token.id for token in group]), punctuation) for group in groups)


def _join(group: list[Token], text: str, punctuation: Collection[str]) -> Word:
    voiced = [token for token in group if _body(token) not in punctuation] or group
    return Word(text.strip(), group[0].start, voiced[-1].end, min(token.confidence for token in group))


def _split(tokens: Sequence[Token], punctuation: Collection[str]) -> list[list[Token]]:
    """Group tokens by word. A lone word mark opens the word that follows it, unless that is punctuation."""
    groups: list[list[Token]] = []
    opening: list[Token] = []
    for token in tokens:
        if not _body(token):
            opening = [token]
            continue
        if token.text.startswith(WORD_START):
            opening = []
        begins = bool(opening) or token.text.startswith(WORD_START)
        if not groups or (begins and _body(token) not in punctuation):
            groups.append([*opening, token])
        else:
            groups[-1].append(token)
        opening = []
    return groups


def _body(token: Token) -> str:
    return token.text.removeprefix(WORD_START)
