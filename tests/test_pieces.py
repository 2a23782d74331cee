"""Cutting at quiet points, and joining what was recognised."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
import torch

from parakeet_mps.contract import MIN_SAMPLES, SAMPLE_RATE_HZ, Recognition, Token, Word
from parakeet_mps.pieces import Cutter, Joiner, Part, Piece, merge
from parakeet_mps.pieces.cutting import SHARED_S

PIECE_S = 6.0
BLOCK_S = 10.0


def talk(seconds: float, level: float = 0.2) -> torch.Tensor:
    """Return noise whose loudness changes as that of syllables, five a second, never silent."""
    count = round(seconds * SAMPLE_RATE_HZ)
    noise = torch.randn(count, generator=torch.Generator().manual_seed(count))
    rhythm = 0.55 + 0.45 * torch.sin(torch.arange(count) * (2 * torch.pi * 5 / SAMPLE_RATE_HZ))
    return noise * rhythm * level


def hush(seconds: float, level: float = 0.0) -> torch.Tensor:
    noise = torch.randn(round(seconds * SAMPLE_RATE_HZ), generator=torch.Generator().manual_seed(1))
    return noise * level


def cut(recording: torch.Tensor, piece_s: float = PIECE_S, block_s: float = BLOCK_S) -> list[Piece]:
    cutter = Cutter(piece_s)
    blocks = recording.split(round(block_s * SAMPLE_RATE_HZ))
    return [*itertools.chain.from_iterable(map(cutter.push, blocks)), *cutter.finish()]


def seconds(recording: torch.Tensor) -> float:
    return recording.numel() / SAMPLE_RATE_HZ


def heard(piece: Piece, recording: torch.Tensor) -> torch.Tensor:
    """Return the samples of the recording at the place where the piece says that it hears them."""
    begin = round(piece.heard_s * SAMPLE_RATE_HZ)
    return recording[begin : begin + piece.waveform.numel()]


RECORDINGS = {
    "one piece": talk(4),
    "exactly the limit": talk(PIECE_S),
    "pauses": torch.cat([part for length in (2, 3, 1, 4, 2.5, 5) for part in (talk(length), hush(0.4, 1e-4))]),
    "no pauses": talk(31.3),
    "long silences": torch.cat([hush(20), talk(3), hush(40), talk(2), hush(15)]),
    "steady noise": hush(30, 0.1),
    "silence": hush(30),
}


@pytest.mark.parametrize("name", RECORDINGS)
@pytest.mark.parametrize("block_s", [0.5, 10.0])
def test_pieces_follow_each_other_without_gaps_and_keep_to_the_limit(name: str, block_s: float) -> None:
    recording = RECORDINGS[name]
    pieces = cut(recording, block_s=block_s)
    assert pieces[0].start_s == 0
    assert pieces[-1].end_s == seconds(recording)
    assert all(before.end_s == after.start_s for before, after in itertools.pairwise(pieces))
    assert all(piece.start_s < piece.end_s for piece in pieces)
    assert all(piece.waveform.numel() <= PIECE_S * SAMPLE_RATE_HZ for piece in pieces)
    assert all(torch.equal(piece.waveform, heard(piece, recording)) for piece in pieces)


@pytest.mark.parametrize("name", RECORDINGS)
def test_cuts_do_not_depend_on_the_blocks(name: str) -> None:
    spans = [
        [(piece.start_s, piece.end_s) for piece in cut(RECORDINGS[name], block_s=block_s)] for block_s in (0.3, 7, 100)
    ]
    assert spans[0] == spans[1] == spans[2]


def test_a_recording_within_the_limit_is_one_piece() -> None:
    (piece,) = cut(talk(PIECE_S))
    assert torch.equal(piece.waveform, talk(PIECE_S))
    assert not piece.continued


def test_cuts_are_in_the_middle_of_pauses() -> None:
    first, second = cut(torch.cat([talk(3.5), hush(0.4, 1e-4), talk(4)]))
    assert first.end_s == pytest.approx(3.7, abs=0.03)
    assert not first.continued
    assert not second.continued


@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.02])
def test_pauses_are_found_in_noise(noise: float) -> None:
    recording = torch.cat([talk(4), hush(0.3), talk(4)])
    (first, _) = cut(recording + hush(seconds(recording), noise))
    assert first.end_s == pytest.approx(4.15, abs=0.05)


def test_a_long_pause_is_better_than_a_late_one() -> None:
    recording = torch.cat([talk(2), hush(0.6), talk(1), hush(0.2), talk(4)])
    assert cut(recording)[0].end_s == pytest.approx(2.3, abs=0.03)


def test_the_last_tenth_of_the_longest_piece_is_for_those_who_speak_on() -> None:
    recording = torch.cat([talk(3.5), hush(0.25), talk(1.5), hush(0.6), talk(4)])
    assert cut(recording)[0].end_s == pytest.approx(3.625, abs=0.03)
    assert cut(recording[SAMPLE_RATE_HZ * 2 :])[0].end_s == pytest.approx(3.55, abs=0.03)
    assert cut(torch.cat([talk(5.3), hush(0.3), talk(4)]))[0].end_s == pytest.approx(5.45, abs=0.03)


def test_the_closure_of_a_consonant_is_no_pause() -> None:
    recording = torch.cat([talk(4), hush(0.1), talk(4)])
    first, second = cut(recording)
    assert first.continued
    assert first.end_s == pytest.approx(4.05, abs=0.03)
    assert not second.continued


def test_both_pieces_hear_the_audio_around_a_cut_inside_speech() -> None:
    for before, after in itertools.pairwise(cut(RECORDINGS["no pauses"])):
        assert before.continued
        assert after.heard_s == pytest.approx(before.end_s - SHARED_S, abs=0.02)
        assert before.heard_s + seconds(before.waveform) == pytest.approx(before.end_s + SHARED_S, abs=0.02)


def test_digital_silence_has_nothing_to_recognise() -> None:
    pieces = cut(torch.cat([hush(20), talk(3), hush(40)]))
    assert sum(piece.waveform.numel() > 0 for piece in pieces) <= 2
    assert sum(seconds(piece.waveform) for piece in pieces) < 3.5


def test_silence_around_sounds_is_left_off() -> None:
    recording = torch.cat([hush(1, 5e-5), talk(3), hush(1, 5e-5)])
    (piece,) = cut(recording)
    assert piece.heard_s == pytest.approx(0.9, abs=0.021)
    assert seconds(piece.waveform) == pytest.approx(3.2, abs=0.03)


def test_a_faint_recording_keeps_its_sounds() -> None:
    (piece,) = cut(talk(3, level=2e-4))
    assert seconds(piece.waveform) == pytest.approx(3, abs=0.01)


def test_the_shortest_sound_makes_a_piece_that_is_long_enough() -> None:
    for at in (0, 1000, 1599, 3199):
        click = torch.zeros(3200)
        click[at] = 0.5
        (piece,) = cut(click)
        assert piece.waveform.numel() >= MIN_SAMPLES


def test_no_recording_has_no_pieces() -> None:
    assert cut(torch.zeros(0)) == []


def test_little_audio_is_held() -> None:
    cutter = Cutter(PIECE_S)
    for count in range(1, 30):
        pieces = list(cutter.push(talk(BLOCK_S)))
        assert count * BLOCK_S - pieces[-1].end_s < PIECE_S + 1
        assert all(piece.waveform.untyped_storage().nbytes() <= 4 * PIECE_S * SAMPLE_RATE_HZ for piece in pieces)


def recognition(*words: tuple[str, float, float], duration: float = 5.0) -> Recognition:
    return Recognition(
        " ".join(text for text, _, _ in words),
        duration,
        tuple(Token(f"▁{text}", 1, start, end, 0.9) for text, start, end in words),
        tuple(Word(text, start, end, 0.9) for text, start, end in words),
    )


def piece(start_s: float, end_s: float, heard_s: float | None = None, continued: bool = False) -> Piece:
    return Piece(start_s, end_s, torch.zeros(1), start_s if heard_s is None else heard_s, continued)


def joined(*pieces: tuple[Piece, Recognition]) -> list[Part]:
    joiner = Joiner()
    return [part for item in pieces for part in joiner.add(*item)]


def texts(parts: Iterable[Part]) -> list[str]:
    return [part.text for _, part in parts]


def times(recognition: Recognition) -> list[tuple[str, float, float]]:
    return [(word.text, word.start, word.end) for word in recognition.words]


def test_times_are_those_of_the_whole_recording() -> None:
    parts = joined(
        (piece(0, 5, heard_s=0.4), recognition(("good", 0.2, 0.5), ("morning", 0.5, 1))),
        (piece(5, 9.5), recognition(("doctor", 0.5, 1.25), duration=4.5)),
    )
    whole = merge(parts)
    assert times(whole) == [("good", 0.6, 0.9), ("morning", 0.9, 1.4), ("doctor", 5.5, 6.25)]
    assert [token.start for token in whole.tokens] == [0.6, 0.9, 5.5]
    assert whole.text == "good morning doctor"
    assert whole.duration == 9.5
    assert parts[1] == (5, recognition(("doctor", 0.5, 1.25), duration=4.5))


def test_one_piece_is_left_as_it_is() -> None:
    whole = recognition(("good", 0.2, 0.5))
    assert merge(joined((piece(0, 5), whole))) == whole


def test_pieces_without_words_add_time_only() -> None:
    parts = joined((piece(0, 5), Recognition("", 5)), (piece(5, 7), recognition(("yes", 1, 1.5), duration=2)))
    assert merge(parts) == recognition(("yes", 6, 6.5), duration=7)
    assert merge([]) == Recognition("", 0.0)


def test_a_part_is_final_only_when_the_next_piece_has_told_what_it_heard_of_it() -> None:
    joiner = Joiner()
    assert joiner.add(piece(0, 5, continued=True), recognition(("a", 1, 2))) == []
    assert len(joiner.add(piece(5, 9, heard_s=4), recognition(("b", 2, 3)))) == 2


def test_words_that_two_pieces_hear_come_once() -> None:
    parts = joined(
        (piece(0, 5, continued=True), recognition(("i", 3.9, 4.2), ("take", 4.3, 4.8), ("aspirin", 4.9, 5.6))),
        (
            piece(5, 9, heard_s=4),
            recognition(("take", 0.32, 0.8), ("aspirin", 0.88, 1.6), ("every", 1.7, 2), ("day", 2, 2.4)),
        ),
    )
    assert texts(parts) == ["i take aspirin", "every day"]
    whole = merge(parts)
    assert [word.start for word in whole.words] == [3.9, 4.3, 4.9, 5.7, 6.0]
    assert [token.text for token in whole.tokens] == ["▁i", "▁take", "▁aspirin", "▁every", "▁day"]
    assert whole.duration == 9


def test_a_word_that_is_cut_is_taken_from_the_piece_that_hears_it_whole() -> None:
    parts = joined(
        (piece(0, 5, continued=True), recognition(("take", 4.5, 5.1), ("one", 5.2, 5.5), ("mill", 5.6, 6))),
        (piece(5, 9, heard_s=4), recognition(("ache", 0.1, 1.1), ("one", 1.2, 1.5), ("milligram", 1.6, 2.4))),
    )
    assert texts(parts) == ["take one", "milligram"]


def test_the_same_word_said_twice_stays_twice() -> None:
    parts = joined(
        (piece(0, 5, continued=True), recognition(("very", 4.2, 4.6), ("very", 4.9, 5.3), ("bad", 5.4, 5.8))),
        (piece(5, 9, heard_s=4), recognition(("very", 0.2, 0.6), ("very", 0.9, 1.3), ("bad", 1.4, 1.8))),
    )
    assert merge(parts).text == "very very bad"


def test_pieces_that_agree_on_no_word_are_divided_at_the_cut() -> None:
    parts = joined(
        (piece(0, 5, continued=True), recognition(("one", 4.2, 4.8), ("two", 5.1, 5.6))),
        (piece(5, 9, heard_s=4), recognition(("won", 0.2, 0.8), ("too", 1.1, 1.6), ("three", 2, 2.5))),
    )
    assert texts(parts) == ["one", "too three"]


@pytest.mark.parametrize("late", [-0.25, -0.1, 0.0, 0.1, 0.25])
def test_words_never_overlap_at_a_seam(late: float) -> None:
    parts = joined(
        (piece(0, 5, continued=True), recognition(("one", 4.2, 4.9), ("two", 4.9, 5.4), ("three", 5.4, 5.9))),
        (
            piece(5, 9, heard_s=4),
            recognition(("one", 0.2 + late, 0.9 + late), ("two", 0.9 + late, 1.4 + late), ("three", 1.4 + late, 1.9)),
        ),
    )
    whole = merge(parts)
    assert whole.text == "one two three"
    assert all(before.end <= after.start for before, after in itertools.pairwise(whole.words))
    assert all(word.start < word.end for word in whole.words)
    assert all(0 <= word.start <= word.end <= part.duration for _, part in parts for word in part.words)
