"""The sentinel, its history, and what is noted when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parakeet_mps.wedge import History, Journal, Sentinel, prepare


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "wedged"


def events(history: History) -> list[dict[str, Any]]:
    return [json.loads(line) for line in history.path.read_text().splitlines()]


def test_the_sentinel_says_who_when_and_why_until_it_is_cleared(path: Path) -> None:
    sentinel = Sentinel(path)
    assert sentinel.read() is None
    sentinel.mark("one", "was ended by SIGKILL")
    wedge = sentinel.read()
    assert wedge is not None
    assert (wedge.who, wedge.why) == ("one", "was ended by SIGKILL")
    assert wedge.at.endswith("+00:00")
    sentinel.clear()
    sentinel.clear()
    assert sentinel.read() is None


def test_a_later_mark_replaces_the_first_and_leaves_no_other_file(path: Path) -> None:
    for who in ("one", "two"):
        Sentinel(path).mark(who, "hangs")
    wedge = Sentinel(path).read()
    assert wedge is not None
    assert wedge.who == "two"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "{}", "[]", "wedged since noon"])
def test_a_sentinel_that_somebody_else_wrote_counts(path: Path, text: str) -> None:
    path.write_text(text)
    assert Sentinel(path).read() is not None


def test_a_link_is_not_written_through(path: Path) -> None:
    target = path.with_name("target")
    target.write_text("precious")
    for link in (path, History(path).path):
        link.symlink_to(target)
    Sentinel(path).mark("one", "hangs")
    with pytest.raises(OSError, match="symbolic"):
        History(path).record("wedge", "one", "hangs")
    assert target.read_text() == "precious"


def test_where_no_sentinel_can_be_written_is_found_before_it_is_needed(path: Path) -> None:
    Sentinel(path).check()
    assert not list(path.parent.iterdir())
    with pytest.raises(OSError, match="No such file"):
        Sentinel(path / "deeper").check()


def test_the_history_is_bounded_and_keeps_the_newest_whole_lines(path: Path) -> None:
    history = History(path, most_bytes=2000)
    for number in range(100):
        history.record("wedge", f"number {number}", "hangs")
        assert history.path.stat().st_size <= 2000
    assert events(history)[-1]["who"] == "number 99"


def test_what_is_counted_never_falls_when_the_history_is_shortened(path: Path) -> None:
    history = History(path, most_bytes=2000)
    for number in range(1, 101):
        history.record("wedge", "one", "hangs")
        history.record("recovery", "one", "hangs", 0.5)
        counted = [(event.kind, event.count, event.seconds) for event in history.events()]
        assert sum(count for kind, count, _ in counted if kind == "wedge") == number
        assert sum(count for kind, count, _ in counted if kind == "recovery") == number
        assert sum(seconds or 0 for kind, _, seconds in counted if kind == "recovery") == number / 2


def test_a_failure_its_repetition_and_the_recovery_are_noted_with_the_time_since_the_first(path: Path) -> None:
    seconds = iter([10.0, 25.5])
    history, sentinel = History(path), Sentinel(path)
    journal = Journal(history, sentinel, clock=lambda: next(seconds))
    assert journal.recovered() is None
    journal.failed("one", "hangs")
    journal.failed("two", "was ended by SIGKILL")
    wedge = sentinel.read()
    assert wedge is not None
    assert wedge.who == "two"
    assert journal.recovered() == 15.5
    assert sentinel.read() is None
    assert [(event["event"], event["who"], event["seconds"]) for event in events(history)] == [
        ("wedge", "one", None),
        ("wedge", "two", None),
        ("recovery", "one", 15.5),
    ]


def test_a_unit_without_a_sentinel_has_its_history_only(path: Path) -> None:
    journal = Journal(History(path))
    journal.failed("gateway", "ended with status 1")
    assert not path.exists()
    journal.recovered()
    assert [event["event"] for event in events(History(path))] == ["failure", "restart"]


def test_a_folder_that_takes_no_notes_hinders_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "none" / "wedged"
    journal = Journal(History(path), Sentinel(path))
    journal.failed("one", "hangs")
    assert journal.recovered() is not None
    assert "cannot be written" in caplog.text


def test_a_sentinel_of_an_earlier_run_is_removed_and_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", logger="supervisor")
    Sentinel(path).mark("recogniser 0", "was ended by SIGSEGV")
    prepare(path)
    assert Sentinel(path).read() is None
    assert "recogniser 0 was ended by SIGSEGV" in caplog.text
    assert [(event["event"], event["who"]) for event in events(History(path))] == [("leftover", "recogniser 0")]


def test_nothing_is_left_by_preparing(path: Path) -> None:
    prepare(path)
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize("name", ["wedged", "wedged.history"])
def test_a_place_that_is_taken_is_an_error(name: str, path: Path) -> None:
    (path.parent / name).mkdir()
    with pytest.raises(IsADirectoryError):
        prepare(path)
