"""`MODEL` -> a checkpoint on this machine's disk: a `.nemo` file, or one downloaded from the Hugging Face Hub or S3.

A model of the Hub is downloaded once and used without asking the Hub again, so that a restart needs no network and
never changes the model; write `owner/name@revision` to have another version. S3 is asked at every start whether its
object has changed.

Usage: python -m parakeet_mps.checkpoint     (settings come from the environment; prints the path)
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from parakeet_mps import logs
from parakeet_mps.settings import SettingError, Settings

_log = logging.getLogger("checkpoint")

ROOT = Path(__file__).resolve().parent.parent
PATTERN = "*.nemo"
ATTEMPTS = 3

_HUB_NAME = re.compile(r"(?P<repository>[\w][\w.-]*/[\w][\w.-]*)(@(?P<revision>[\w./-]+))?", re.ASCII)


class CheckpointNotFoundError(ValueError):
    """`MODEL` leads to no checkpoint; the message says why and what to do."""


def resolve(model: str, cache: Path, *, root: Path = ROOT, endpoint: str | None = None) -> Path:
    """Return the absolute path of the checkpoint that `model` names.

    A file is looked for from the working directory, then from `root`; a Hugging Face name (`owner/name` or
    `owner/name@revision`) in `cache`, then at `endpoint` (default: `HF_ENDPOINT`); an object of S3 at S3, then in
    `cache`. Raises `CheckpointNotFoundError`.
    """
    if model.startswith("s3://"):
        return _from_s3(model, cache)
    places = [Path(model).expanduser().absolute(), root / model]
    for place in places:
        if place.is_file():
            return place
    hub_name = _HUB_NAME.fullmatch(model)
    if model.endswith(".nemo") or hub_name is None:
        looked = " or ".join(sorted({str(place) for place in places}))
        raise CheckpointNotFoundError(
            f"MODEL={model!r} is no file: looked for {looked}. "
            "Give a .nemo file, a Hugging Face name (owner/name) or s3://bucket/key.nemo"
        )
    repository, revision = hub_name["repository"], hub_name["revision"]
    return _cached(repository, revision, cache) or _download(repository, revision, cache, endpoint)


def _from_s3(url: str, cache: Path) -> Path:
    from parakeet_mps import s3  # here, so that no other start waits for boto3

    try:
        location = s3.Location.parse(url)
        return s3.ObjectCache(s3.connect(os.environ), cache / "s3").fetch(location)
    except s3.ObjectUnavailableError as error:
        raise CheckpointNotFoundError(f"MODEL={url!r} {error}") from error


def _cached(repository: str, revision: str | None, cache: Path) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = snapshot_download(
            repository, revision=revision, cache_dir=cache, allow_patterns=PATTERN, local_files_only=True
        )
    except LocalEntryNotFoundError:
        return None
    return next(Path(folder).rglob(PATTERN), None)


def _download(repository: str, revision: str | None, cache: Path, endpoint: str | None, attempt: int = 1) -> Path:
    """Download the repository's checkpoint; the file appears in the cache only when it is complete."""
    from huggingface_hub import hf_hub_download

    name = _only_checkpoint(repository, revision, cache, endpoint)
    try:
        return Path(hf_hub_download(repository, name, revision=revision, cache_dir=cache, endpoint=endpoint))
    except Exception as error:
        # Any: the Hub's client lets the errors of its HTTP library out, and that library differs between versions.
        if attempt < ATTEMPTS:
            return _download(repository, revision, cache, endpoint, attempt + 1)
        raise CheckpointNotFoundError(_explain(repository, revision, error)) from error


def _only_checkpoint(repository: str, revision: str | None, cache: Path, endpoint: str | None) -> str:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import DryRunError

    try:
        files = snapshot_download(
            repository, revision=revision, cache_dir=cache, endpoint=endpoint, allow_patterns=PATTERN, dry_run=True
        )
    except Exception as error:
        reason = error.__cause__ if isinstance(error, DryRunError) else None
        raise CheckpointNotFoundError(_explain(repository, revision, reason or error)) from error
    names = sorted(file.filename for file in files)
    if len(names) != 1:
        found = f"holds {', '.join(names)}" if names else "holds no .nemo file"
        advice = "download the one you want and set MODEL to its path" if names else "choose a NeMo model"
        raise CheckpointNotFoundError(f"MODEL={repository!r} {found}: {advice}")
    return names[0]


def _explain(repository: str, revision: str | None, error: BaseException) -> str:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    start = f"MODEL={repository!r}"
    if isinstance(error, GatedRepoError):
        return f"{start} needs a permission: accept its licence on the Hub and set HF_TOKEN"
    if isinstance(error, RepositoryNotFoundError):
        return f"{start} is not on the Hub, or is private: check the name, or set HF_TOKEN"
    if isinstance(error, RevisionNotFoundError):
        return f"{start} has no revision {revision!r}: check the part after @"
    reason = str(error).partition("\n")[0] or type(error).__name__
    return f"{start} cannot be downloaded ({reason}): check the network and HF_ENDPOINT, or set MODEL to a .nemo file"


def _check_archive(model: str, path: Path) -> None:
    """Raise when the file cannot be what NeMo saves, a tar archive: said now, in a line, not by every recogniser."""
    try:
        if tarfile.is_tarfile(path):
            return
        reason = "is no checkpoint of NeMo's, which is a tar archive"
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    raise CheckpointNotFoundError(f"MODEL={model!r}: {path} {reason}")


def main(environ: Mapping[str, str]) -> int:
    """Print the checkpoint's path; exit status 2 and one line on standard error when there is none."""
    try:
        settings = Settings.from_env(environ)
        logs.configure("warning", settings.log_format)  # the libraries tell of every request
        _log.setLevel(settings.log_level.upper())
        path = resolve(settings.model, settings.cache_path)
        _check_archive(settings.model, path)
    except (SettingError, CheckpointNotFoundError) as error:
        sys.stderr.write(f"checkpoint: {error}\n")
        return 2
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(os.environ))
