"""Where uploads lie while they are worked on: small ones in memory, all others on disk, each with a descriptor.

Starlette's own spool asks a thread for every part of an upload of more than 1 MiB, and what it keeps in memory has no
descriptor by which another process could read it.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from threading import BoundedSemaphore
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import HTTPException
from fastapi.routing import APIRoute
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from parakeet_mps.errors import RequestError
from parakeet_mps.gateway import failures

SMALL_BYTES = 2 << 20
"""Larger uploads lie on disk. A minute of 16-bit audio at 16 kHz fits in."""

PLACES = 32
"""Uploads of one worker that may lie in memory: 64 MiB. While there are more, they lie on disk whatever their size."""

_COPIED_BYTES = 1 << 18


class SpoolFile:
    """A new file, in memory while `places` has one for it and it is not larger than `small_bytes`.

    `_rolled` and `_max_size` tell Starlette's `UploadFile`, as those of Python's `SpooledTemporaryFile` do, whether
    writing may take time and needs a thread.
    """

    def __init__(self, places: BoundedSemaphore, small_bytes: int = SMALL_BYTES) -> None:
        self._places = places
        self._max_size = small_bytes
        self._rolled = not places.acquire(blocking=False)
        try:
            self._file = _on_disk() if self._rolled else io.FileIO(os.memfd_create("upload"), "w+")
        except OSError:
            self._leave_memory()
            raise

    def write(self, data: bytes) -> int:
        """Write all of `data`. Raises `OSError` when there is no place for it."""
        if not self._rolled and self.tell() + len(data) > self._max_size:
            self._roll()
        return _write_all(self._file, data)

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes."""
        return self._file.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to `offset`; return it."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._file.tell()

    def flush(self) -> None:
        """Do nothing: everything is written at once."""

    def fileno(self) -> int:
        """Return the file's descriptor."""
        return self._file.fileno()

    @property
    def closed(self) -> bool:
        """Whether the file is gone."""
        return self._file.closed

    def close(self) -> None:
        """Give the file's place back."""
        self._file.close()
        self._leave_memory()

    def _roll(self) -> None:
        memory, disk = self._file, _on_disk()
        memory.seek(0)
        try:
            while data := memory.read(_COPIED_BYTES):
                _write_all(disk, data)
        except OSError:
            disk.close()
            raise
        self._file = disk
        memory.close()
        self._leave_memory()

    def _leave_memory(self) -> None:
        if not self._rolled:
            self._rolled = True
            self._places.release()


def _on_disk() -> io.FileIO:
    return tempfile.TemporaryFile(buffering=0)


def _write_all(file: io.FileIO, data: bytes) -> int:
    written = file.write(data)
    while written < len(data):  # the next write says why, or goes on
        written += file.write(memoryview(data)[written:])
    return written


class _Parser(MultiPartParser):
    """Starlette's parser, with another kind of file."""

    places: BoundedSemaphore
    is_whole = False

    def on_end(self) -> None:
        self.is_whole = True

    async def parse(self) -> FormData:
        form = await super().parse()
        if not self.is_whole:
            for file in self._files_to_close_on_error:
                file.close()
            raise MultiPartException("The form ends before its last boundary: the upload was cut short.")
        return form

    def on_headers_finished(self) -> None:
        super().on_headers_finished()
        part = self._current_part
        if part.file is not None:
            self._files_to_close_on_error.pop().close()
            file = SpoolFile(self.places)
            self._files_to_close_on_error.append(file)  # type: ignore[arg-type]  # has its methods
            part.file = UploadFile(file, size=0, filename=part.file.filename, headers=part.file.headers)  # type: ignore[arg-type]


class _UploadRequest(Request):
    """A request whose uploads are spooled here."""

    places: BoundedSemaphore

    async def _get_form(self, **limits: Any) -> FormData:
        if not self.headers.get("content-type", "").lower().startswith("multipart/form-data"):
            asked = "Send multipart/form-data, with the recording in `file`."
            raise failures.through_framework(RequestError(asked, param="file"))
        if self._form is None:
            try:
                async with aclosing(self.stream()) as stream:
                    parser = _Parser(self.headers, stream, **limits)
                    parser.places = self.places
                    self._form = await parser.parse()
            except MultiPartException as error:
                raise HTTPException(400, error.message) from None
        return await super()._get_form(**limits)


def spooled_route(places: BoundedSemaphore) -> type[APIRoute]:
    """Return a class of routes that receive uploads into `SpoolFile`s."""

    class SpooledRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handle_spooled(request: Request) -> Response:
                spooled = _UploadRequest(request.scope, request.receive)
                spooled.places = places
                return await handle(spooled)

            return handle_spooled

    return SpooledRoute
