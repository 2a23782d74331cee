"""Recordings made on the spot: espeak-ng speaks, FFmpeg encodes."""

from __future__ import annotations

import functools
import io
import subprocess
import tempfile
import wave
from pathlib import Path

SENTENCE = "the patient has a cough and a mild fever since tuesday"


@functools.cache
def speech(text: str = SENTENCE) -> bytes:
    """Return a WAV, 16-bit mono at 22.05 kHz, with right sizes in its header, which espeak-ng does not know."""
    spoken = subprocess.run(["espeak-ng", "--stdout", text], check=True, capture_output=True).stdout
    return samples_wav(spoken[44:], 22_050)


@functools.cache
def encoded(audio: bytes, suffix: str, *options: str) -> bytes:
    """Return the audio in another format, written by FFmpeg to a seekable file `x.<suffix>`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x.{suffix}"
        command = ["ffmpeg", "-v", "error", "-i", "pipe:", *options, "-bitexact", str(path)]
        subprocess.run(command, check=True, capture_output=True, input=audio)
        return path.read_bytes()


def piped(audio: bytes, container: str, *options: str) -> bytes:
    """Return the audio written by FFmpeg to a pipe, so that the header knows no sizes."""
    command = ["ffmpeg", "-v", "error", "-i", "pipe:", *options, "-f", container, "pipe:"]
    return subprocess.run(command, check=True, capture_output=True, input=audio).stdout


def samples_wav(samples: bytes, rate_hz: int = 16_000, channels: int = 1) -> bytes:
    """Return 16-bit little-endian samples as a WAV."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(2)
        writer.setframerate(rate_hz)
        writer.writeframes(samples)
    return file.getvalue()


LONG = samples_wav((bytes(range(1, 251)) * 384 + bytes(32_000)) * 5)
"""Five hums of 3 s, each followed by a second of silence."""


def duration_s(wav: bytes) -> float:
    """Return the duration that the WAV's header gives."""
    with wave.open(io.BytesIO(wav)) as reader:
        return reader.getnframes() / reader.getframerate()
