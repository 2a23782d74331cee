"""What is left to do with a batch is done beside the next one, in order, and never piles up."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from parakeet_mps.after_work import AfterWork


def test_jobs_are_done_in_order_while_the_one_who_brings_them_goes_on() -> None:
    work, gate, done = AfterWork(contextlib.nullcontext), threading.Event(), []
    work.put(lambda: (gate.wait(5), done.append(1)))
    assert not done
    gate.set()
    work.put(lambda: done.append(2))
    work.stop()
    assert done == [1, 2]


def test_who_brings_a_third_job_waits_for_the_first() -> None:
    work, gate, brought = AfterWork(contextlib.nullcontext), threading.Event(), threading.Event()

    def bring() -> None:
        for _ in range(3):
            work.put(lambda: gate.wait(5))
        brought.set()

    threading.Thread(target=bring, daemon=True).start()
    assert not brought.wait(0.1)
    gate.set()
    assert brought.wait(5)
    work.stop()


def test_it_is_busy_while_a_job_is_done() -> None:
    seen: list[str] = []

    @contextlib.contextmanager
    def busy() -> Iterator[None]:
        seen.append("begins")
        yield
        seen.append("ends")

    work = AfterWork(busy)
    work.put(lambda: seen.append("job"))
    work.stop()
    assert seen == ["begins", "job", "ends"]


def test_a_job_that_fails_is_logged_and_the_next_one_done(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("ERROR", logger="parakeet_mps.after_work")
    work, done = AfterWork(contextlib.nullcontext), []
    work.put(lambda: 1 / 0)
    work.put(lambda: done.append("next"))
    work.stop()
    assert done == ["next"]
    assert "division by zero" in caplog.text
