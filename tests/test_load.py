"""The load generator: real requests over HTTP, and the figures that are made of them."""

from __future__ import annotations

import io
import threading
import wave
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from benchmarks.closed_loop import Answer, ClosedLoop, Target, form, percentile
from benchmarks.load import clips, main
from benchmarks.load_table import Figures, Level, header
from parakeet_mps.checkpoint import ROOT
from processes import free_port

SAMPLE = ROOT / "models" / "sample.wav"


class Counting(BaseHTTPRequestHandler):
    """Answers every upload with the status that is due, and keeps the forms."""

    protocol_version = "HTTP/1.1"
    status: ClassVar[int] = 200
    forms: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.forms.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(self.status)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *arguments: object) -> None:
        """Be silent."""


@pytest.fixture
def handler() -> type[Counting]:
    return type("Handler", (Counting,), {"forms": []})


@pytest.fixture
def url(handler: type[Counting]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_every_client_uploads_one_clip_after_the_other(url: str, handler: type[Counting]) -> None:
    bodies = tuple(form(wav, "parakeet-tdt") for wav in clips(SAMPLE, 1.0))
    with ClosedLoop(Target(url, bodies), processes=2) as loop:
        answers = loop.run(concurrency=3, seconds=0.3)
    assert {answer.status for answer in answers} == {200}
    assert len(answers) == len(handler.forms) > 3
    assert set(handler.forms) <= set(bodies)
    first = sorted(answers)[:3]
    assert max(answer.sent for answer in first) - min(answer.sent for answer in first) < 0.3


def test_a_service_that_is_down_gives_errors_not_figures() -> None:
    with ClosedLoop(Target(f"http://127.0.0.1:{free_port()}", (b"",)), processes=1) as loop:
        answers = loop.run(concurrency=1, seconds=0.2)
    figures = Figures.of(answers, answers[0].sent, answers[-1].answered + 1)
    assert figures.rps == 0
    assert figures.errors == len(answers) < 10
    assert not figures.meets(1e9)


def test_the_table_the_plot_and_the_figures_are_written(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    plot, kept = tmp_path / "load.png", tmp_path / "load.json"
    quick = ["--seconds", "0.2", "--runs", "2", "--warm-up", "0", "--clip-s", "1", "--processes", "1"]
    main(["--url", url, "--concurrency", "1,2", "--plot", str(plot), "--json", str(kept), *quick])
    rows = capsys.readouterr().out.splitlines()
    assert rows[1:3] == header().splitlines()
    assert [row.split("|")[1].strip() for row in rows[3:]] == ["1", "2"]
    assert all(row.endswith("| yes |") for row in rows[3:])
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert kept.read_text().count('"p99"') == 4


def test_clips_have_their_length_and_differ() -> None:
    made = clips(SAMPLE, 2.5)
    assert len(set(made)) == len(made)
    for wav in made:
        with wave.open(io.BytesIO(wav)) as reader:
            assert reader.getnframes() / reader.getframerate() == pytest.approx(2.5)


def test_figures_count_what_ended_in_time() -> None:
    answers = [Answer(0, 0.5, 200), Answer(1, 1.1, 200), Answer(2, 2.3, 200), Answer(2, 2.5, 429), Answer(2, 9, 200)]
    figures = Figures.of(answers, begin=1, end=3)
    assert figures.rps == 1
    assert figures.errors == 1
    assert figures.mean == pytest.approx(200)
    assert figures.p50 == pytest.approx(200)


def test_runs_are_averaged_and_held_against_the_limit() -> None:
    level = Level(4, (Figures(2, 10, 12, 20, 900, 0), Figures(4, 20, 22, 30, 1000, 0)))
    assert level.row(sla_ms=1000) == "| 4 | 3.00 | 180 | 15 | 17 | 25 | 950 | 0 | yes |"
    assert level.row(sla_ms=900).endswith("| no |")


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (50, 2.5), (100, 4), (90, 3.7)])
def test_percentiles_interpolate(percent: float, value: float) -> None:
    assert percentile([4, 1, 3, 2], percent) == pytest.approx(value)
