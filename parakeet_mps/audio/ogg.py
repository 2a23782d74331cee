"""The links of a chained Ogg file: whole streams one after the other, as radio servers and joined files have.

FFmpeg reads on only while sample rate and channels stay the same, so each link is decoded as a file of its own.
https://www.rfc-editor.org/rfc/rfc3533
"""

from __future__ import annotations

from collections.abc import Iterator

from parakeet_mps.audio.source import Source

_CAPTURE = b"OggS"
_HEADER_BYTES = 27
_BEGINS_STREAM = 0x02
_ENDS_STREAM = 0x04
_MOST_LINKS = 1000
_SEARCH_BYTES = 1 << 16


def links(source: Source) -> Iterator[Source]:
    """Yield each link of an Ogg file; any other file whole."""
    begin = 0
    if source.peek(0, 4) == _CAPTURE:
        for index, end in enumerate(_link_ends(source)):
            if index == _MOST_LINKS:
                break
            yield source.part(begin, end)
            begin = end
    yield source.part(begin, source.size)


def end_of_pages(source: Source) -> tuple[int, bool]:
    """Return where an Ogg file's last page ends by its header, be it there or not, and whether it ends a stream."""
    end, flags = 0, _ENDS_STREAM
    for at, size, flags in _pages(source):  # noqa: B007  the last one's are wanted
        end = at + size
    return end, bool(flags & _ENDS_STREAM)


def _link_ends(source: Source) -> Iterator[int]:
    was_begin = True
    for at, _, flags in _pages(source):
        is_begin = bool(flags & _BEGINS_STREAM)
        if is_begin and not was_begin:
            yield at
        was_begin = is_begin


def _pages(source: Source) -> Iterator[tuple[int, int, int]]:
    """Yield place, size and flags of each page."""
    at = 0
    while len(header := source.peek(at, _HEADER_BYTES + 255)) >= _HEADER_BYTES:
        if header[:4] != _CAPTURE:
            skipped = source.peek(at, _SEARCH_BYTES).find(_CAPTURE, 1)
            if skipped < 0:
                return
            at += skipped
            continue
        lacing = header[_HEADER_BYTES : _HEADER_BYTES + header[26]]
        size = _HEADER_BYTES + header[26] + sum(lacing)
        yield at, size, header[5]
        at += size
