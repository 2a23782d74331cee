"""Hypotheses -> recognitions."""

from __future__ import annotations

from typing import Any

import torch

from parakeet_mps.contract import SAMPLE_RATE_HZ, Recognition, Token
from parakeet_mps.engine.edges import find_edges
from parakeet_mps.engine.hypotheses import Hypothesis
from parakeet_mps.engine.loudness import Loudness
from parakeet_mps.engine.vocabulary import Vocabulary
from parakeet_mps.engine.words import FrameTimes, emissions, join_words, place_tokens, split_words, time_tokens


class HypothesisReader:
    """Reads hypotheses of one model: knows its vocabulary and the duration of its frames."""

    def __init__(self, decoding: Any, frame_s: float) -> None:
        texts = decoding.decode_ids_to_tokens(list(range(decoding.blank_id)))
        self._decoding = decoding
        self._vocabulary = Vocabulary(texts, decoding.supported_punctuation or (), decoding.decode_ids_to_str)
        self._times = FrameTimes(frame_s)

    def read(self, hypothesis: Hypothesis, waveform: torch.Tensor) -> Recognition:
        """Return what a hypothesis says of the `waveform`.

        The waveform is float32 [samples] on the CPU, at least one frame long.
        """
        duration = waveform.numel() / SAMPLE_RATE_HZ
        words = split_words(hypothesis.tokens, self._vocabulary)
        came = time_tokens(hypothesis.frames, self._times, duration)
        starts = [came[at] for at in words.tokens]
        spans = find_edges(emissions(starts, words), Loudness(waveform), self._times.frame_s)
        begins, ends = place_tokens(starts, words, spans, duration)
        ids = [hypothesis.tokens[at] for at in words.tokens]
        texts = [self._vocabulary.texts[entry] for entry in ids]
        sure = _certainties([hypothesis.confidences[at] for at in words.tokens])
        tokens = tuple(map(Token._make, zip(texts, ids, begins, ends, sure, strict=True)))
        return Recognition(self.text(hypothesis), duration, tokens, join_words(tokens, words, self._vocabulary))

    def text(self, hypothesis: Hypothesis) -> str:
        """Return what the hypothesis spells."""
        return str(self._decoding.decode_tokens_to_str_with_strip_punctuation(hypothesis.tokens))


def _certainties(confidences: list[float]) -> list[float]:
    """Return confidences, which are float32, inside [0, 1] and rounded."""
    return torch.tensor(confidences, dtype=torch.float64).clamp(0, 1).round(decimals=4).tolist()
