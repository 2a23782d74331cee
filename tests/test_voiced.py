"""What counts as sound that a recogniser should have found words in."""

from __future__ import annotations

import pytest
import torch

from parakeet_mps.audio import decode
from parakeet_mps.contract import SAMPLE_RATE_HZ
from parakeet_mps.gateway.voiced import is_voiced
from recordings import speech


def noise(seconds: float, level: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(int(seconds * SAMPLE_RATE_HZ), generator=generator) * level


def tone(seconds: float) -> torch.Tensor:
    return 0.3 * torch.sin(torch.arange(int(seconds * SAMPLE_RATE_HZ)) * 0.2)


@pytest.mark.parametrize("gain", [1.0, 0.1])
def test_speech_is_voiced_also_when_it_is_quiet_or_in_noise(gain: float) -> None:
    spoken = decode(speech(), max_audio_s=60) * gain
    assert is_voiced(spoken)
    assert is_voiced(spoken + noise(60, 0.003 * gain)[: spoken.numel()])


@pytest.mark.parametrize(
    "sound",
    [
        torch.zeros(SAMPLE_RATE_HZ * 5),
        torch.zeros(10),
        torch.zeros(0),
        noise(5, 0.001),
        noise(5, 0.1),
        tone(5),
        torch.cat([torch.zeros(SAMPLE_RATE_HZ * 2), tone(0.3), torch.zeros(SAMPLE_RATE_HZ * 2)]),
    ],
    ids=["silence", "a few samples", "nothing", "faint noise", "loud noise", "hum", "a beep"],
)
def test_silence_steady_sound_and_short_sound_are_not(sound: torch.Tensor) -> None:
    assert not is_voiced(sound)
