"""Whatever was recognised, every rendering is well-formed, and independent parsers read the same back."""

from __future__ import annotations

import io
import json
import math
from itertools import pairwise
from typing import Any

import srt
import webvtt
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.audio import (
    Transcription,
    TranscriptionTextDeltaEvent,
    TranscriptionTextDoneEvent,
    TranscriptionVerbose,
)

from parakeet_mps.contract import Recognition, Token, Word
from parakeet_mps.pieces import Part
from parakeet_mps.transcripts import Detail, Granularity, Narration, ResponseFormat, Transcript, render
from parakeet_mps.transcripts.segmentation import LINE_CHARACTERS, MAX_LINES, MAX_SEGMENT_S

LONGEST_S = 3 * 3600.0
BOTH = Detail(granularities=tuple(Granularity))

# What a vocabulary may hold, marks that subtitle formats use among it; never white space, which separates words.
letters = st.characters(exclude_categories=("C", "Z"))
texts = st.text(letters, min_size=1, max_size=12) | st.sampled_from(["-->", "<b>", "&amp;", "1", "WEBVTT", "x" * 90])


@st.composite
def part_lists(draw: st.DrawFn) -> list[Part]:
    """Consecutive parts of one recording, their words in order and inside them."""
    start_s, parts = draw(st.sampled_from([0.0, 59.9, LONGEST_S - 60])), []
    for _ in range(draw(st.integers(0, 3))):
        part = draw(recognitions())
        parts.append((start_s, part))
        start_s = round(start_s + part.duration, 4)
    return parts


@st.composite
def recognitions(draw: st.DrawFn) -> Recognition:
    at_ms, words, tokens = 0, [], []
    for text in draw(st.lists(texts, max_size=30)):
        start_ms = at_ms + draw(st.sampled_from([0, 0, 40, 250, 2_000]))
        at_ms = start_ms + draw(st.integers(1, 900))
        confidence = draw(st.floats(0, 1))
        words.append(Word(text, start_ms / 1000, at_ms / 1000, confidence))
        tokens.append(Token(f"▁{text}", len(tokens), start_ms / 1000, at_ms / 1000, confidence))
    text = " ".join(word.text for word in words)
    return Recognition(text, at_ms / 1000 + draw(st.sampled_from([0.0, 1.0])), tuple(tokens), tuple(words))


def transcript(parts: list[Part]) -> Transcript:
    return Transcript.of(parts, "english", ("cut short",))


def rendered(parts: list[Part], response_format: ResponseFormat) -> str:
    return render(transcript(parts), response_format, BOTH).decode()


@given(part_lists())
def test_segments_hold_every_word_once_in_order_and_fit_a_subtitle(parts: list[Part]) -> None:
    whole = transcript(parts)
    assert " ".join(segment.text for segment in whole.segments) == whole.text
    assert [t for segment in whole.segments for t in segment.tokens] == list(whole.tokens)
    for before, after in pairwise(whole.segments):
        assert before.start < before.end <= after.start
    for segment in whole.segments:
        assert segment.end - segment.start <= MAX_SEGMENT_S or " " not in segment.text


@given(part_lists())
def test_srt_says_the_same_to_an_independent_parser(parts: list[Part]) -> None:
    segments = transcript(parts).segments
    cues = list(srt.parse(rendered(parts, ResponseFormat.SRT), ignore_errors=False))
    assert [cue.index for cue in cues] == list(range(1, len(segments) + 1))
    for cue, segment in zip(cues, segments, strict=True):
        assert cue.content.split() == segment.text.replace("-->", "->").split()
        assert abs(cue.start.total_seconds() - segment.start) <= 0.001
        assert abs(cue.end.total_seconds() - segment.end) <= 0.001
        assert cue.start < cue.end
        lines = cue.content.split("\n")
        assert len(lines) <= MAX_LINES or " " not in segment.text
        assert all(len(line) <= LINE_CHARACTERS or " " not in line for line in lines)


@given(part_lists())
def test_vtt_says_the_same_to_an_independent_parser(parts: list[Part]) -> None:
    segments = transcript(parts).segments
    cues = list(webvtt.from_buffer(io.StringIO(rendered(parts, ResponseFormat.VTT))))
    for cue, segment in zip(cues, segments, strict=True):
        text = cue.raw_text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        assert text.split() == segment.text.replace("-->", "->").split()
        assert abs(cue.start_in_seconds - segment.start) <= 1
        assert cue.start < cue.end


@given(part_lists())
def test_json_is_what_openai_types(parts: list[Part]) -> None:
    plain = json.loads(render(transcript(parts), ResponseFormat.JSON, Detail(logprobs=True)))
    parsed = Transcription.model_validate(plain, strict=True)
    assert parsed.logprobs is not None
    assert "".join(part.token or "" for part in parsed.logprobs) == plain["text"]
    assert all(bytes(part["bytes"]).decode() == part["token"] for part in plain["logprobs"])
    assert all(math.isfinite(part["logprob"]) and part["logprob"] <= 0 for part in plain["logprobs"])


@given(part_lists())
def test_verbose_json_is_what_openai_types_with_real_values(parts: list[Part]) -> None:
    whole = json.loads(rendered(parts, ResponseFormat.VERBOSE_JSON))
    parsed = TranscriptionVerbose.model_validate(whole, strict=True)
    assert [word.word for word in parsed.words or ()] == whole["text"].split()
    for segment in parsed.segments or ():
        (start_s,) = [start_s for start_s, _ in parts if start_s <= segment.start + 0.0005][-1:]
        assert segment.seek == round(start_s * 100)
        assert segment.avg_logprob <= 0
        assert 0 <= segment.no_speech_prob <= 1
        assert segment.compression_ratio > 0
        assert segment.end <= parsed.duration
    assert whole["warnings"] == ["cut short"]


@given(part_lists(), st.booleans())
@settings(max_examples=50)
def test_events_tell_the_transcript(parts: list[Part], verbose: bool) -> None:
    narration = Narration(Detail(granularities=tuple(Granularity), logprobs=not verbose), verbose=verbose)
    deltas: list[Any] = [event for part in parts if (event := narration.delta(*part))]
    done = narration.done(transcript(parts))
    for event in deltas:
        TranscriptionTextDeltaEvent.model_validate(event, strict=True)
    TranscriptionTextDoneEvent.model_validate(done, strict=True)
    assert "".join(event["delta"] for event in deltas) == done["text"] == transcript(parts).text
    for listed in ("words",) if verbose else ("logprobs",):
        assert [item for event in deltas for item in event[listed]] == done[listed]
    assert done["warnings"] == ["cut short"]
