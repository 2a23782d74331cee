"""The transcript of one recording, its renderings, and the events that tell it while it comes into being."""

from parakeet_mps.transcripts.events import Event, Narration
from parakeet_mps.transcripts.renderings import Detail, ResponseFormat, render
from parakeet_mps.transcripts.transcript import Granularity, Segment, Transcript

__all__ = ["Detail", "Event", "Granularity", "Narration", "ResponseFormat", "Segment", "Transcript", "render"]
