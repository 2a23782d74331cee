"""Mutated real recordings decode or are refused: no hang, no growth, no other error."""

from __future__ import annotations

import asyncio

from benchmarks.fuzz_decoder import fuzz
from kinds import corpus

FILES = 300


def test_mutated_recordings_decode_or_are_refused() -> None:
    findings = asyncio.run(fuzz(corpus(), FILES, seed=7, parallel=2))
    assert findings.faults() == []
    assert sum(findings.outcomes.values()) == FILES
