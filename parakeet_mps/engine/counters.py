"""What a recogniser counts, for metrics."""

from __future__ import annotations

COUNTERS = {
    "batches": "Batches recognised.",
    "utterances": "Utterances recognised.",
    "graph_hits": "Batches encoded by a captured CUDA graph.",
    "graph_misses": "Batches encoded eagerly although graphs are in use: no bucket had room.",
    "padded_frames": "Encoder frames computed.",
    "true_frames": "Encoder frames computed that belong to an utterance.",
    "decoder_graph_misses": "Batches decoded eagerly although graphs are in use: larger than what was captured.",
    "boosting_graphs_lost": "Times the storage of phrases moved, after which boosted batches are decoded eagerly.",
    "self_test_failed": "Fast paths that the start-up self-test turned off because what they computed differed.",
}
"""Name and help of every counter. All of them only rise."""


class Counters:
    """Counts by name, all of them from the start. Added to by one thread, the recogniser's; any may read."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(COUNTERS, 0.0)

    def add(self, name: str, amount: float = 1.0) -> None:
        """Add `amount` to the counter `name`. Raises `KeyError` for one that is not in `COUNTERS`."""
        self._counts[name] += amount

    def read(self) -> dict[str, float]:
        """Return every counter by name."""
        return dict(self._counts)
