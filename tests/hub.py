"""A stand-in of the Hugging Face Hub: a real HTTP server that answers what `huggingface_hub` asks for a model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """Repositories by name, each a mapping of file name to content; `interruptions` transfers break off half-way."""

    repositories: dict[str, dict[str, bytes]]
    revisions: tuple[str, ...] = ("main", "v2")
    interruptions: int = 0
    url: str = ""
    requests: list[str] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)

    @contextmanager
    def serve(self) -> Iterator[Hub]:
        handler = type("Handler", (_Handler,), {"hub": self})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    """GET /api/models/OWNER/NAME/{revision,tree}/REVISION, and HEAD and GET /OWNER/NAME/resolve/REVISION/FILE."""

    hub: ClassVar[Hub]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        self.hub.requests.append(self.path)
        if parts[0] == "api":
            self._describe("/".join(parts[2:4]), parts[4], parts[5])
        else:
            self._send_file("/".join(parts[:2]), parts[3], "/".join(parts[4:]))

    do_HEAD = do_GET  # noqa: N815  the name that http.server looks for

    def log_message(self, *args: object) -> None:
        """Keep the test's output clean."""

    def _describe(self, repository: str, what: str, revision: str) -> None:
        files = self.hub.repositories.get(repository)
        known = revision in (*self.hub.revisions, COMMIT)
        if files is None or not known:
            self._send(b"{}", 404, {"X-Error-Code": "RepoNotFound" if files is None else "RevisionNotFound"})
            return
        tree = [{"type": "file", "path": name, "size": len(data), "oid": _etag(data)} for name, data in files.items()]
        self._send(json.dumps(tree if what == "tree" else {"id": repository, "sha": COMMIT}).encode())

    def _send_file(self, repository: str, revision: str, name: str) -> None:
        data = self.hub.repositories[repository][name]
        asked = self.headers.get("Range", "")
        if asked:
            self.hub.ranges.append(asked)
        begin = int(asked.removeprefix("bytes=").removesuffix("-") or 0)
        broken = self.command == "GET" and self.hub.interruptions > 0
        self.hub.interruptions -= broken
        headers = {"ETag": f'"{_etag(data)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if begin:
            headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        self._send(data[begin:], 206 if begin else 200, headers, sent=(len(data) - begin) // 2 if broken else None)

    def _send(
        self, body: bytes, status: int = 200, headers: dict[str, str] | None = None, sent: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | (headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[:sent])
        self.close_connection = sent is not None


def _etag(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()
