"""Phrase boosting: a batch is decoded greedily while each utterance favours the tokens of its own phrases.

NeMo's boosting tree adds to the logits of the tokens that begin or continue a phrase. It never turns a blank into a
token, so what is not said is not invented. https://arxiv.org/abs/2508.07014
"""

from __future__ import annotations

import copy
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from nemo.collections.asr.parts.context_biasing.biasing_multi_model import GPUBiasingMultiModel
from nemo.collections.asr.parts.context_biasing.boosting_graph_batched import GPUBoostingTreeModel
from nemo.collections.asr.parts.context_biasing.context_graph_universal import ContextGraph

from parakeet_mps.contract import HOTWORDS_FAULT
from parakeet_mps.engine.counters import Counters
from parakeet_mps.engine.hypotheses import Hypothesis
from parakeet_mps.engine.label_looping import LabelLooping
from parakeet_mps.engine.utterance import UtteranceError
from parakeet_mps.hotwords import find_fault, read_hotword

CACHED_TREES = 32
"""Compiled trees kept between batches. The trees of a batch in progress come on top."""

ROOM_TREES = 64
ROOM_STATES = 1000
"""Storage that is there from the start: for so many trees of 100 phrases of 10 tokens. 4 MB for a vocabulary of 128."""

ALPHA = 1.5
"""How much a tree's scores count against the recogniser's logits."""

TOKEN_SCORE = 1.0
"""Score of the first token of a phrase of weight 1."""

DEPTH_SCALING = 2.0
"""How much more its later tokens score; NeMo's value for transducers."""

UNBOOSTED = -1
"""Tree of an utterance without phrases: it adds zero to every logit."""


class _Trees(GPUBiasingMultiModel):  # type: ignore[misc]  # NeMo has no types
    """All trees in one storage, addressed by number, so that one batch can use many and CUDA graphs see no change."""

    def __init__(self, vocabulary: int, moved: Callable[[], None]) -> None:
        # NeMo's constructor reads these. A tree's first state has an arc for each entry of the vocabulary, and room
        # for as many follows a tree. The storage doubles, and calls `moved`, when it is full all the same.
        self.INIT_NUM_STATES = ROOM_TREES * ROOM_STATES
        self.INIT_NUM_ARCS = ROOM_TREES * (ROOM_STATES + 2 * vocabulary)
        super().__init__(vocab_size=vocabulary, reallocation_callback_fn=moved)


class Booster:
    """Decodes batches in which utterances have phrases. Shares the weights of the `decoding` it is made of.

    It has CUDA graphs of its own, captured before the first request: those for batches without phrases know no trees.
    """

    def __init__(self, decoding: Any, tokenizer: Any, counters: Counters) -> None:
        self._tokenizer = tokenizer
        self._counters = counters
        self._vocabulary: int = decoding.blank_id
        computer = copy.copy(decoding.decoding.decoding_computer)
        computer.reset_cuda_graphs_state()
        self._trees = computer.biasing_multi_model = _Trees(decoding.blank_id, self._lose_graphs)
        self._looping = LabelLooping(computer, counters)
        self._numbers: OrderedDict[tuple[str, ...], int] = OrderedDict()

    @property
    def size(self) -> int:
        """Trees held now."""
        return len(self._numbers)

    def find_fault(self, phrases: Sequence[str]) -> UtteranceError | None:
        """Return why these phrases cannot be boosted, or `None`.

        Those lighter than 1, a prompt's, are hints: what of them the model cannot write is left out.
        """
        if tuple(phrases) in self._numbers:
            return None
        fault = find_fault(phrases)
        for number, (phrase, weight) in enumerate(map(read_hotword, phrases), start=1):
            if not fault and weight >= 1 and not self._spellings(phrase):
                fault = f"phrase {number} has characters that this model does not write."
        return UtteranceError(f"{HOTWORDS_FAULT}{fault}") if fault else None

    def fix(self, utterances: int, frames: int, like: torch.Tensor) -> None:
        """Capture the graphs for batches of up to this shape; see `LabelLooping.fix`."""
        self._looping.fix(utterances, frames, like)

    def decode(
        self, encoded: torch.Tensor, lengths: torch.Tensor, phrases: Sequence[Sequence[str]]
    ) -> list[Hypothesis]:
        """Return the hypotheses of `encoded` [utterances, frames, channels], given each one's phrases."""
        try:
            trees = torch.tensor(self._find_trees(phrases), device=encoded.device)
            # Not through NeMo's partial hypotheses, which carry a tree's number but lose the durations of tokens.
            return self._looping(encoded, lengths, trees)
        finally:
            self._forget()

    def _lose_graphs(self) -> None:
        self._counters.add("boosting_graphs_lost")
        self._looping.lose()

    @torch.inference_mode(mode=False)
    @torch.no_grad()
    def _find_trees(self, phrases: Sequence[Sequence[str]]) -> list[int]:
        """Return the number of each utterance's tree."""
        return [self._find_tree(tuple(texts)) if texts else UNBOOSTED for texts in phrases]

    @torch.inference_mode(mode=False)
    @torch.no_grad()
    def _forget(self) -> None:
        """Give up the least recently used trees beyond those that are kept."""
        while len(self._numbers) > CACHED_TREES:
            self._trees.remove_model(self._numbers.popitem(last=False)[1])

    def _find_tree(self, texts: tuple[str, ...]) -> int:
        if texts not in self._numbers:
            tree = self._grow(texts)
            if tree is None:
                return UNBOOSTED
            self._numbers[texts] = self._trees.add_model(tree, alpha=ALPHA)
        self._numbers.move_to_end(texts)
        return self._numbers[texts]

    def _grow(self, texts: tuple[str, ...]) -> GPUBoostingTreeModel | None:
        # The heaviest first: a beginning that phrases share has the score that it was first given.
        hotwords = sorted(map(read_hotword, texts), key=lambda hotword: -hotword.weight)
        spelled = [(ids, weight) for phrase, weight in hotwords for ids in self._spellings(phrase)]
        if not spelled:
            return None
        graph = ContextGraph(context_score=TOKEN_SCORE, depth_scaling=DEPTH_SCALING)
        graph.build([ids for ids, _ in spelled], scores=[TOKEN_SCORE * weight for _, weight in spelled])
        return GPUBoostingTreeModel.from_context_graph(graph, vocab_size=self._vocabulary, uniform_weights=False)

    def _spellings(self, phrase: str) -> list[list[int]]:
        """Return the token ids of what the model may write for `phrase`, in each case that its alphabet has."""
        for text in _simplified(phrase):
            cases = dict.fromkeys((text, text.lower(), text[:1].upper() + text[1:].lower(), text.title()))
            spellings = {tuple(self._tokenizer.text_to_ids(case)): None for case in cases}
            known = [list(ids) for ids in spellings if ids and self._tokenizer.unk_id not in ids]
            if known:
                return known
        return []


def _simplified(phrase: str) -> Iterator[str]:
    """Yield `phrase`, then plainer and plainer: without accents, without punctuation."""
    yield phrase
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", phrase) if not unicodedata.combining(letter))
    yield plain
    for kept in ("'", ""):
        text = "".join(letter if letter.isalnum() or letter in kept else " " for letter in plain.replace("\u2019", "'"))
        yield " ".join(text.split())
