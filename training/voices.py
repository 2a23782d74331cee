"""The synthetic voices: espeak-ng variants and flite voices, spoken by their command-line programs.

One process speaks one utterance, because the espeak-ng library can hang when one process changes accents often.
"""

from __future__ import annotations

import io
import random
import subprocess
import tempfile
import wave
from pathlib import Path

import numpy as np
import soxr

SAMPLE_RATE_HZ = 16_000

ACCENTS = ("en-gb", "en-gb", "en-us", "en-us", "en-gb-x-rp")
NAMED_VARIANTS = "adam linda Andy Annie anika edward michel steph robert max belinda"
NUMBERED_VARIANTS = "f1 f2 f3 f5 m1 m2 m3 m4 m6 m7 m8 klatt klatt2 klatt4"
VARIANTS = ("", "", "", *(f"+{name}" for name in f"{NUMBERED_VARIANTS} {NAMED_VARIANTS}".split()))

FLITE = ("slt", "awb", "kal16", "kal")
FLITE_SHARE = 0.2

HELD_OUT_ESPEAK = ("en-us+f4", "en-gb+m5")
HELD_OUT_FLITE = "rms"


def espeak_voice(rng: random.Random) -> str:
    """Draw one of the trained espeak-ng voices."""
    return rng.choice(ACCENTS) + rng.choice(VARIANTS)


def trained_voice(rng: random.Random) -> str:
    """Draw one of the trained voices, flite's among them."""
    return rng.choice(FLITE) if rng.random() < FLITE_SHARE else espeak_voice(rng)


def speak(text: str, voice: str, rng: random.Random) -> np.ndarray:
    """Return int16 [samples] at 16 kHz of `text` in `voice` (a flite name, or an espeak-ng one), at a random pace."""
    wav = _flite(text, voice, rng) if voice in (*FLITE, HELD_OUT_FLITE) else _espeak(text, voice, rng)
    with wave.open(io.BytesIO(wav)) as reader:
        rate = reader.getframerate()
        samples = np.frombuffer(reader.readframes(10**9), dtype=np.int16)
    return samples if rate == SAMPLE_RATE_HZ else soxr.resample(samples, rate, SAMPLE_RATE_HZ)


def _espeak(text: str, voice: str, rng: random.Random) -> bytes:
    pace, pitch, gap = rng.randint(135, 200), rng.randint(35, 65), rng.choice((0, 0, 0, 1, 3))
    command = ["espeak-ng", "-v", voice, "-s", str(pace), "-p", str(pitch), "-g", str(gap), "--stdout", text]
    return subprocess.run(command, check=True, capture_output=True).stdout


def _flite(text: str, voice: str, rng: random.Random) -> bytes:
    stretch = f"duration_stretch={rng.uniform(0.8, 1.2):.2f}"
    with tempfile.NamedTemporaryFile(suffix=".wav") as out:
        subprocess.run(["flite", "-voice", voice, "--setf", stretch, "-t", text, "-o", out.name], check=True)
        return Path(out.name).read_bytes()
