"""MODEL leads to a checkpoint on disk: a file, or a download that is made once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from archives import archive
from hub import Hub
from parakeet_mps.checkpoint import ROOT, CheckpointNotFoundError, resolve

WEIGHTS = archive()
NAME = "nvidia/parakeet-tdt-0.6b-v2"


@pytest.fixture
def hub() -> Iterator[Hub]:
    repositories = {
        NAME: {"README.md": b"card", "parakeet-tdt-0.6b-v2.nemo": WEIGHTS},
        "some/weights": {"model.safetensors": b"0"},
        "some/pair": {"a.nemo": b"a", "folder/b.nemo": b"b"},
    }
    with Hub(repositories).serve() as served:
        yield served


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "own.nemo"
    path.write_bytes(b"own")
    return path


def run_module(environ: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return subprocess.run(
        [sys.executable, "-m", "parakeet_mps.checkpoint"],
        env={**clean, "PYTHONPATH": str(ROOT), **environ},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_an_absolute_path_is_taken_as_it_is(checkpoint: Path, tmp_path: Path) -> None:
    assert resolve(str(checkpoint), tmp_path / "cache") == checkpoint


def test_a_relative_path_counts_from_the_working_directory_then_from_the_repository(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert resolve("own.nemo", tmp_path / "cache", root=tmp_path) == checkpoint
    (folder / "own.nemo").write_bytes(b"nearer")
    assert resolve("own.nemo", tmp_path / "cache", root=tmp_path) == folder / "own.nemo"


@pytest.mark.parametrize("model", ["missing.nemo", "/missing/model.nemo", "no-owner", "a/b/c", "https://a.example/b"])
def test_a_name_that_is_neither_file_nor_model_is_refused_without_a_request(
    model: str, hub: Hub, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointNotFoundError, match=r"is no file: looked for .*owner/name"):
        resolve(model, tmp_path, endpoint=hub.url)
    assert hub.requests == []


def test_a_hub_name_is_downloaded_complete(hub: Hub, tmp_path: Path) -> None:
    path = resolve(NAME, tmp_path, endpoint=hub.url)
    assert path.name == "parakeet-tdt-0.6b-v2.nemo"
    assert path.read_bytes() == WEIGHTS


def test_only_the_checkpoint_of_the_repository_is_downloaded(hub: Hub, tmp_path: Path) -> None:
    resolve(NAME, tmp_path, endpoint=hub.url)
    assert not any("README" in request for request in hub.requests)


def test_a_downloaded_model_is_used_again_without_a_request(hub: Hub, tmp_path: Path) -> None:
    first = resolve(NAME, tmp_path, endpoint=hub.url)
    hub.requests.clear()
    assert resolve(NAME, tmp_path, endpoint=hub.url) == first
    assert hub.requests == []


def test_a_downloaded_model_is_used_without_a_network(hub: Hub, tmp_path: Path) -> None:
    first = resolve(NAME, tmp_path, endpoint=hub.url)
    assert resolve(NAME, tmp_path, endpoint="http://127.0.0.1:9") == first


def test_a_revision_is_asked_for_by_name(hub: Hub, tmp_path: Path) -> None:
    assert resolve(f"{NAME}@v2", tmp_path, endpoint=hub.url).read_bytes() == WEIGHTS
    assert any("/revision/v2" in request for request in hub.requests)


def test_a_download_that_breaks_off_is_resumed(hub: Hub, tmp_path: Path) -> None:
    large = WEIGHTS * 24  # the Hub's client writes, and so can resume, in steps of 10 MiB
    hub.repositories[NAME] = {"large.nemo": large}
    hub.interruptions = 1
    assert resolve(NAME, tmp_path, endpoint=hub.url).read_bytes() == large
    assert hub.ranges == [f"bytes={10 * 2**20}-"]


def test_a_download_whose_process_died_is_made_anew(hub: Hub, tmp_path: Path) -> None:
    blobs = tmp_path / f"models--{NAME.replace('/', '--')}" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "left.incomplete").write_bytes(WEIGHTS[:100])
    assert resolve(NAME, tmp_path, endpoint=hub.url).read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("some/absent", "is not on the Hub, or is private: check the name, or set HF_TOKEN"),
        (f"{NAME}@v9", "has no revision 'v9'"),
        ("some/weights", r"holds no \.nemo file"),
        ("some/pair", r"holds a\.nemo, folder/b\.nemo: download the one you want and set MODEL to its path"),
    ],
)
def test_a_model_that_cannot_be_had_is_refused_with_what_to_do(
    model: str, message: str, hub: Hub, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointNotFoundError, match=message):
        resolve(model, tmp_path, endpoint=hub.url)


def test_without_a_network_the_refusal_says_so(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFoundError, match="check the network and HF_ENDPOINT, or set MODEL to"):
        resolve(NAME, tmp_path, endpoint="http://127.0.0.1:9")


def test_the_module_prints_the_path_of_a_model_downloaded_from_hf_endpoint(hub: Hub, tmp_path: Path) -> None:
    run = run_module({"MODEL": NAME, "MODEL_CACHE": str(tmp_path / "cache"), "HF_ENDPOINT": hub.url}, tmp_path)
    assert run.returncode == 0, run.stderr
    assert Path(run.stdout.strip()).read_bytes() == WEIGHTS


@pytest.mark.parametrize("model", ["missing.nemo", "text.nemo", "short.nemo"])
def test_the_module_fails_with_one_line_that_names_the_file(model: str, tmp_path: Path) -> None:
    (tmp_path / "text.nemo").write_text("no archive")
    (tmp_path / "short.nemo").write_bytes(WEIGHTS[:100])
    run = run_module({"MODEL": model}, tmp_path)
    assert run.returncode == 2
    assert f"MODEL={model!r}" in run.stderr
    assert run.stdout == ""
    assert len(run.stderr.splitlines()) == 1
