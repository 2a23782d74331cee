"""Uploaded bytes become a waveform, or a clear refusal."""

from __future__ import annotations

import os
import struct
import subprocess
import time
from pathlib import Path

import pytest
import torch

from parakeet_mps.audio import decode, downmix
from parakeet_mps.contract import SAMPLE_RATE_HZ
from parakeet_mps.errors import AudioError
from recordings import duration_s, encoded, piped, samples_wav, speech

MAX_AUDIO_S = 60.0

# suffix, FFmpeg options, least correlation with the original
FORMATS = {
    "wav 16 bit": ("wav", (), 0.999),
    "wav 8 bit": ("wav", ("-c:a", "pcm_u8"), 0.99),
    "wav 24 bit": ("wav", ("-c:a", "pcm_s24le"), 0.999),
    "wav float": ("wav", ("-c:a", "pcm_f32le"), 0.999),
    "wav mu-law": ("wav", ("-c:a", "pcm_mulaw"), 0.99),
    "wav 48 kHz stereo": ("wav", ("-ar", "48000", "-ac", "2"), 0.999),
    "mp3": ("mp3", (), 0.98),
    "m4a, index at the end": ("m4a", (), 0.98),
    "m4a, index in front": ("m4a", ("-movflags", "+faststart"), 0.98),
    "mp4, fragmented": ("mp4", ("-movflags", "frag_keyframe+empty_moov"), 0.98),
    "webm opus": ("webm", (), 0.95),
    "ogg opus": ("ogg", ("-c:a", "libopus"), 0.95),
    "ogg vorbis": ("ogg", ("-c:a", "libvorbis"), 0.95),
    "flac": ("flac", (), 0.999),
    "aac": ("aac", (), 0.98),
    "aiff": ("aiff", (), 0.999),
    "matroska, starting at 1000 s": ("mka", ("-output_ts_offset", "1000"), 0.95),
}


def correlation(one: torch.Tensor, other: torch.Tensor) -> float:
    """Best correlation over shifts: encoders add up to a few frames in front."""
    size = 1 << (one.numel() + other.numel()).bit_length()
    cross = torch.fft.irfft(torch.fft.rfft(one, size) * torch.fft.rfft(other, size).conj(), size)
    return float(cross.max() / (one.norm() * other.norm()))


def refusal(data: bytes, max_audio_s: float = MAX_AUDIO_S) -> str:
    began_at = time.perf_counter()
    with pytest.raises(AudioError) as caught:
        decode(data, max_audio_s)
    assert time.perf_counter() - began_at < 1.0
    assert "torchcodec" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize("name", FORMATS)
def test_every_common_format_decodes_to_the_same_speech(name: str) -> None:
    suffix, options, least = FORMATS[name]
    waveform = decode(encoded(speech(), suffix, *options), MAX_AUDIO_S)
    reference = decode(speech(), MAX_AUDIO_S)
    assert waveform.dtype == torch.float32
    assert waveform.ndim == 1
    assert waveform.is_contiguous()
    assert waveform.numel() / SAMPLE_RATE_HZ == pytest.approx(duration_s(speech()), abs=0.1)
    assert float(waveform.abs().max()) <= 1.0
    assert correlation(waveform, reference) > least


@pytest.mark.parametrize("container", ["wav", "webm", "ogg", "mp3", "adts"])
def test_a_stream_without_sizes_in_its_header_decodes(container: str) -> None:
    waveform = decode(piped(speech(), container), MAX_AUDIO_S)
    assert waveform.numel() / SAMPLE_RATE_HZ == pytest.approx(duration_s(speech()), abs=0.1)


def test_sixteen_kilohertz_pcm_passes_sample_by_sample() -> None:
    values = [0, 1000, -1000, 32767, -32768] * 1000
    waveform = decode(samples_wav(struct.pack(f"<{len(values)}h", *values)), MAX_AUDIO_S)
    assert torch.equal(waveform, torch.tensor(values) / 32768)


def test_the_audio_track_of_a_video_is_used() -> None:
    video = encoded(speech(), "mkv", "-f", "lavfi", "-i", "color=size=64x64:rate=5", "-shortest")
    waveform = decode(video, MAX_AUDIO_S)
    assert waveform.numel() / SAMPLE_RATE_HZ == pytest.approx(duration_s(speech()), abs=0.25)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 6, 7, 8])
