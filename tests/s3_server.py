"""A bucket on a real S3 server (moto's), and clients of it that note what they ask."""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from boto3.s3.transfer import TransferConfig
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
    """A new bucket at `url`, made and filled by `owner`. `asked` holds what `visitor` and new clients sent, in order.

    Making a client takes a tenth of a second: these two serve all tests.
    """

    url: str
    owner: Any
    visitor: Any
    name: str = field(default_factory=lambda: f"models-{secrets.token_hex(4)}")
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.visitor.meta.events.register("before-send.s3", self._note, unique_id="visitor")
        self.owner.create_bucket(Bucket=self.name, CreateBucketConfiguration={"LocationConstraint": REGION})

    def leave(self) -> None:
        self.visitor.meta.events.unregister("before-send.s3", unique_id="visitor")

    def location(self, key: str) -> Location:
        return Location(self.name, key)

    def client(self, before: Callable[[str], None] = lambda _: None) -> Any:
        """A new client that tries once; `before` is called with the name of each operation before it is sent."""
        client = connect(os.environ, attempts=1)

        def note(event_name: str, **_: object) -> None:
            self._note(event_name)
            before(event_name.rpartition(".")[2])

        client.meta.events.register("before-send.s3", note)
        return client

    def _note(self, event_name: str, **_: object) -> None:
        self.asked.append(event_name.rpartition(".")[2])

    def put(self, key: str, content: bytes, **options: str) -> None:
        self.owner.put_object(Bucket=self.name, Key=key, Body=content, **options)

    def remove(self, key: str) -> None:
        self.owner.delete_object(Bucket=self.name, Key=key)

    def put_parts(self, key: str, parts: list[bytes], **options: str) -> None:
        """Upload an object in parts as long as the first, but for the last."""
        config = TransferConfig(multipart_threshold=len(parts[0]), multipart_chunksize=len(parts[0]))
        content = io.BytesIO(b"".join(parts))
        self.owner.upload_fileobj(content, self.name, key, ExtraArgs=options, Config=config)

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
