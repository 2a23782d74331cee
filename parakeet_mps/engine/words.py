"""Sub-word pieces with frame times -> tokens with times in seconds -> words, placed where their sound is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from parakeet_mps.contract import Token, Word
from parakeet_mps.engine.edges import Emission, Span
from parakeet_mps.engine.loudness import STEP_S

WORD_START = "▁"
"""SentencePiece's mark of a piece that begins a word."""

LEAST_WORD_S = 0.02
LEAST_TOKEN_S = 0.001
"""Shortest word and token, where the audio has room for them."""


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


def split_words(tokens: Sequence[Token], punctuation: Collection[str]) -> list[list[Token]]:
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


def emissions(groups: Sequence[Sequence[Token]], punctuation: Collection[str]) -> list[Emission]:
    """Return when the tokens of each word came."""
    starts = [token.start for group in groups for token in group]
    found, at = [], 0
    for group in groups:
        following = starts[at + 1] if at + 1 < len(starts) else None
        found.append(Emission(group[0].start, following, _voiced(group, punctuation)[-1].start))
        at += len(group)
    return found


def place_words(groups: Sequence[Sequence[Token]], spans: Sequence[Span], duration: float) -> list[list[Token]]:
    """Return the tokens moved into their words' spans: in order, disjoint, longer than zero, inside the audio.

    A span without room is made longer at the cost of what follows it or, at the end of the audio, of what precedes it.
    """
    least = min(LEAST_WORD_S, duration / (2 * len(groups) + 1))
    placed, free = [], 0.0
    for index, (group, span) in enumerate(zip(groups, spans, strict=True)):
        last = duration - least * (len(groups) - index)
        begin = min(max(span.begin * STEP_S, free), last)
        free = min(max(span.end * STEP_S, begin + least), last + least)
        placed.append(_spread(group, begin, free, duration))
    return placed


def _spread(group: Sequence[Token], begin: float, end: float, duration: float) -> list[Token]:
    """Return a word's tokens within `begin` to `end`, each beginning where it came if it can."""
    least = min(LEAST_TOKEN_S, (end - begin) / len(group))
    bounds = [begin]
    for left, token in zip(range(len(group) - 1, 0, -1), group[1:], strict=True):
        bounds.append(min(max(token.start, bounds[-1] + least), end - least * left))
    times = [min(round(time, 4), duration) for time in (*bounds, end)]
    return [replace(token, start=start, end=stop) for token, (start, stop) in zip(group, pairwise(times), strict=True)]


def join_word(group: Sequence[Token], text: str, punctuation: Collection[str]) -> Word:
    """Return the word that a group of tokens spells.

    It lasts from its first token to its last one that is not punctuation, and is as certain as its least certain token.
    """
    end = _voiced(group, punctuation)[-1].end
    return Word(text.strip(), group[0].start, end, min(token.confidence for token in group))


def _voiced(group: Sequence[Token], punctuation: Collection[str]) -> Sequence[Token]:
    """Return the tokens that are not punctuation, which comes long after the voice."""
    return [token for token in group if _body(token) not in punctuation] or group


def _body(token: Token) -> str:
    return token.text.removeprefix(WORD_START)
