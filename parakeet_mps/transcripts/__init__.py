"""The transcript of one recording, and its renderings."""

from parakeet_mps.transcripts.renderings import ResponseFormat, render
from parakeet_mps.transcripts.transcript import Granularity, Segment, Transcript

__all__ = ["Granularity", "ResponseFormat", "Segment", "Transcript", "render"]
