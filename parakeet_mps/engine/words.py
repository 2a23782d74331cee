"""Entries of a vocabulary with frame times -> words, placed where their sound is.

Everything is in columns, one item for each token or word: objects for hundreds of tokens cost more than their times.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from parakeet_mps.contract import Token, Word
from parakeet_mps.engine.edges import Emission, Span
from parakeet_mps.engine.loudness import STEP_S
from parakeet_mps.engine.vocabulary import Vocabulary

LEAST_WORD_S = 0.02
LEAST_TOKEN_S = 0.001
"""Shortest word and token, where the audio has room for them."""


class FrameTimes(dict[int, float]):
    """When frames of `frame_s` seconds begin, rounded as all times are."""

    def __init__(self, frame_s: float) -> None:
        super().__init__()
        self.frame_s = frame_s

    def __missing__(self, frame: int) -> float:
        time = self[frame] = round(frame * self.frame_s, 4)
        return time


def time_tokens(frames: list[int], times: FrameTimes, duration: float) -> list[float]:
    """Return when tokens come (s) that were decoded at `frames`, in order; `duration` is that of the audio.

    TDT gives a token zero frames when another symbol comes in the same frame; tokens of one frame share it equally.
    """
    starts = list(map(times.__getitem__, frames))
    for frame, sharing in Counter(frames).items():
        if sharing > 1:
            at, share = bisect_left(frames, frame), min(1.0, duration / times.frame_s - frame) / sharing
            shared = [round((frame + share * position) * times.frame_s, 4) for position in range(sharing)]
            starts[at : at + sharing] = shared
    return starts


@dataclass(frozen=True, slots=True)
class Words:
    """Which tokens make words.

    `tokens` are the places of those that do. Word n begins at the `bounds[n]`-th of them and ends before the
    `bounds[n + 1]`-th; its voice ends before the `voiced[n]`-th, since punctuation comes long after it.
    """

    tokens: list[int]
    bounds: list[int]
    voiced: list[int]


def split_words(ids: Sequence[int], vocabulary: Vocabulary) -> Words:
    """Group tokens by word. A lone word mark opens the word that follows it, unless that is punctuation."""
    tokens, bounds = _find_bounds(ids, vocabulary)
    punctuation = [vocabulary.punctuation[ids[at]] for at in tokens]
    voiced = []
    for first, after in pairwise(bounds):
        last = after
        while last > first and punctuation[last - 1]:
            last -= 1
        voiced.append(last if last > first else after)
    return Words(tokens, bounds, voiced)


def _find_bounds(ids: Sequence[int], vocabulary: Vocabulary) -> tuple[list[int], list[int]]:
    begins, bare, punctuation = vocabulary.begins, vocabulary.bare, vocabulary.punctuation
    tokens: list[int] = []
    bounds: list[int] = []
    mark: int | None = None
    for at, entry in enumerate(ids):
        if bare[entry]:
            mark = at
            continue
        if begins[entry]:
            mark = None
        if not tokens or ((mark is not None or begins[entry]) and not punctuation[entry]):
            bounds.append(len(tokens))
            if mark is not None:
                tokens.append(mark)
        tokens.append(at)
        mark = None
    return tokens, [*bounds, len(tokens)]


def emissions(starts: Sequence[float], words: Words) -> list[Emission]:
    """Return when the tokens of each word came, which have the `starts` (s)."""
    following = [*starts[1:], None]
    return [
        Emission(starts[first], following[first], starts[voiced - 1])
        for first, voiced in zip(words.bounds, words.voiced, strict=False)
    ]


def place_tokens(
    starts: Sequence[float], words: Words, spans: Sequence[Span], duration: float
) -> tuple[list[float], list[float]]:
    """Return begins and ends (s) of the tokens within their words' spans: in order, disjoint, longer than zero.

    `starts` says when they came. All are inside the audio of `duration` seconds. A span without room is made longer at
    the cost of what follows it or, at the end of the audio, of what precedes it.
    """
    least = min(LEAST_WORD_S, duration / (2 * len(spans) + 1))
    begins: list[float] = []
    ends: list[float] = []
    free = shown = 0.0  # where the word before ends, exactly and as it is shown
    for left, span, (first, after) in zip(range(len(spans), 0, -1), spans, pairwise(words.bounds), strict=True):
        last = duration - least * left
        begin = min(max(span.begin * STEP_S, free), last)
        begins.append(shown if begin == free else _shown(begin, duration))
        free = min(max(span.end * STEP_S, begin + least), last + least)
        inner = _spread(starts[first:after], begin, free, duration) if after - first > 1 else ()
        begins += inner
        shown = _shown(free, duration)
        ends += inner
        ends.append(shown)
    return begins, ends


def _spread(starts: Sequence[float], begin: float, end: float, duration: float) -> list[float]:
    """Return where a word's tokens but the first begin within `begin` to `end`, each where it came if it can."""
    left = len(starts)
    least = min(LEAST_TOKEN_S, (end - begin) / left)
    found = []
    for start in starts[1:]:
        left -= 1
        low, high = begin + least, end - least * left
        if low <= start <= high:  # as most do; it is rounded already
            begin = start
            found.append(start)
        else:
            begin = min(max(start, low), high)
            found.append(_shown(begin, duration))
    return found


def _shown(time: float, duration: float) -> float:
    return min(round(time, 4), duration)


def join_words(tokens: Sequence[Token], words: Words, vocabulary: Vocabulary) -> tuple[Word, ...]:
    """Return the words.

    A word lasts from its first token to its last one that is not punctuation, and is as certain as its least certain.
    """
    if not tokens:
        return ()
    _, ids, starts, ends, confidences = zip(*tokens, strict=True)
    spans = list(pairwise(words.bounds))
    columns = (
        [vocabulary.spell(ids[first:after]) for first, after in spans],
        [starts[first] for first, _ in spans],
        [ends[voiced - 1] for voiced in words.voiced],
        [min(confidences[first:after]) for first, after in spans],
    )
    return tuple(map(Word._make, zip(*columns, strict=True)))
