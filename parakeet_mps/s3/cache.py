"""An S3 object -> a file in a cache on this machine's disk: complete, verified, and downloaded once for each version.

Credentials, region and `AWS_ENDPOINT_URL` are read by boto3, as every AWS tool reads them.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boto3.exceptions import Boto3Error
from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, FlexibleChecksumError
from s3transfer.exceptions import RetriesExceededError, S3DownloadFailedError

from parakeet_mps.s3.digest import Head, digest_of
from parakeet_mps.s3.refusals import ObjectUnavailableError, explain, explain_disk, may_pass, one_line
from parakeet_mps.s3.shelf import MIB, Shelf

_log = logging.getLogger("checkpoint")

ATTEMPTS = 3

_URL = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(?P<key>\S.*\.nemo|\.nemo)")


@dataclass(frozen=True)
class Location:
    """Where an object lies."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, url: str) -> Location:
        """Read `s3://bucket/key.nemo`. Raises `ObjectUnavailableError`."""
        match = _URL.fullmatch(url)
        if match is None:
            raise ObjectUnavailableError("is no checkpoint in S3: use s3://bucket/key.nemo")
        return cls(match["bucket"], match["key"])

    @property
    def file_name(self) -> str:
        """Last part of the key."""
        return self.key.rpartition("/")[2]


def connect(environ: Mapping[str, str], attempts: int = ATTEMPTS) -> Any:
    """Return boto3's client for S3. Raises `ObjectUnavailableError` when AWS' own settings are unfit."""
    # Servers other than Amazon's seldom have a host name for each bucket.
    elsewhere = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    config = Config(
        connect_timeout=5,
        read_timeout=30,
        retries={"mode": "standard", "total_max_attempts": attempts},
        s3={"addressing_style": "path" if elsewhere else "auto"},
    )
    try:
        return Session().client("s3", config=config)
    except (BotoCoreError, ValueError) as error:
        raise ObjectUnavailableError(explain(error)) from error


class ObjectCache:
    """Copies of objects in `folder`. `client` is boto3's for S3."""

    def __init__(self, client: Any, folder: Path) -> None:
        self._client = client
        self._folder = folder

    def fetch(self, location: Location) -> Path:
        """Return the object's current version as a file, downloaded unless it is there.

        When S3 cannot be asked, the version that was used last is returned with a warning in the log. Raises
        `ObjectUnavailableError`.
        """
        shelf = Shelf(self._folder / location.bucket / _short(location.key))
        try:
            return self._current(location, shelf)
        except (BotoCoreError, ClientError, Boto3Error, RetriesExceededError) as error:
            last = shelf.last() if may_pass(error) else None
            if last is None:
                raise ObjectUnavailableError(explain(error)) from error
            _log.warning("S3 cannot be asked (%s): the copy that was used last is taken", one_line(error))
            return last
        except OSError as error:
            raise ObjectUnavailableError(explain_disk(error, self._folder)) from error

    def _current(self, location: Location, shelf: Shelf) -> Path:
        head = self._describe(location)
        copy = _copy(shelf, location, head)
        if not _is_complete(copy, head):
            with shelf.turn():
                copy = self._downloaded(location, shelf)
        shelf.use(copy)
        return copy

    def _downloaded(self, location: Location, shelf: Shelf) -> Path:
        """Download the object, unless another start did while this one waited; anew when it changes meanwhile."""
        for _ in range(ATTEMPTS):
            head = self._describe(location)
            copy = _copy(shelf, location, head)
            if _is_complete(copy, head) or self._download(location, head, shelf, copy):
                return copy
        raise ObjectUnavailableError(f"differed from its checksum {ATTEMPTS} times: upload it again")

    def _download(self, location: Location, head: Head, shelf: Shelf, copy: Path) -> bool:
        size = head["ContentLength"]
        shelf.make_room(size)
        _log.info("downloading %d MiB from S3", size // MIB)
        with shelf.partial() as partial:
            if not self._transfer(location, partial):
                return False
            digest = digest_of(head, lambda number: int(self._describe(location, PartNumber=number)["ContentLength"]))
            if partial.stat().st_size != size or (digest and not digest.fits(partial)):
                _log.warning("what arrived has not the object's size or checksum")
                return False
            shelf.put(partial, copy)
        return True

    def _transfer(self, location: Location, target: Path) -> bool:
        try:
            with target.open("wb") as stream:
                self._client.download_fileobj(location.bucket, location.key, stream)
                stream.flush()
                os.fsync(stream.fileno())  # a volume may be detached or lose power after the file has its name
        except (S3DownloadFailedError, FlexibleChecksumError) as error:
            _log.warning("the object changed or was damaged on its way (%s)", one_line(error))
            return False
        return True

    def _describe(self, location: Location, **options: Any) -> Head:
        head: Head = self._client.head_object(
            Bucket=location.bucket, Key=location.key, ChecksumMode="ENABLED", **options
        )
        return head


def _copy(shelf: Shelf, location: Location, head: Head) -> Path:
    return shelf.copy(_short(f"{head['ETag']} {head['ContentLength']}"), location.file_name)


def _is_complete(copy: Path, head: Head) -> bool:
    return copy.is_file() and copy.stat().st_size == head["ContentLength"]


def _short(text: str) -> str:
    """A name for a folder, whatever characters are in the text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
