"""The shipped recogniser hears what its card says it hears."""

import re
from pathlib import Path

import pytest

from evaluate import DEMO, measure
from testsets import TESTS

CARD = Path(__file__).parent.parent / "models" / "README.md"
ROW = re.compile(r"^\| (?P<condition>[^|]+) \| \d+ \| \d+ \| (?P<error>[\d.]+) (?:%|words) \|", re.MULTILINE)
MANY, FEW = 60, 20
"""Clips of a condition that has errors, and of one that has none."""


def test_the_card_reports_every_condition_within_its_limit_and_truly() -> None:
    card = {match["condition"]: float(match["error"]) for match in ROW.finditer(CARD.read_text())}
    assert card.keys() == TESTS.keys()
    part = {name: (min(count, MANY if card[name] else FEW), clips) for name, (count, clips) in TESTS.items()}
    for row in measure(DEMO, part):
        assert row.within_limit, row
        # Another release of espeak-ng or flite speaks a little differently.
        assert row.error == pytest.approx(card[row.condition], abs=2.0), row


def test_the_checkpoint_is_small_enough_to_ship() -> None:
    assert DEMO.stat().st_size <= 16_000_000
