"""Hypotheses -> recognitions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from parakeet_mps.contract import SAMPLE_RATE_HZ, Recognition, Token
from parakeet_mps.engine.edges import find_edges
from parakeet_mps.engine.hypotheses import Hypothesis
from parakeet_mps.engine.loudness import Loudness
from parakeet_mps.engine.words import Piece, emissions, join_word, place_words, split_words, time_tokens


class HypothesisReader:
    """Reads hypotheses of one model: knows its vocabulary, its punctuation and the duration of its frames."""

    def __init__(self, decoding: Any, frame_s: float) -> None:
        self._decoding = decoding
        self._frame_s = frame_s
        self._pieces: list[str] = decoding.decode_ids_to_tokens(list(range(decoding.blank_id)))
        self._punctuation: Collection[str] = decoding.supported_punctuation or ()

    def read(self, hypothesis: Hypothesis, waveform: torch.Tensor) -> Recognition:
        """Return what a hypothesis says of the `waveform`.

        The waveform is float32 [samples] on the CPU, at least one frame long.
        """
        duration = waveform.numel() / SAMPLE_RATE_HZ
        tokens = time_tokens(self._read_pieces(hypothesis), self._frame_s, duration)
        groups = split_words(tokens, self._punctuation)
        spans = find_edges(emissions(groups, self._punctuation), Loudness(waveform), self._frame_s)
        placed = place_words(groups, spans, duration)
        return Recognition(
            text=self.text(hypothesis),
            duration=duration,
            tokens=tuple(token for group in placed for token in group),
            words=tuple(join_word(group, self._spell(group), self._punctuation) for group in placed),
        )

    def text(self, hypothesis: Hypothesis) -> str:
        """Return what the hypothesis spells."""
        return str(self._decoding.decode_tokens_to_str_with_strip_punctuation(hypothesis.tokens))

    def _read_pieces(self, hypothesis: Hypothesis) -> list[Piece]:
        columns = (hypothesis.tokens, hypothesis.frames, hypothesis.durations, hypothesis.confidences)
        return [
            Piece(token, self._pieces[token], frame, frames, round(min(max(confidence, 0.0), 1.0), 4))
            for token, frame, frames, confidence in zip(*columns, strict=True)
        ]

    def _spell(self, group: Sequence[Token]) -> str:
        return str(self._decoding.decode_ids_to_str([token.id for token in group]))
