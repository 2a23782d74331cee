"""Where a Matroska or WebM file ends by its own account. https://www.rfc-editor.org/rfc/rfc8794"""

from __future__ import annotations

from parakeet_mps.audio.source import Source

EBML = b"\x1a\x45\xdf\xa3"
_SEGMENT = b"\x18\x53\x80\x67"
_CLUSTER = b"\x1f\x43\xb6\x75"
_LONGEST_HEADER_BYTES = 12


def end_of_elements(source: Source) -> int:
    """Return where the last element ends by its header, be it there or not.

    A browser that records leaves the sizes of segment and clusters unknown: these are walked through.
    """
    at = 0
    while at < source.size:
        header = source.peek(at, _LONGEST_HEADER_BYTES)
        name = header[: _length(header)]
        size_field = header[len(name) :]
        length = _length(size_field)
        if len(size_field) < length:
            return at + _LONGEST_HEADER_BYTES
        size = int.from_bytes(size_field[:length], "big") & ((1 << 7 * length) - 1)
        at += len(name) + length
        is_unknown = size == (1 << 7 * length) - 1
        if not (is_unknown and name in (_SEGMENT, _CLUSTER)):
            at += size
    return at


def _length(field: bytes) -> int:
    """Return the length of the variable-length integer that `field` begins with."""
    return 9 - field[0].bit_length() if field and field[0] else 1
