"""The bytes of an upload, read where they lie and never all at once."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from parakeet_mps.audio.id3 import audio_begins


class Source:
    """A seekable file without the ID3 tags in front, whose cover art hides the audio from FFmpeg's probe.

    Reads by position, so that the file offset, which other processes may share, does not matter. Has the methods that
    PyAV asks of a file: `read`, `seek`, `tell`.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._end = os.fstat(descriptor).st_size
        self._begin = min(audio_begins(self._pread), self._end)
        self._at = 0

    @classmethod
    def of(cls, data: bytes | Path) -> Source:
        """Return a source over bytes, which are copied in memory, or over a file that is opened here."""
        if isinstance(data, Path):
            return cls(os.open(data, os.O_RDONLY))
        with os.fdopen(os.memfd_create("recording"), "wb") as file:  # no disk: that may be full or not writable
            file.write(data)
            file.flush()
            return cls(os.dup(file.fileno()))

    @property
    def size(self) -> int:
        """Bytes without the tags."""
        return self._end - self._begin

    @property
    def has_only_tags(self) -> bool:
        """Whether tags are all that came."""
        return self._begin == self._end > 0

    def part(self, begin: int, end: int) -> Source:
        """Return a view of a part; it is closed with the whole."""
        part = copy.copy(self)
        part._begin, part._end, part._at = self._begin + begin, self._begin + end, 0
        return part

    def peek(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset` on."""
        return self._pread(self._begin + offset, size)

    def read(self, size: int) -> bytes:
        """Return up to `size` of the next bytes."""
        data = self.peek(self._at, size)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to `offset`; return it."""
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        self._at = max(0, origin + offset)
        return self._at

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._at

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _pread(self, offset: int, size: int) -> bytes:
        left = self._end - offset
        return os.pread(self._descriptor, min(size, left), offset) if left > 0 else b""