def test_one_to_eight_channels_become_one(channels: int) -> None:
    wav = encoded(speech(), "wav", "-af", f"pan={channels}c|" + "|".join(f"c{i}=c0" for i in range(channels)))
    assert correlation(decode(wav, MAX_AUDIO_S), decode(speech(), MAX_AUDIO_S)) > 0.999


def test_out_of_phase_stereo_does_not_vanish() -> None:
    wav = encoded(speech(), "wav", "-af", "pan=stereo|c0=c0|c1=-1*c0")
    assert float(decode(wav, MAX_AUDIO_S).abs().max()) > 0.3


def test_speakers_on_different_channels_are_both_kept() -> None:
    left, right = torch.randn(2, 16_000, generator=torch.Generator().manual_seed(1)) / 10
    mixed = downmix(torch.stack([left, right]))
    assert torch.allclose(mixed, (left + right) / 2)


def test_float_samples_beyond_full_scale_are_scaled_down() -> None:
    loud = encoded(speech(), "wav", "-af", "volume=20dB", "-c:a", "pcm_f32le")
    waveform = decode(loud, MAX_AUDIO_S)
    assert float(waveform.abs().max()) == pytest.approx(1.0)
    assert correlation(waveform, decode(speech(), MAX_AUDIO_S)) > 0.999


def test_an_empty_file_is_refused() -> None:
    assert "empty" in refusal(b"")


def test_text_is_refused() -> None:
    assert "text" in refusal(b"The patient said nothing of the kind.\n" * 3000)


def test_random_bytes_are_refused() -> None:
    assert "not audio" in refusal(bytes([0xFE]) + os.urandom(1 << 20))


def test_a_wav_cut_short_is_refused_with_both_sizes() -> None:
    assert "cut short" in refusal(speech()[: len(speech()) // 2])


def test_a_wav_without_samples_is_refused() -> None:
    assert "no samples" in refusal(samples_wav(b""))


def test_a_wav_of_empty_chunks_without_end_is_refused() -> None:
    assert "no samples" in refusal(b"RIFF\0\0\0\0WAVE" + bytes(64 << 20))


@pytest.mark.parametrize("suffix", ["m4a", "flac"])
def test_other_formats_that_end_too_early_are_refused(suffix: str) -> None:
    audio = encoded(speech(), suffix)
    assert "cut short" in refusal(audio[: len(audio) // 2])


def test_a_video_without_sound_is_refused() -> None:
    silent_film = [
        "ffmpeg",
        "-v",
        "error",
        "-f",
        "lavfi",
        "-i",
        "color=size=64x64:duration=1",
        "-f",
        "matroska",
        "pipe:",
    ]
    film = subprocess.run(silent_film, check=True, capture_output=True).stdout
    assert "no audio track" in refusal(film)


def test_samples_that_are_not_numbers_are_refused() -> None:
    wav = bytearray(encoded(speech(), "wav", "-c:a", "pcm_f32le"))
    wav[-4000:-3996] = struct.pack("<f", float("nan"))
    assert "not numbers" in refusal(bytes(wav))


def test_less_than_a_tenth_of_a_second_is_refused() -> None:
    assert "too short" in refusal(samples_wav(bytes(2 * 1599)))
    assert decode(samples_wav(bytes(2 * 1600)), MAX_AUDIO_S).numel() == 1600


def test_audio_of_just_the_limit_is_accepted_and_more_is_refused() -> None:
    limit_s = 2.0
    assert decode(samples_wav(bytes(2 * 32_000)), limit_s).numel() == 32_000
    assert "at most 2 s" in refusal(samples_wav(bytes(2 * 32_001)), limit_s)


def test_a_header_that_announces_far_too_much_is_refused_before_decoding() -> None:
    assert "lasts 600 s" in refusal(samples_wav(bytes(2 * 600 * 8000), rate_hz=8000))


def test_a_stream_that_hides_its_length_is_decoded_no_further_than_the_limit() -> None:
    silence = piped(samples_wav(bytes(2 * 16_000 * 300)), "flac")  # compresses 300 s to some kilobytes
    assert "too long" in refusal(silence, max_audio_s=5.0)


@pytest.mark.parametrize("prefix", [b"", b"ID3\x03\x00\x00\x00\x00\x00\x10" + bytes(16)])
@pytest.mark.parametrize(
    "playlist",
    [b"ffconcat version 1.0\nfile secret.wav\n", b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nsecret.wav\n"],
)
def test_a_playlist_cannot_reach_other_files(
    prefix: bytes, playlist: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret.wav").write_bytes(speech())
    monkeypatch.chdir(tmp_path)
    refusal(prefix + playlist + bytes([0xFF] * 64))
