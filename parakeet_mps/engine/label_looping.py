"""NeMo's greedy TDT decoder ("label looping"), with its CUDA graphs captured once, at the largest shape.

NeMo captures anew whenever a batch is larger than what the last capture was for, in the middle of a request. Here the
state is allocated for the largest batch before the first request, and capturing after that is an error.
https://arxiv.org/abs/2406.06220
"""

from __future__ import annotations

from typing import Any

import torch

from parakeet_mps.engine.counters import Counters
from parakeet_mps.engine.hypotheses import Hypothesis, read_hypotheses

GRAPHS = "no_while_loops"
"""Not NeMo's one graph with the loops inside, which spoils the process (NeMo 3.0.0, `cuda_python_utils`).

It captures the loops' bodies on streams that PyTorch does not count as part of the capture, so their memory may be
given to others, and the next capture unmaps it. And it writes the compiler's log over `b" "`, an object that all of
Python shares: then a byte 32 reads as 0, and what is loaded next comes out damaged:
https://github.com/NVIDIA-NeMo/NeMo/issues/15423
"""


class LabelLooping:
    """Decodes batches by a `nemo...GreedyBatchedTDTLabelLoopingComputer`, eagerly until `fix` is called."""

    def __init__(self, computer: Any, counters: Counters) -> None:
        self._computer = computer
        self._counters = counters
        self._largest: tuple[int, int] | None = None

    @torch.inference_mode()
    def fix(self, utterances: int, frames: int, like: torch.Tensor) -> None:
        """Capture the decoder's graphs for batches of up to this shape, once and for all.

        `like` has the encoder's channels as its last dimension, its dtype and device. Without CUDA nothing is done.
        """
        if self._computer.cuda_graphs_mode is None or like.device.type != "cuda":
            return
        encoded = like.new_zeros(utterances, frames, like.shape[-1])
        lengths = torch.ones(utterances, dtype=torch.int64, device=like.device)
        self._computer.force_cuda_graphs_mode(GRAPHS)
        self._computer.cuda_graphs_impl(encoder_output=encoded, encoder_output_length=lengths)
        self._computer._graph_reinitialize = _refuse
        self._largest = (utterances, frames)

    def lose(self) -> None:
        """Give up the graphs, because tensors that they hold have moved; decode eagerly from now on."""
        self._largest = None
        self._computer.disable_cuda_graphs()

    def __call__(
        self, encoded: torch.Tensor, lengths: torch.Tensor, trees: torch.Tensor | None = None
    ) -> list[Hypothesis]:
        """Return the hypotheses of `encoded` [utterances, frames, channels] with `lengths` int64 [utterances].

        `trees` int64 [utterances] numbers each utterance's boosting tree, for a computer that has them.
        """
        graphed = self._fits(encoded)
        implementation = self._computer.cuda_graphs_impl if graphed else self._computer.torch_impl
        if self._largest and not graphed:
            self._counters.add("decoder_graph_misses")
        found, _ = implementation(encoder_output=encoded, encoder_output_length=lengths, multi_biasing_ids=trees)
        return read_hypotheses(found, len(encoded))

    def _fits(self, encoded: torch.Tensor) -> bool:
        return self._largest is not None and all(map(int.__le__, encoded.shape[:2], self._largest))


def _refuse(*_: object) -> None:
    raise RuntimeError("the decoder's CUDA graphs are captured before the first request, never in service")
