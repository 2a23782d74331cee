"""MODEL=s3://bucket/key.nemo: an object of a real S3 server becomes a verified file, downloaded once a version."""

from __future__ import annotations

import base64
import errno
import hashlib
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from archives import archive
from parakeet_mps.checkpoint import ROOT, CheckpointNotFoundError, resolve
from parakeet_mps.s3 import Location, ObjectCache, ObjectUnavailableError, connect
from parakeet_mps.s3.digest import Digest, digest_of
from s3_server import Bucket, aws_environ, s3_server

WEIGHTS = bytes(range(256)) * 4096
OTHER_WEIGHTS = WEIGHTS[::-1]
KEY = "asr/parakeet.nemo"
NOBODY = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Any, Any]]:
    """A server's URL and two clients of it."""
    with s3_server() as url, pytest.MonkeyPatch.context() as patch:
        set_environ(patch, url)
        yield url, connect(os.environ), connect(os.environ)


@pytest.fixture
def bucket(server: tuple[str, Any, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    set_environ(monkeypatch, server[0])
    bucket = Bucket(*server)
    yield bucket
    bucket.leave()


def set_environ(patch: pytest.MonkeyPatch, url: str) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        patch.delenv(name)
    for name, value in aws_environ(url).items():
        patch.setenv(name, value)


def fetch(bucket: Bucket, folder: Path, key: str = KEY, client: Any = None) -> Path:
    return ObjectCache(client or bucket.visitor, folder).fetch(bucket.location(key))


def downloads(bucket: Bucket) -> int:
    return bucket.asked.count("GetObject")


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_model_names_an_object_and_gets_its_file(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(KEY, WEIGHTS)
    path = resolve(f"s3://{bucket.name}/{KEY}", tmp_path)
    assert path.name == "parakeet.nemo"
    assert path.read_bytes() == WEIGHTS
    assert path.is_relative_to(tmp_path)


def test_an_object_that_is_unchanged_is_not_downloaded_again(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(KEY, WEIGHTS)
    first = fetch(bucket, tmp_path)
    bucket.asked.clear()
    assert fetch(bucket, tmp_path) == first
    assert bucket.asked == ["HeadObject"]


def test_an_object_that_has_changed_is_downloaded_while_the_old_file_stays(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(KEY, WEIGHTS)
    old = fetch(bucket, tmp_path)
    bucket.put(KEY, OTHER_WEIGHTS)
    new = fetch(bucket, tmp_path)
    assert new.read_bytes() == OTHER_WEIGHTS
    assert old.read_bytes() == WEIGHTS, "a running service may still load it"


def test_the_cache_keeps_the_two_versions_that_were_used_last(bucket: Bucket, tmp_path: Path) -> None:
    paths = []
    for content in (b"one", b"two", b"three"):
        bucket.put(KEY, content)
        paths.append(fetch(bucket, tmp_path))
    assert [path.exists() for path in paths] == [False, True, True]


@pytest.mark.parametrize("key", ["../../outside.nemo", "a/../b.nemo", "with space/ä.nemo", ".nemo"])
def test_whatever_a_key_is_called_its_file_stays_in_the_cache(key: str, bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(key, WEIGHTS)
    path = fetch(bucket, tmp_path / "cache", key)
    assert path.read_bytes() == WEIGHTS
    assert path.resolve().is_relative_to(tmp_path / "cache")


def test_objects_with_the_same_file_name_do_not_mix(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("a/model.nemo", b"a")
    bucket.put("b/model.nemo", b"b")
    assert [fetch(bucket, tmp_path, f"{name}/model.nemo").read_bytes() for name in "ab"] == [b"a", b"b"]


@pytest.mark.parametrize("options", [{}, {"ChecksumAlgorithm": "SHA256"}])
def test_an_object_uploaded_in_parts_is_verified_by_its_parts(
    options: dict[str, str], bucket: Bucket, tmp_path: Path
) -> None:
    parts = [WEIGHTS * 5, OTHER_WEIGHTS * 5, b"end"]
    bucket.put_parts(KEY, parts, **options)
    assert fetch(bucket, tmp_path).read_bytes() == b"".join(parts)
    assert bucket.asked[-2:] == ["HeadObject", "HeadObject"], "the sizes of the first and the last part"


@pytest.mark.parametrize(
    "options", [{"ChecksumAlgorithm": "SHA256"}, {"ChecksumAlgorithm": "CRC32"}, {"ServerSideEncryption": "aws:kms"}]
)
def test_any_checksum_and_encryption_will_do(options: dict[str, str], bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(KEY, WEIGHTS, **options)
    assert fetch(bucket, tmp_path).read_bytes() == WEIGHTS


def test_an_object_that_changes_during_the_download_is_downloaded_anew(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(KEY, WEIGHTS)
    changes = iter([OTHER_WEIGHTS])

    def change(operation: str) -> None:
        if operation == "GetObject" and (content := next(changes, None)):
            bucket.put(KEY, content)

    path = fetch(bucket, tmp_path, client=bucket.client(change))
    assert path.read_bytes() == OTHER_WEIGHTS
    assert downloads(bucket) == 2
    assert files(tmp_path) == {"parakeet.nemo", "lock"}


def test_two_starts_at_once_download_once(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(KEY, WEIGHTS)
    second_has_asked = threading.Event()

    def wait(operation: str) -> None:
        if operation == "GetObject":
            assert second_has_asked.wait(10)

    first = ObjectCache(bucket.client(wait), tmp_path)
    second = ObjectCache(bucket.client(lambda _: second_has_asked.set()), tmp_path)
    with ThreadPoolExecutor() as pool:
        paths = [start.result(20) for start in [pool.submit(c.fetch, bucket.location(KEY)) for c in (first, second)]]
    assert paths[0] == paths[1]
    assert downloads(bucket) == 1


def test_what_a_killed_start_left_is_replaced(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(KEY, WEIGHTS)
    shelf = fetch(bucket, tmp_path).parent.parent
    bucket.put(KEY, OTHER_WEIGHTS)
    (shelf / "partial").write_bytes(WEIGHTS * 2)
    assert fetch(bucket, tmp_path).read_bytes() == OTHER_WEIGHTS
    assert not (shelf / "partial").exists()


@pytest.mark.parametrize("lost", ["server", "credentials"])
def test_when_s3_cannot_be_asked_the_copy_used_last_is_taken_with_a_warning(
    lost: str, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for content in (WEIGHTS, OTHER_WEIGHTS, WEIGHTS):
        bucket.put(KEY, content)
        path = fetch(bucket, tmp_path)
    if lost == "server":
        monkeypatch.setenv("AWS_ENDPOINT_URL", NOBODY)
    else:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with caplog.at_level(logging.WARNING, "checkpoint"):
        assert fetch(bucket, tmp_path, client=bucket.client()) == path
    assert "the copy that was used last is taken" in caplog.text


def test_the_module_prints_the_file_and_warns_on_standard_error(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(KEY, archive())
    path = fetch(bucket, tmp_path / "s3")
    settings = {"MODEL": f"s3://{bucket.name}/{KEY}", "MODEL_CACHE": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-m", "parakeet_mps.checkpoint"],
        env={**os.environ, **settings, "PYTHONPATH": str(ROOT), "AWS_ENDPOINT_URL": NOBODY},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == f"{path}\n"
    assert len(run.stderr.splitlines()) == 1
    assert "the copy that was used last is taken" in run.stderr


def test_an_object_that_was_taken_away_is_not_replaced_by_its_copy(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(KEY, WEIGHTS)
    fetch(bucket, tmp_path)
    bucket.remove(KEY)
    with pytest.raises(ObjectUnavailableError, match="is not there: check the bucket and the key"):
        fetch(bucket, tmp_path)


def test_a_missing_bucket_is_refused(bucket: Bucket, tmp_path: Path) -> None:
    with pytest.raises(ObjectUnavailableError, match="is not there: check the bucket and the key"):
        ObjectCache(bucket.visitor, tmp_path).fetch(Location("absent-bucket", KEY))


def test_denied_access_is_refused_with_the_permission_that_is_needed(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(KEY, WEIGHTS)
    with bucket.closed_to_all(), pytest.raises(ObjectUnavailableError, match=r"may not be read: .* need s3:GetObject"):
        fetch(bucket, tmp_path)


def test_without_credentials_the_refusal_says_how_to_give_them(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(ObjectUnavailableError, match="give the machine a role, or set AWS_ACCESS_KEY_ID"):
        fetch(bucket, tmp_path, client=bucket.client())


def test_without_a_network_and_a_copy_the_refusal_says_so(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", NOBODY)
    with pytest.raises(ObjectUnavailableError, match=r"cannot be downloaded .*check the network and AWS_ENDPOINT_URL"):
        fetch(bucket, tmp_path, client=bucket.client())


def test_an_endpoint_that_is_no_url_is_refused(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "no url")
    with pytest.raises(CheckpointNotFoundError, match=r"cannot be downloaded \(Invalid endpoint: no url\)"):
        resolve(f"s3://{bucket.name}/{KEY}", tmp_path)


@pytest.mark.parametrize("url", ["s3://", "s3://bucket", "s3://bucket/", "s3://bucket/model.bin", "s3://UPPER/m.nemo"])
def test_what_names_no_checkpoint_is_refused_without_a_request(url: str, bucket: Bucket, tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFoundError, match=rf"MODEL='{url}' .* use s3://bucket/key.nemo"):
        resolve(url, tmp_path)


def test_a_cache_that_cannot_be_written_is_refused(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(KEY, WEIGHTS)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ObjectUnavailableError, match=r"cannot be kept in .*: set MODEL_CACHE to"):
        fetch(bucket, tmp_path / "file")


class OneObject:
    """Stands for boto3's client: one object of `size` bytes, of which `content` arrives before `error`."""

    def __init__(self, size: int, content: bytes = b"", error: Exception | None = None) -> None:
        self.size, self.content, self.error = size, content, error
        self.downloads = 0

    def head_object(self, **_: object) -> dict[str, Any]:
        return {"ContentLength": self.size, "ETag": f'"{hashlib.md5(WEIGHTS).hexdigest()}"'}

    def download_fileobj(self, bucket: str, key: str, stream: Any) -> None:
        self.downloads += 1
        stream.write(self.content)
        if self.error:
            raise self.error


def test_an_object_larger_than_the_disk_is_refused_before_it_is_downloaded(tmp_path: Path) -> None:
    client = OneObject(size=1 << 60)
    expected = rf"does not fit into {re.escape(str(tmp_path))} \(\d+ MiB are needed and \d+ free\): make room"
    with pytest.raises(ObjectUnavailableError, match=expected):
        ObjectCache(client, tmp_path).fetch(Location("models", KEY))
    assert client.downloads == 0


def test_a_disk_that_fills_up_during_the_download_is_told_and_gets_its_space_back(tmp_path: Path) -> None:
    client = OneObject(len(WEIGHTS), WEIGHTS[:1000], OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with pytest.raises(ObjectUnavailableError, match=r"does not fit .* \(No space left on device\): make room"):
        ObjectCache(client, tmp_path).fetch(Location("models", KEY))
    assert files(tmp_path) == {"lock"}


@pytest.mark.parametrize("arrived", [OTHER_WEIGHTS, WEIGHTS[:-1]])
def test_content_that_stays_damaged_never_gets_its_name(arrived: bytes, tmp_path: Path) -> None:
    client = OneObject(len(WEIGHTS), arrived)
    with pytest.raises(ObjectUnavailableError, match="differed from its checksum 3 times: upload it again"):
        ObjectCache(client, tmp_path).fetch(Location("models", KEY))
    assert client.downloads == 3
    assert files(tmp_path) == {"lock"}


def composite(algorithm: str, parts: list[bytes]) -> bytes:
    return hashlib.new(algorithm, b"".join(hashlib.new(algorithm, part).digest() for part in parts)).digest()


ETAG = hashlib.md5(WEIGHTS).hexdigest()
SHA256 = hashlib.sha256(WEIGHTS).digest()
PARTS = [WEIGHTS[:600_000], WEIGHTS[600_000:]]


@pytest.mark.parametrize(
    ("told", "part_sizes", "expected"),
    [
        ({"ETag": f'"{ETAG}"'}, [], Digest("md5", bytes.fromhex(ETAG))),
        ({"ETag": f'"{ETAG}"', "ServerSideEncryption": "AES256"}, [], Digest("md5", bytes.fromhex(ETAG))),
        ({"ETag": f'"{ETAG}"', "ServerSideEncryption": "aws:kms"}, [], None),
        ({"ETag": f'"{ETAG}"', "SSECustomerAlgorithm": "AES256"}, [], None),
        ({"ETag": '"of-another-kind"'}, [], None),
        ({"ETag": f'"{ETAG}"', "ChecksumSHA256": base64.b64encode(SHA256).decode()}, [], Digest("sha256", SHA256)),
        (
            {"ETag": f'"{ETAG}-2"', "ChecksumSHA256": base64.b64encode(SHA256).decode()},
            [600_000, 448_576],
            Digest("sha256", SHA256, 600_000),
        ),
        (
            {"ETag": f'"{ETAG}-2"', "ChecksumSHA256": base64.b64encode(SHA256).decode(), "ChecksumType": "FULL_OBJECT"},
            [],
            Digest("sha256", SHA256),
        ),
        ({"ETag": f'"{ETAG}-2"'}, [600_000, 448_576], Digest("md5", bytes.fromhex(ETAG), 600_000)),
        ({"ETag": f'"{ETAG}-2"'}, [500_000, 500_000], None),
        (
            {"ETag": f'"{ETAG}-2"', "ChecksumSHA256": f"{base64.b64encode(SHA256).decode()}-2"},
            [600_000, 448_576],
            Digest("sha256", SHA256, 600_000),
        ),
    ],
)
def test_the_strongest_digest_that_can_be_computed_is_chosen(
    told: dict[str, str], part_sizes: list[int], expected: Digest | None
) -> None:
    head = {"ContentLength": len(WEIGHTS), **told}
    assert digest_of(head, lambda number: part_sizes[number - 1]) == expected


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_a_digest_fits_its_content_only(algorithm: Any, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_bytes(WEIGHTS)
    wrong.write_bytes(WEIGHTS[:-1] + b"\0")
    whole = Digest(algorithm, hashlib.new(algorithm, WEIGHTS).digest())
    in_parts = Digest(algorithm, composite(algorithm, PARTS), len(PARTS[0]))
    assert [digest.fits(file) for digest in (whole, in_parts) for file in (right, wrong)] == [True, False] * 2
