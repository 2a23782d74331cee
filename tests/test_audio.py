"""Recordings of every kind become a waveform, or a clear refusal."""

from __future__ import annotations

import io
import math
import os
import struct
import time
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from torchcodec.decoders import AudioDecoder

from kinds import KINDS, SENTENCE, Kind, png, recording, wav_header
from parakeet_mps.audio import decode
from parakeet_mps.audio.downmix import Downmix
from parakeet_mps.audio.recording import BLOCK_SAMPLES, Recording
from parakeet_mps.audio.source import Source
from parakeet_mps.contract import SAMPLE_RATE_HZ
from parakeet_mps.errors import AudioError
from recordings import duration_s, encoded, piped, samples_wav, speech
from references import references

MAX_AUDIO_S = 60.0

BY_NAME = {kind.name: kind for kind in KINDS}

CUT_SHORT = (
    *("WAV, 8-bit", "WAV, 16-bit", "WAV, float64", "WAV, mu-law", "WAV, WAVE_EXTENSIBLE", "WAV, RF64", "WAV, W64"),
    *("FLAC, 16-bit", "FLAC, written to a pipe", "MP3, constant bit rate", "MP3, VBR", "MP3, VBR without a header"),
    *("AAC, ADTS", "M4A, index in front", "MP4, fragmented", "WebM, Opus", "WebM, Opus without duration"),
    *("WebM, with video", "MKV, with video", "Ogg, Opus", "Ogg, Vorbis", "Ogg, chained, rates differ", "AIFF, 16-bit"),
    *("CAF, 16-bit", "AU, mu-law", "AMR, narrow band", "WMA, version 2", "AVI, with video"),
)

SILENT_FILM = ("-an", "-f", "lavfi", "-i", "color=size=64x64:duration=1", "-map", "1:v")


def decoded(data: bytes, max_audio_s: float = MAX_AUDIO_S) -> tuple[torch.Tensor, str | None]:
    """Return the waveform and the warning."""
    with Source.of(data) as source:
        recording = Recording(source, max_audio_s)
        return torch.from_numpy(np.concatenate(list(recording.blocks()))), recording.warning


def alignment(one: torch.Tensor, other: torch.Tensor) -> tuple[float, float]:
    """Return the best correlation over shifts, and that shift (s): encoders add up to two frames in front."""
    size = 1 << (one.numel() + other.numel()).bit_length()
    cross = torch.fft.irfft(torch.fft.rfft(one, size) * torch.fft.rfft(other, size).conj(), size)
    shift = int(cross.argmax())
    shift -= size if shift > size // 2 else 0
    return float(cross.max() / (one.norm() * other.norm())), shift / SAMPLE_RATE_HZ


def correlation(one: torch.Tensor, other: torch.Tensor) -> float:
    return alignment(one, other)[0]


def tone(hertz: float, seconds: float, rate_hz: int) -> torch.Tensor:
    return torch.sin(2 * math.pi * hertz * torch.arange(round(seconds * rate_hz), dtype=torch.float64) / rate_hz)


def pcm(waveform: torch.Tensor) -> bytes:
    return (waveform * 32767).round().to(torch.int16).numpy().tobytes()


def refusal(data: bytes, max_audio_s: float = MAX_AUDIO_S) -> str:
    began_at = time.perf_counter()
    with pytest.raises(AudioError) as caught:
        decode(data, max_audio_s)
    assert time.perf_counter() - began_at < 1.0
    return caught.value.message


# what decodes


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_of_recording_decodes_to_the_same_speech_at_the_same_time(kind: Kind) -> None:
    waveform, warning = decoded(recording(kind, speech(SENTENCE)))
    assert warning is None
    assert waveform.dtype == torch.float32
    assert float(waveform.abs().max()) <= 1.0
    assert waveform.numel() / SAMPLE_RATE_HZ == pytest.approx(duration_s(speech(SENTENCE)), abs=0.1)
    similarity, shift_s = alignment(waveform, decode(speech(SENTENCE), MAX_AUDIO_S))
    assert similarity > kind.least
    assert abs(shift_s) < 0.06


@pytest.mark.parametrize("name", ["WAV, 24-bit", "FLAC, 16-bit", "MP3, constant bit rate", "M4A, index at the end"])
def test_torchcodec_hears_the_same(name: str) -> None:
    data = recording(BY_NAME[name], speech())
    theirs = AudioDecoder(torch.frombuffer(bytearray(data), dtype=torch.uint8), sample_rate=SAMPLE_RATE_HZ)
    similarity, shift_s = alignment(decode(data, MAX_AUDIO_S), theirs.get_all_samples().data[0])
    assert similarity > 0.9999
    assert shift_s == 0


def test_sixteen_kilohertz_pcm_passes_sample_by_sample() -> None:
    values = [0, 1000, -1000, 32767, -32768] * 1000
    waveform = decode(samples_wav(struct.pack(f"<{len(values)}h", *values)), MAX_AUDIO_S)
    assert torch.equal(waveform, torch.tensor(values) / 32768)


