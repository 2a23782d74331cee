"""Recordings of any length: cut at quiet points into pieces that the recogniser takes, and put together again."""

from parakeet_mps.pieces.cutting import Cutter, Piece
from parakeet_mps.pieces.joining import Joiner, Part, merge

__all__ = ["Cutter", "Joiner", "Part", "Piece", "merge"]
