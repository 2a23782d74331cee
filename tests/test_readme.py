"""The README says what the code does."""

from pathlib import Path

from parakeet_mps.settings import describe

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_table_of_settings_is_the_one_that_the_service_reads() -> None:
    for variable, default, help_text in describe():
        assert f"| `{variable}` | {f'`{default}`' if default else ''} | {help_text} |" in README


def test_it_is_short_enough_to_be_read() -> None:
    assert len(README.splitlines()) <= 250