@pytest.mark.parametrize("rate_hz", [44_100, 48_000, 192_000])
def test_resampling_keeps_what_is_heard_drops_what_would_fold_back_and_has_no_seams(rate_hz: int) -> None:
    seconds = 21.0
    heard = 0.25 * tone(1000, seconds, rate_hz)
    waveform = decode(samples_wav(pcm(heard + 0.25 * tone(15_100, seconds, rate_hz)), rate_hz), MAX_AUDIO_S)
    assert waveform.numel() == seconds * SAMPLE_RATE_HZ
    inside = slice(SAMPLE_RATE_HZ // 100, -SAMPLE_RATE_HZ // 100)
    residue = (waveform - 0.25 * tone(1000, seconds, SAMPLE_RATE_HZ))[inside]
    assert float(residue.abs().max()) < 0.25 * 1e-3


def test_blocks_last_ten_seconds_but_the_last() -> None:
    with Source.of(samples_wav(bytes(2 * 25 * SAMPLE_RATE_HZ))) as source:
        sizes = [block.size for block in Recording(source, MAX_AUDIO_S).blocks()]
    assert sizes == [BLOCK_SAMPLES, BLOCK_SAMPLES, BLOCK_SAMPLES // 2]


# where things lie in time


def test_sound_that_begins_later_than_the_picture_keeps_its_time() -> None:
    film = ("-f", "lavfi", "-i", "color=size=64x64:rate=10:duration=5")
    video = encoded(speech(), "mkv", *film, "-c:a", "flac", "-af", "asetpts=PTS+1.5/TB")
    _, shift_s = alignment(decode(video, MAX_AUDIO_S), decode(speech(), MAX_AUDIO_S))
    assert shift_s == pytest.approx(1.5, abs=0.01)


def test_a_pause_without_packets_is_silence() -> None:
    """A codec that sends nothing in silence, or lost packets, must not move what comes later."""
    file = io.BytesIO()
    with av.open(io.BytesIO(speech())) as reader, av.open(file, "w", format="matroska") as writer:
        stream = writer.add_stream("pcm_s16le", rate=22_050, layout="mono")
        for frame in reader.decode(audio=0):
            late = 2 * 22_050 if frame.time > 1 else 0
            frame.pts += late
            writer.mux(stream.encode(frame))
    waveform = decode(file.getvalue(), MAX_AUDIO_S)
    assert waveform.numel() / SAMPLE_RATE_HZ == pytest.approx(duration_s(speech()) + 2, abs=0.1)
    assert float(waveform[int(1.2 * SAMPLE_RATE_HZ) : int(2.9 * SAMPLE_RATE_HZ)].abs().max()) < 0.01


# channels and levels


def test_out_of_phase_stereo_does_not_vanish() -> None:
    waveform = decode(recording(BY_NAME["Channels, 2 out of phase"], speech()), MAX_AUDIO_S)
    assert float(waveform.norm() / decode(speech(), MAX_AUDIO_S).norm()) == pytest.approx(1, abs=0.01)


def test_speakers_on_different_channels_are_both_kept() -> None:
    left, right = torch.randn(2, 8000, generator=torch.Generator().manual_seed(1)).numpy() / 10
    assert np.allclose(Downmix(2).mix(np.stack([left, right])), (left + right) / 2, atol=1e-6)


def test_channels_that_fall_out_of_phase_later_are_heard_without_a_click() -> None:
    downmix = Downmix(2)
    mono = (0.3 * tone(200, 6, SAMPLE_RATE_HZ)).to(torch.float32).numpy()
    flipped = np.where(np.arange(mono.size) < mono.size // 2, mono, -mono)
    blocks = np.split(np.stack([mono, flipped]), 12, axis=1)
    mixed = np.concatenate([downmix.mix(block) for block in blocks])
    for block in np.split(mixed, 12)[6:]:
        assert np.abs(block).max() == pytest.approx(0.3, abs=0.01)
    assert np.abs(np.diff(mixed)).max() < 1.5 * np.abs(np.diff(mono)).max()


def test_float_samples_beyond_full_scale_are_scaled_down() -> None:
    loud = encoded(speech(), "wav", "-af", "volume=20dB", "-c:a", "pcm_f32le")
    waveform = decode(loud, MAX_AUDIO_S)
    assert float(waveform.abs().max()) == pytest.approx(1.0)
    assert correlation(waveform, decode(speech(), MAX_AUDIO_S)) > 0.999


def test_samples_that_are_not_numbers_are_refused() -> None:
    wav = bytearray(encoded(speech(), "wav", "-c:a", "pcm_f32le"))
    wav[-4000:-3996] = struct.pack("<f", float("nan"))
    assert "not numbers" in refusal(bytes(wav))


# cut short


@pytest.mark.parametrize("name", CUT_SHORT)
def test_what_is_there_of_a_file_cut_short_decodes_with_a_warning(name: str) -> None:
    data = recording(BY_NAME[name], speech())
    waveform, warning = decoded(data[: int(0.63 * len(data))])
    assert warning is not None
    assert "cut short" in warning
    assert 0.25 < waveform.numel() / SAMPLE_RATE_HZ / duration_s(speech()) < 0.75


@pytest.mark.parametrize("left", [0, 1, 20, 43, 44, 45, 46, 46 + 2 * 1000])
def test_a_wav_cut_before_a_tenth_of_a_second_is_refused(left: int) -> None:
    assert refusal(speech()[:left])


@pytest.mark.parametrize("name", ["M4A, index at the end", "MP4, with video", "MOV, with video"])
def test_a_file_whose_index_did_not_come_is_refused_with_that_reason(name: str) -> None:
    data = recording(BY_NAME[name], speech())
    assert "no usable index" in refusal(data[: int(0.63 * len(data))])


@pytest.mark.parametrize("name", ["Ogg, Opus", "Ogg, Vorbis", "Ogg, Speex"])
def test_an_ogg_file_cut_between_two_pages_decodes_with_a_warning(name: str) -> None:
    data = recording(BY_NAME[name], speech())
    waveform, warning = decoded(data[: data.rindex(b"OggS")])
    assert waveform.numel() > SAMPLE_RATE_HZ
    assert "cut short" in (warning or "")
    assert "more than" in (warning or "")


def test_a_damaged_stretch_is_left_out_with_a_warning() -> None:
    data = bytearray(recording(BY_NAME["M4A, index in front"], speech()))
    data[len(data) // 2 : len(data) // 2 + 2000] = bytes([0xFF]) * 2000
    waveform, warning = decoded(bytes(data))
    assert warning is not None
    assert "damaged" in warning
    assert waveform.numel() / SAMPLE_RATE_HZ == pytest.approx(duration_s(speech()), abs=0.5)


# what is refused


def test_an_empty_file_is_refused() -> None:
    assert "empty" in refusal(b"")


def test_text_is_refused() -> None:
    assert "text" in refusal(b"The patient said nothing of the kind.\n" * 3000)


def test_random_bytes_are_refused() -> None:
    assert "not audio" in refusal(bytes([0xFE]) + os.urandom(1 << 20))


def test_a_picture_is_refused() -> None:
    assert "not audio" in refusal(png(64))


@pytest.mark.parametrize("suffix", ["wav", "flac", "m4a", "ogg", "webm", "mp3", "aiff"])
def test_a_file_without_samples_is_refused(suffix: str) -> None:
    assert refusal(encoded(speech(), suffix, "-t", "0"))


def test_a_wav_without_samples_is_refused_with_that_reason() -> None:
    assert "no samples" in refusal(samples_wav(b""))
    assert "no samples" in refusal(wav_header(1000))


def test_a_wav_of_empty_chunks_without_end_is_refused() -> None:
    assert "no samples" in refusal(b"RIFF\0\0\0\0WAVE" + bytes(64 << 20))


@pytest.mark.parametrize("suffix", ["mkv", "mp4", "webm"])
def test_a_video_without_sound_is_refused(suffix: str) -> None:
    assert "no audio track" in refusal(encoded(speech(), suffix, *SILENT_FILM))


def test_cover_art_without_audio_is_refused() -> None:
    data = recording(BY_NAME["MP3, mislabelled cover art"], speech())
    assert "tags" in refusal(data[:100_000])


def test_more_than_eight_channels_are_refused() -> None:
    fmt = struct.pack("<HHIIHH", 1, 9, 16_000, 16_000 * 18, 18, 16)
    assert "9 channels" in refusal(wav_header(18 * 16_000, fmt=fmt) + bytes(18 * 16_000))


def test_less_than_a_tenth_of_a_second_is_refused() -> None:
    assert "too short" in refusal(samples_wav(bytes(2 * 1599)))
    assert decode(samples_wav(bytes(2 * 1600)), MAX_AUDIO_S).numel() == 1600


def test_audio_of_just_the_limit_is_accepted_and_more_is_refused() -> None:
    limit_s = 2.0
    assert decode(samples_wav(bytes(2 * 32_000)), limit_s).numel() == 32_000
    assert "at most 2 s" in refusal(samples_wav(bytes(2 * 32_001)), limit_s)


def test_a_header_that_announces_too_much_is_refused_before_decoding() -> None:
    assert "lasts 600 s" in refusal(samples_wav(bytes(2 * 600 * 8000), rate_hz=8000))


def test_a_stream_that_hides_its_length_is_decoded_no_further_than_the_limit() -> None:
    silence = piped(samples_wav(bytes(2 * 16_000 * 300)), "flac")  # compresses 300 s to some kilobytes
    assert "too long" in refusal(silence, max_audio_s=5.0)


def test_no_file_is_a_reference_to_another(tmp_path: Path) -> None:
    target = tmp_path / "canary.wav"
    target.write_bytes(speech())
    for data in references(str(target), speech()).values():
        refusal(data)
