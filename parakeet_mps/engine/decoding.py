"""NeMo's hypotheses -> recognitions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from parakeet_mps.contract import Recognition
from parakeet_mps.engine.words import Piece, merge_words, time_tokens


class HypothesisReader:
    """Reads hypotheses of one model: knows its vocabulary, its punctuation and the duration of its frames."""

    def __init__(self, decoding: Any, frame_s: float) -> None:
        self._decoding = decoding
        self._frame_s = frame_s
        self._pieces: list[str] = decoding.decode_ids_to_tokens(list(range(decoding.blank_id)))
        self._punctuation: Collection[str] = decoding.supported_punctuation or ()

    def read(self, hypothesis: Any, duration: float) -> Recognition:
        """Return what a `nemo...rnnt_utils.Hypothesis` with token durations and confidences says of `duration` s."""
        pieces = [
            Piece(token, self._pieces[token], frame, frames, round(min(max(confidence, 0.0), 1.0), 4))
            for token, frame, frames, confidence in zip(
                hypothesis.y_sequence.tolist(),
                hypothesis.timestamp.tolist(),
                hypothesis.token_duration.tolist(),
                hypothesis.token_confidence,
                strict=True,
            )
        ]
        tokens = time_tokens(pieces, self._frame_s, duration)
        words = merge_words(tokens, self._decoding.decode_ids_to_str, self._punctuation)
        return Recognition(hypothesis.text, duration, tokens, words)
