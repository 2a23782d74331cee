"""Segments as subtitles: SubRip and WebVTT.

https://www.w3.org/TR/webvtt1/
"""

from __future__ import annotations

from collections.abc import Sequence

from parakeet_mps.transcripts.segmentation import lines
from parakeet_mps.transcripts.transcript import Segment


def srt(segments: Sequence[Segment]) -> str:
    """Return the segments as a SubRip file."""
    cues = (
        f"{number}\n{_span(segment, ',')}\n{_cue_text(segment)}\n" for number, segment in enumerate(segments, start=1)
    )
    return "\n".join(cues)


def vtt(segments: Sequence[Segment]) -> str:
    """Return the segments as a WebVTT file."""
    cues = (f"{_span(segment, '.')}\n{_escaped(_cue_text(segment))}\n" for segment in segments)
    return "\n".join(["WEBVTT\n", *cues])


def _cue_text(segment: Segment) -> str:
    """Wrap the text; the arrow would end a cue's text in some players."""
    return "\n".join(lines(segment.text)).replace("-->", "->")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _span(segment: Segment, point: str) -> str:
    start_ms = round(segment.start * 1000)
    end_ms = max(round(segment.end * 1000), start_ms + 1)  # WebVTT wants the end after the start
    return f"{_clock(start_ms, point)} --> {_clock(end_ms, point)}"


def _clock(time_ms: int, point: str) -> str:
    seconds, milliseconds = divmod(time_ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{milliseconds:03}"
