"""A bucket on a real S3 server (moto's), and clients of it that note what they ask."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from moto.server import ThreadedMotoServer

from parakeet_mps.s3 import Location, connect

REGION = "eu-central-1"


def aws_environ(url: str) -> dict[str, str]:
    """Environment variables with which AWS' tools find the server, and nothing of this machine's own."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


@dataclass
class Bucket:
    """A new bucket of the server at `url`; `owner` is a client. `asked` holds what other clients sent, in order."""

    url: str
    owner: Any
    name: str = field(default_factory=lambda: f"models-{secrets.token_hex(4)}")
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.owner.create_bucket(Bucket=self.name, CreateBucketConfiguration={"LocationConstraint": REGION})

    def location(self, key: str) -> Location:
        return Location(self.name, key)

    def client(self, before: Callable[[str], None] | None = None) -> Any:
        """A client that tries once; `before` is called with the name of each operation before it is sent."""
        client = connect(os.environ, attempts=1)

        def note(event_name: str, **_: object) -> None:
            operation = event_name.rpartition(".")[2]
            self.asked.append(operation)
            if before is not None:
                before(operation)

        client.meta.events.register("before-send.s3", note)
        return client

    def put(self, key: str, content: bytes, **options: str) -> None:
        self.owner.put_object(Bucket=self.name, Key=key, Body=content, **options)

    def remove(self, key: str) -> None:
        self.owner.delete_object(Bucket=self.name, Key=key)

    def put_parts(self, key: str, parts: list[bytes]) -> None:
        place = {"Bucket": self.name, "Key": key}
        upload = {**place, "UploadId": self.owner.create_multipart_upload(**place)["UploadId"]}
        done = [
            {"PartNumber": number, "ETag": self.owner.upload_part(**upload, PartNumber=number, Body=part)["ETag"]}
            for number, part in enumerate(parts, 1)
        ]
        self.owner.complete_multipart_upload(**upload, MultipartUpload={"Parts": done})

    @contextmanager
    def closed_to_all(self) -> Iterator[None]:
        """Have the server check permissions, which the test's credentials lack."""
        self._check_permissions_after("0")
        try:
            yield
        finally:
            self._check_permissions_after("inf")

    def _check_permissions_after(self, requests: str) -> None:
        address = urlsplit(self.url)
        connection = HTTPConnection(address.hostname or "", address.port)
        connection.request("POST", "/moto-api/reset-auth", body=requests)
        connection.getresponse().read()
        connection.close()


@contextmanager
def s3_server() -> Iterator[str]:
    """Run the server; yield its URL."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()
