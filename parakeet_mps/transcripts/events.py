"""A transcript told while it comes into being: OpenAI's `transcript.text.delta` and `transcript.text.done` events.

https://platform.openai.com/docs/api-reference/audio/transcript-text-delta-event
"""

from __future__ import annotations

from typing import Any

from parakeet_mps.contract import Recognition
from parakeet_mps.pieces import merge
from parakeet_mps.transcripts import documents
from parakeet_mps.transcripts.renderings import Detail
from parakeet_mps.transcripts.transcript import Granularity, Transcript

Event = dict[str, Any]


class Narration:
    """The events of one recording, whose parts are told in order.

    `verbose` adds, beyond OpenAI's fields, the words' times to each delta and what `verbose_json` tells to the last
    event.
    """

    def __init__(self, detail: Detail, verbose: bool = False) -> None:
        self._detail = detail
        self._verbose = verbose
        self._begun = False

    def delta(self, start_s: float, part: Recognition) -> Event | None:
        """Return the event of the part that begins at `start_s`, or None when nothing was said.

        The deltas of all parts, put together, are the text.
        """
        if not part.text:
            return None
        event: Event = {"type": "transcript.text.delta", "delta": f" {part.text}" if self._begun else part.text}
        if self._detail.logprobs:
            event["logprobs"] = documents.logprobs(part.tokens, first=not self._begun)
        if self._verbose and Granularity.WORD in self._detail.granularities:
            event["words"] = documents.words(merge([(start_s, part)]).words)
        self._begun = True
        return event

    def done(self, transcript: Transcript) -> Event:
        """Return the last event."""
        event: Event = {"type": "transcript.text.done", "text": transcript.text}
        if self._detail.logprobs:
            event["logprobs"] = documents.logprobs(transcript.tokens)
        if self._verbose:
            event |= documents.verbose(transcript, self._detail.granularities)
        elif transcript.warnings:
            event["warnings"] = list(transcript.warnings)
        return event | {"usage": documents.token_usage(transcript)}
