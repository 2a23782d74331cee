"""Recognitions become segments, and segments the five OpenAI renderings."""

from __future__ import annotations

import json
import math
import re

import pytest
from openai.types.audio import TranscriptionVerbose

from fakes import HELLO
from parakeet_mps.contract import Recognition, Token, Word
from parakeet_mps.transcripts import Detail, Granularity, ResponseFormat, Segment, Transcript, render

NOTHING = Recognition(text="", duration=3.0)


def spoken(*texts: str, word_s: float = 0.3, gap_s: float = 0.1) -> Recognition:
    """Words one after another; a text `(pause)` stands for two seconds of silence."""
    words: list[Word] = []
    at = 0.0
    for text in texts:
        if text == "(pause)":
            at += 2.0
            continue
        words.append(Word(text, round(at, 3), round(at + word_s, 3), 0.9))
        at += word_s + gap_s
    tokens = tuple(Token(f"▁{word.text}", number, word.start, word.end, 0.9) for number, word in enumerate(words))
    return Recognition(" ".join(word.text for word in words), at, tokens, tuple(words))


def transcript(recognition: Recognition) -> Transcript:
    return Transcript.of([(0.0, recognition)], "english")


def segments(recognition: Recognition) -> tuple[Segment, ...]:
    return transcript(recognition).segments


def document(recognition: Recognition, *granularities: Granularity) -> dict[str, object]:
    detail = Detail(granularities=granularities)
    body: dict[str, object] = json.loads(render(transcript(recognition), ResponseFormat.VERBOSE_JSON, detail))
    return body


def text_of(recognition: Recognition, response_format: ResponseFormat) -> str:
    return render(transcript(recognition), response_format).decode()


def test_a_long_pause_starts_a_new_segment() -> None:
    first, second = segments(spoken("any", "pain", "(pause)", "not", "today"))
    assert (first.text, second.text) == ("any pain", "not today")
    assert first.end < second.start


def test_a_sentence_end_with_a_short_pause_starts_a_new_segment() -> None:
    assert [s.text for s in segments(spoken("any", "pain?", "none.", gap_s=0.25))] == ["any pain?", "none."]
    assert len(segments(spoken("dr.", "smith", gap_s=0.05))) == 1


def test_segments_fit_a_subtitle_and_keep_every_word() -> None:
    recognition = spoken(*(["temperature", "is", "normal"] * 120))
    cut = segments(recognition)
    assert " ".join(segment.text for segment in cut) == recognition.text
    assert all(segment.end - segment.start <= 7.0 for segment in cut)
    for cue in text_of(recognition, ResponseFormat.SRT).split("\n\n"):
        lines = cue.strip().split("\n")[2:]
        assert 1 <= len(lines) <= 2
        assert max(map(len, lines)) <= 42


def test_a_long_run_is_cut_at_its_widest_gap() -> None:
    words = [Word(f"w{i}", i * 1.0, i * 1.0 + 0.7, 0.9) for i in range(10)]
    words = [*words[:4], *(Word(w.text, w.start + 0.4, w.end + 0.4, 0.9) for w in words[4:])]
    first, second = segments(Recognition("x", 12.0, (), tuple(words)))
    assert (first.text, second.text) == ("w0 w1 w2 w3", "w4 w5 w6 w7 w8 w9")


def test_a_word_longer_than_a_subtitle_stands_alone_and_whole() -> None:
    word = "x" * 100
    assert [s.text for s in segments(spoken("a", word, "b"))] == ["a", word, "b"]


def test_a_thousand_words_without_a_gap_are_cut() -> None:
    assert sum(len(s.text.split()) for s in segments(spoken(*["so"] * 1000, gap_s=0.0))) == 1000


def test_every_token_belongs_to_exactly_one_segment() -> None:
    recognition = spoken("any", "pain", "(pause)", "not", "today")
    first, second = segments(recognition)
    assert [t.id for t in first.tokens] == [0, 1]
    assert [t.id for t in second.tokens] == [2, 3]


def test_text_without_word_times_is_one_segment() -> None:
    (segment,) = segments(Recognition("hello", 1.5))
    assert (segment.start, segment.end, segment.text) == (0.0, 1.5, "hello")


