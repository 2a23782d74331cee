"""Where the audio begins behind ID3v2 tags, also when a tag says its size wrong. https://id3.org/id3v2.4.0-structure"""

from __future__ import annotations

import re
from collections.abc import Callable

from parakeet_mps.audio.mpeg import frame_bytes

Read = Callable[[int, int], bytes]
"""Returns up to so many bytes (second) from a place (first) on."""

_HEADER_BYTES = 10
_MOST_TAGS = 16
_FRAMES_IN_A_ROW = 4
_SEARCH_BYTES = 1 << 20
_MOST_SEARCHED_BYTES = 16 << 20
_SYNC = re.compile(rb"\xff[\xe2-\xe5\xf2-\xf5\xfa-\xfd]")
_MAGIC = (b"fLaC", b"OggS", b"RIFF", b"FORM", b"MAC ", b"TTA1", b"wvpk", b"ID3")


def audio_begins(read: Read) -> int:
    """Return the place behind all tags; 0 without tags."""
    at = 0
    for _ in range(_MOST_TAGS):
        header = read(at, _HEADER_BYTES)
        if len(header) < _HEADER_BYTES or header[:3] != b"ID3" or max(header[6:]) > 0x7F:
            break
        size = int.from_bytes(header[6:], "big")
        size = sum((size >> 8 * byte & 0x7F) << 7 * byte for byte in range(4))
        has_footer = header[5] & 0x10
        at += _HEADER_BYTES * (2 if has_footer else 1) + size
    if at == 0 or _is_audio(read, at):
        return at
    return _first_frames(read) or at


def _is_audio(read: Read, at: int) -> bool:
    head = read(at, 4)
    is_adts = len(head) == 4 and head[0] == 0xFF and head[1] & 0xF6 == 0xF0
    return head.startswith(_MAGIC) or is_adts or _frames_follow(read, at)


def _frames_follow(read: Read, at: int) -> bool:
    for _ in range(_FRAMES_IN_A_ROW):
        size = frame_bytes(read(at, 4))
        if not size:
            return False
        at += size
    return True


def _first_frames(read: Read) -> int:
    """Return where some MPEG audio frames follow one another, 0 when nowhere."""
    for begin in range(_HEADER_BYTES, _MOST_SEARCHED_BYTES, _SEARCH_BYTES):
        data = read(begin, _SEARCH_BYTES)
        for sync in _SYNC.finditer(data):
            if _frames_follow(read, begin + sync.start()):
                return begin + sync.start()
        if len(data) < _SEARCH_BYTES:
            break
    return 0
