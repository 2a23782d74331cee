"""Plain WAVs are read without FFmpeg, and sound the same as if FFmpeg had read them."""

from __future__ import annotations

import numpy as np
import pytest

from kinds import wav_header
from parakeet_mps.audio.plain_wav import plain_wav
from parakeet_mps.audio.recording import Recording
from parakeet_mps.audio.source import Source
from parakeet_mps.errors import AudioError
from recordings import samples_wav

NOISE = np.random.default_rng(7).integers(-(2**15), 2**15, 3 * 16_000, dtype=np.int16).tobytes()
WAV = samples_wav(NOISE)
FOR_FFMPEG = b"LIST\x04\x00\x00\x00INFO"
"""Behind the samples, this leaves a WAV to FFmpeg."""


def is_plain(data: bytes) -> bool:
    with Source.of(data) as source:
        return plain_wav(source) is not None


def decoded(data: bytes, max_audio_s: float = 60) -> tuple[np.ndarray, str | None]:
    with Source.of(data) as source:
        recording = Recording(source, max_audio_s)
        return np.concatenate(list(recording.blocks())), recording.warning


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 22_050, 44_100, 48_000])
def test_every_sample_is_the_one_that_ffmpeg_reads(rate_hz: int) -> None:
    wav = samples_wav(NOISE, rate_hz)
    assert is_plain(wav)
    assert not is_plain(wav + FOR_FFMPEG)
    plain, by_ffmpeg = decoded(wav), decoded(wav + FOR_FFMPEG)
    assert np.array_equal(plain[0], by_ffmpeg[0])
    assert plain[1] is by_ffmpeg[1] is None


def test_chunks_before_the_samples_are_skipped() -> None:
    wav = WAV[:36] + b"LIST\x05\x00\x00\x00INFOx\0" + WAV[36:]
    assert is_plain(wav)
    assert np.array_equal(decoded(wav)[0], decoded(WAV)[0])


def test_padding_behind_the_samples_is_left_out() -> None:
    assert is_plain(WAV + b"\0")
    assert np.array_equal(decoded(WAV + b"\0")[0], decoded(WAV)[0])


UNUSUAL = {
    "two channels": samples_wav(NOISE, channels=2),
    "cut short": WAV[:-2],
    "cut inside a sample": WAV[:-1],
    "something behind": WAV + FOR_FFMPEG,
    "unknown size": WAV[:40] + b"\xff\xff\xff\xff" + NOISE,
    "no size": wav_header(0) + NOISE,
    "half a sample": wav_header(len(NOISE) - 1) + NOISE[:-1],
    "float": WAV[:20] + b"\3" + WAV[21:],
    "8-bit": WAV[:34] + b"\x08" + WAV[35:],
    "no format": WAV[:12] + WAV[36:],
    "two formats": WAV[:36] + WAV[12:],
    "no samples": WAV[:30],
    "empty": b"",
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_whatever_is_unusual_is_left_to_ffmpeg(name: str) -> None:
    assert not is_plain(UNUSUAL[name])


def test_the_limits_are_those_of_all_recordings() -> None:
    with pytest.raises(AudioError, match="lasts 3 s"):
        decoded(WAV, max_audio_s=1)
    with pytest.raises(AudioError, match="too short"):
        decoded(samples_wav(NOISE[:100]))
    with pytest.raises(AudioError, match="sample rate"):
        decoded(samples_wav(NOISE, rate_hz=900))
