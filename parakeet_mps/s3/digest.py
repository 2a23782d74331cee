"""What S3 says about an object's content, and whether a file on disk has that content. Standard library only.

An object uploaded in parts has a digest of its parts' digests. S3 does not tell the sizes of all parts at once; when
the first and the last one fit, all between them are as long as the first, as every usual client uploads them.
https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

BLOCK_BYTES = 1 << 20

Algorithm = Literal["sha256", "md5"]
Head = Mapping[str, Any]
"""Answer to HeadObject, as boto3 gives it."""

_ETAG = re.compile(r"(?P<digest>[0-9a-f]{32})(-(?P<parts>\d+))?")


@dataclass(frozen=True)
class Digest:
    """`value` is the digest of the content, or, with `part_bytes`, of the digests of its parts of that many bytes."""

    algorithm: Algorithm
    value: bytes
    part_bytes: int | None = None

    def fits(self, file: Path) -> bool:
        """Read the file and say whether it has this digest. Raises `OSError`."""
        if self.part_bytes is None:
            return self._of(file, 0, file.stat().st_size) == self.value
        starts = range(0, file.stat().st_size, self.part_bytes)
        parts = b"".join(self._of(file, start, self.part_bytes) for start in starts)
        return hashlib.new(self.algorithm, parts, usedforsecurity=False).digest() == self.value

    def _of(self, file: Path, start: int, size: int) -> bytes:
        digest = hashlib.new(self.algorithm, usedforsecurity=False)  # MD5 against accidents, not against people
        for block in _blocks(file, start, size):
            digest.update(block)
        return digest.digest()


def digest_of(head: Head, part_size: Callable[[int], int]) -> Digest | None:
    """Return the strongest digest that S3 tells of an object and that can be computed here: SHA-256, else an MD5 ETag.

    `part_size` asks S3 for the size in bytes of the part with that number, counted from 1. None when only the size can
    be compared: the ETag of an object that is encrypted with a key of KMS or of the client's is no digest of it.
    """
    etag = _ETAG.fullmatch(head["ETag"].strip('"'))
    parts = int(etag["parts"] or 0) if etag else 0
    if "ChecksumSHA256" in head:
        value, _, told_parts = head["ChecksumSHA256"].partition("-")  # Amazon tells the number of parts here, too
        whole = head.get("ChecksumType") == "FULL_OBJECT"
        parts = 0 if whole else int(told_parts or parts)
        return _digest("sha256", base64.b64decode(value), parts, head["ContentLength"], part_size)
    foreign_key = head.get("ServerSideEncryption", "AES256") != "AES256" or "SSECustomerAlgorithm" in head
    if etag is None or foreign_key:
        return None
    return _digest("md5", bytes.fromhex(etag["digest"]), parts, head["ContentLength"], part_size)


def _digest(
    algorithm: Algorithm, value: bytes, parts: int, size: int, part_size: Callable[[int], int]
) -> Digest | None:
    if not parts:
        return Digest(algorithm, value)
    part_bytes = part_size(1)
    if part_size(parts) != size - (parts - 1) * part_bytes:
        return None
    return Digest(algorithm, value, part_bytes)


def _blocks(file: Path, start: int, size: int) -> Iterator[bytes]:
    with file.open("rb") as stream:
        stream.seek(start)
        while size > 0 and (block := stream.read(min(size, BLOCK_BYTES))):
            size -= len(block)
            yield block
