"""Many channels -> one, block by block."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_RAMP_SAMPLES = 256
_MEMORY = 0.1
"""Share of the energies that is still remembered a block later."""
_OUT_OF_PHASE = 0.25
"""Unrelated channels keep sum(energies) / n^2 when averaged; less than this share of it means that they cancel out."""
_LOUDER = 2.0


class Downmix:
    """Averages the channels; while they cancel out, the loudest one is heard alone. Changes are faded."""

    def __init__(self, channels: int) -> None:
        self._channels = channels
        self._energies = np.zeros(channels)
        self._mixed_energy = 0.0
        self._alone: int | None = None
        self._gains: NDArray[np.float32] | None = None

    def mix(self, block: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the next float32 [channels, samples], about half a second, as float32 [samples]."""
        if self._channels == 1:
            only: NDArray[np.float32] = block[0]
            return only
        self._listen(block)
        gains = self._wanted_gains()
        before, self._gains = self._gains, gains
        mixed: NDArray[np.float32] = gains @ block
        if before is not None and not np.array_equal(before, gains):
            self._fade(before @ block[:, :_RAMP_SAMPLES], mixed)
        return mixed

    def _listen(self, block: NDArray[np.float32]) -> None:
        self._energies = _MEMORY * self._energies + np.square(block).sum(axis=1)
        self._mixed_energy = _MEMORY * self._mixed_energy + float(np.square(block.mean(axis=0)).sum())

    def _wanted_gains(self) -> NDArray[np.float32]:
        if not self._mixed_energy < _OUT_OF_PHASE * self._energies.sum() / self._channels**2:
            self._alone = None
            return np.full(self._channels, 1 / self._channels, np.float32)
        loudest = int(self._energies.argmax())
        if self._alone is None or self._energies[loudest] > _LOUDER * self._energies[self._alone]:
            self._alone = loudest
        gains = np.zeros(self._channels, np.float32)
        gains[self._alone] = 1.0
        return gains

    @staticmethod
    def _fade(before: NDArray[np.float32], mixed: NDArray[np.float32]) -> None:
        ramp = np.linspace(0, 1, len(before), endpoint=False, dtype=np.float32)
        mixed[: len(before)] = before * (1 - ramp) + mixed[: len(before)] * ramp
