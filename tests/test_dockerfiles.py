"""What can be said of the Dockerfiles and the Compose files without Docker; `make images` builds and runs them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from processes import ROOT

DOCKERFILES = sorted(ROOT.glob("Dockerfile.*"))
SINGLE, TRITON, GATEWAY = (ROOT / f"Dockerfile.{name}" for name in ("single", "triton", "gateway"))
COMPOSE = (ROOT / "docker-compose.yml").read_text()


def instructions(dockerfile: Path) -> list[str]:
    """Every instruction as one line, each after the comment lines above it."""
    joined = dockerfile.read_text().replace("\\\n", " ")
    return [line for line in joined.splitlines() if line and not line.startswith("#")]


def argument(dockerfile: Path, name: str) -> str:
    """The default of a build argument."""
    return next(line for line in instructions(dockerfile) if line.startswith(f"ARG {name}=")).partition("=")[2]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_a_comment_stands_above_every_instruction(dockerfile: Path) -> None:
    lines = dockerfile.read_text().replace("\\\n", " ").splitlines()
    bare = [line for above, line in zip(["", *lines], lines, strict=False) if line[:1].isupper() and above[:1] != "#"]
    assert bare == []


def test_both_images_with_a_recogniser_begin_alike_so_that_they_share_their_largest_layers() -> None:
    beginnings = [
        file.read_text().partition("# It needs BuildKit.")[2].partition("# The image.")[0] for file in (SINGLE, TRITON)
    ]
    assert beginnings[0] == beginnings[1] != ""


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_every_image_drops_root_is_watched_and_is_started_by_the_one_script(dockerfile: Path) -> None:
    last = instructions(dockerfile)
    assert [line for line in last if line.startswith("USER ")] == ["USER 10001:10001"]
    assert last[-1] == 'ENTRYPOINT ["./start-single-container.sh"]'
    assert last[-2].endswith('CMD ["python3", "-m", "parakeet_mps.healthcheck"]')


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_the_bases_are_pinned(dockerfile: Path) -> None:
    bases = {
        line.removeprefix("FROM ").partition(" AS ")[0] for line in instructions(dockerfile) if line[:5] == "FROM "
    }
    for base in bases - {"engine"}:
        assert re.search(r":\d+\.\d+", argument(dockerfile, base.strip("${}")))


def test_all_that_is_copied_from_the_checkout_is_allowed_into_the_build_and_little_else_is() -> None:
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    assert next(line for line in allowed if not line.startswith("#")) == "*"
    copied = {
        source
        for dockerfile in DOCKERFILES
        for line in instructions(dockerfile)
        if line.startswith("COPY ") and "--from=" not in line
        for source in line.split()[1:-1]
    }
    checkpoints = {"models/*.nemo", "*.nemo"}
    names = copied - {"${LOCAL_NEMO_FILENAME}"}
    assert {line.removeprefix("!") for line in allowed if line.startswith("!")} == names | checkpoints
    assert all((ROOT / name).exists() for name in {*names, argument(SINGLE, "LOCAL_NEMO_FILENAME")})


def test_compose_takes_the_checkpoint_that_the_image_holds() -> None:
    (baked,) = re.findall(r"\bMODEL=(\S+)", TRITON.read_text())
    assert f"MODEL: ${{MODEL:-{baked}}}" in COMPOSE
    assert baked in SINGLE.read_text()


def test_compose_unsets_nothing_that_an_image_sets() -> None:
    unset_when_absent = set(re.findall(r"^ +([A-Z_]+):$", COMPOSE, re.MULTILINE))
    for dockerfile in (TRITON, GATEWAY):
        assert not unset_when_absent & set(re.findall(r"\b([A-Z_]+)=", " ".join(instructions(dockerfile))))