def test_segment_figures_come_from_the_tokens() -> None:
    (segment,) = segments(HELLO)
    assert segment.avg_logprob == pytest.approx(sum(map(math.log, (0.9, 0.8, 0.95, 0.7))) / 4)
    assert segment.no_speech_prob == pytest.approx(0.1 * 0.2 * 0.05 * 0.3)
    assert 0 < segment.compression_ratio < 1.5


def test_zero_confidence_gives_finite_figures() -> None:
    assert math.isfinite(Segment(0, 1, "a", (Token("▁a", 1, 0, 1, 0.0),)).avg_logprob)


def test_json_has_text_and_usage() -> None:
    body = json.loads(text_of(HELLO, ResponseFormat.JSON))
    assert body == {"text": "good morning doctor", "usage": {"type": "duration", "seconds": 2.0}}


def test_verbose_json_has_every_field_that_openai_types_require() -> None:
    body = document(HELLO, Granularity.WORD, Granularity.SEGMENT)
    parsed = TranscriptionVerbose.model_validate(body, strict=True)
    assert body["task"] == "transcribe"
    assert (parsed.language, parsed.duration, parsed.text) == ("english", 2.0, HELLO.text)
    assert parsed.words is not None
    assert [(w.word, w.start, w.end) for w in parsed.words] == [(w.text, w.start, w.end) for w in HELLO.words]
    assert parsed.segments is not None
    assert (parsed.segments[0].text, parsed.segments[0].tokens) == (HELLO.text, [11, 12, 13, 14])


def test_verbose_json_lists_what_was_asked_for() -> None:
    assert "words" not in document(HELLO, Granularity.SEGMENT)
    assert "segments" not in document(HELLO, Granularity.WORD)


def test_text_is_the_text_and_a_newline() -> None:
    assert text_of(HELLO, ResponseFormat.TEXT) == "good morning doctor\n"


def test_srt_numbers_its_cues_and_uses_commas() -> None:
    assert text_of(spoken("any", "pain", "(pause)", "no"), ResponseFormat.SRT) == (
        "1\n00:00:00,000 --> 00:00:00,700\nany pain\n\n2\n00:00:02,800 --> 00:00:03,100\nno\n"
    )


def test_vtt_has_its_header_and_uses_points() -> None:
    assert text_of(HELLO, ResponseFormat.VTT) == ("WEBVTT\n\n00:00:00.240 --> 00:00:01.440\ngood morning doctor\n")


def test_cue_times_go_beyond_an_hour_and_never_stand_still() -> None:
    late = Recognition("a", 4000.0, (), (Word("a", 3661.5, 3661.5, 0.9),))
    assert "01:01:01,500 --> 01:01:01,501" in text_of(late, ResponseFormat.SRT)


def test_cue_text_cannot_break_the_subtitle_format() -> None:
    odd = Recognition(
        "<b> --> &", 1.0, (), (Word("<b>", 0.0, 0.2, 0.9), Word("-->", 0.2, 0.4, 1), Word("&", 0.4, 1, 1))
    )
    assert len(re.findall("-->", text_of(odd, ResponseFormat.SRT))) == 1
    assert text_of(odd, ResponseFormat.VTT).endswith("&lt;b&gt; -&gt; &amp;\n")


def test_silence_renders_as_an_empty_transcript_in_every_format() -> None:
    assert json.loads(text_of(NOTHING, ResponseFormat.JSON))["text"] == ""
    assert document(NOTHING, Granularity.SEGMENT, Granularity.WORD) | {"segments": [], "words": []} == document(
        NOTHING, Granularity.SEGMENT, Granularity.WORD
    )
    assert text_of(NOTHING, ResponseFormat.TEXT) == "\n"
    assert text_of(NOTHING, ResponseFormat.SRT) == ""
    assert text_of(NOTHING, ResponseFormat.VTT) == "WEBVTT\n"


@pytest.mark.parametrize(
    ("response_format", "content_type"),
    [
        (ResponseFormat.JSON, "application/json"),
        (ResponseFormat.VERBOSE_JSON, "application/json"),
        (ResponseFormat.TEXT, "text/plain; charset=utf-8"),
        (ResponseFormat.SRT, "application/x-subrip; charset=utf-8"),
        (ResponseFormat.VTT, "text/vtt; charset=utf-8"),
    ],
)
def test_every_format_has_its_content_type(response_format: ResponseFormat, content_type: str) -> None:
    assert response_format.content_type == content_type
