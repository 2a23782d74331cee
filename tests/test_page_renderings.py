"""The files that the page makes of a streamed transcript are those that the API would have answered."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parakeet_mps.contract import Recognition, Word
from parakeet_mps.pieces import Part
from parakeet_mps.transcripts import Narration, ResponseFormat, render
from processes import ROOT
from test_transcript_properties import BOTH, part_lists, transcript

PROGRAM = """
import { renderings } from "./renderings.mjs";
import { createInterface } from "node:readline";
for await (const line of createInterface({ input: process.stdin })) {
  const files = Object.values(renderings(JSON.parse(line)));
  console.log(JSON.stringify(Object.fromEntries(files.map(([name, , text]) => [name, text]))));
}
"""


class Page:
    """The page's renderings in Node, which are given one event and return the text of each file."""

    def __init__(self, folder: Path) -> None:
        source = ROOT / "parakeet_mps" / "gateway" / "page" / "renderings.js"
        (folder / "renderings.mjs").write_text(source.read_text())
        (folder / "program.mjs").write_text(PROGRAM)
        self._node = subprocess.Popen(
            ["node", "program.mjs"], cwd=folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def renderings(self, done: dict[str, Any]) -> dict[str, str]:
        assert self._node.stdin
        assert self._node.stdout
        self._node.stdin.write(f"{json.dumps(done)}\n")
        self._node.stdin.flush()
        answer: dict[str, str] = json.loads(self._node.stdout.readline())
        return answer

    def close(self) -> None:
        self._node.communicate()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    page = Page(tmp_path_factory.mktemp("page"))
    yield page
    page.close()


def check(page: Page, parts: list[Part]) -> None:
    whole = transcript(parts)
    files = page.renderings(Narration(BOTH, verbose=True).done(whole))
    assert files.keys() == set(ResponseFormat)
    for name, text in files.items():
        expected = render(whole, ResponseFormat(name), BOTH).decode()
        if "json" in name:
            assert json.loads(text) == json.loads(expected)
        else:
            assert text == expected


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(part_lists())
def test_whatever_was_said(page: Page, parts: list[Part]) -> None:
    check(page, parts)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.integers(0, 400_000), min_size=2, max_size=2, unique=True).map(sorted))
def test_times_between_two_milliseconds(page: Page, sixteenths_of_ms: list[int]) -> None:
    start_s, end_s = (count / 16_000 for count in sixteenths_of_ms)
    check(page, [(0.0, Recognition("yes", end_s, (), (Word("yes", start_s, end_s, 0.9),)))])
