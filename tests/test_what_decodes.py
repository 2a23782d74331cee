"""Every kind of recording goes through the decoder and the recogniser, and its words come back exactly."""

from __future__ import annotations

import asyncio
import os
import tempfile
from typing import TYPE_CHECKING

import pytest
import torch

from kinds import KINDS, SENTENCE, Kind, recording, table
from parakeet_mps.checkpoint import ROOT
from parakeet_mps.gateway.decoding import Decoder
from recordings import speech

if TYPE_CHECKING:
    from parakeet_mps.engine.recognizer import Recognizer

BATCH = 16


async def decoded(decoder: Decoder, kind: Kind) -> torch.Tensor:
    with tempfile.TemporaryFile() as upload:
        upload.write(recording(kind, speech(SENTENCE)))
        async with decoder.open(upload) as decoded:
            return torch.cat([chunk async for chunk in decoded.chunks()])


@pytest.mark.skipif("MODEL" in os.environ, reason="the words are those of the demo recogniser")
def test_every_kind_of_recording_is_transcribed_word_for_word(recognizer: Recognizer) -> None:
    decoder = Decoder(max_audio_s=60)
    with asyncio.Runner() as runner:
        waveforms = [runner.run(decoded(decoder, kind)) for kind in KINDS]
    decoder.close()
    texts = [
        recognition.text
        for begin in range(0, len(KINDS), BATCH)
        for recognition in recognizer.recognize(waveforms[begin : begin + BATCH])
    ]
    assert {kind.name: text for kind, text in zip(KINDS, texts, strict=True) if text != SENTENCE} == {}


def test_the_readme_tables_what_decodes() -> None:
    assert table() in (ROOT / "README.md").read_text()
