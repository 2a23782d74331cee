"""What a container's header says of the file's size, against the bytes that are there.

FFmpeg decodes the stump of a file in silence; the header knows that there was more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from parakeet_mps.audio import matroska
from parakeet_mps.audio.ogg import end_of_pages
from parakeet_mps.audio.source import Source
from parakeet_mps.errors import AudioError

_MOST_CHUNKS = 1000
_UNKNOWN_FROM = 0x7FFF_0000
"""Writers that cannot seek back leave this size or more in a 32-bit header: it promises nothing."""
_RF64_UNKNOWN_FROM = 1 << 62
_SLACK_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes that the header promises, and bytes that came. `misleading`: the promise is less than there is.

    Less than `slack` missing bytes are padding that a careless writer counted. `unfinished`: after what is promised
    something should follow that says the end.
    """

    promised: int = 0
    present: int = 0
    misleading: bool = False
    slack: int = _SLACK_BYTES
    unfinished: bool = False

    @property
    def cut_short(self) -> bool:
        """Whether the end is missing."""
        return self.unfinished or self.present + self.slack < self.promised

    def __str__(self) -> str:
        return f"{self.present} of {'more than ' * self.unfinished}{self.promised} bytes"


def sizes(source: Source) -> Sizes:
    """Read the sizes of WAV, RF64, W64, AIFF, AVI, AU, CAF, Matroska and Ogg; other kinds give none.

    Raises `AudioError` on a WAV without samples.
    """
    head = source.peek(0, 12)
    if head[:4] in (b"RIFF", b"RF64", b"BW64") and head[8:] == b"WAVE":
        return _wav(source)
    if head[:4] == b"RIFF":
        return Sizes(_bounded(int.from_bytes(head[4:8], "little") + 8), source.size)
    if head[:4] == b"FORM":
        return Sizes(_bounded(int.from_bytes(head[4:8], "big") + 8), source.size)
    if head[:4] == b"riff":  # Sony's 64-bit WAV
        return Sizes(int.from_bytes(source.peek(16, 8), "little"), source.size)
    if head[:4] == b".snd":
        return Sizes(_bounded(int.from_bytes(head[8:], "big")), source.size - int.from_bytes(head[4:8], "big"))
    if head[:4] == b"caff":
        return _caf(source)
    if head[:4] == matroska.EBML:
        return Sizes(matroska.end_of_elements(source), source.size, slack=0)
    if head[:4] == b"OggS":
        end, ends_stream = end_of_pages(source)
        return Sizes(end, source.size, slack=0, unfinished=not ends_stream)
    return Sizes()


def _bounded(size: int) -> int:
    return size if size < _UNKNOWN_FROM else 0


def _wav(source: Source) -> Sizes:
    long_size = None
    for name, at, size in chunks(source, 12):
        if name == b"ds64":
            long_size = int.from_bytes(source.peek(at + 8, 8), "little")
        if name == b"data":
            return _wav_samples(source, at, size, long_size)
    raise AudioError("The WAV file has no samples.")


def _wav_samples(source: Source, at: int, size: int, long_size: int | None) -> Sizes:
    present = source.size - at
    if present <= 0:
        raise AudioError("The WAV file has no samples: it ends with its header.")
    promised = _bounded(size)
    if long_size is not None and size == 0xFFFF_FFFF:
        promised = long_size if long_size < _RF64_UNKNOWN_FROM else 0
    return Sizes(promised, present, misleading=0 < promised < present and not _chunk_follows(source, at + promised))


def _chunk_follows(source: Source, at: int) -> bool:
    """Say whether a chunk, or a little padding, stands where the samples are said to end."""
    if source.size - at <= _SLACK_BYTES:
        return True
    at += at % 2
    name, size = source.peek(at, 4), int.from_bytes(source.peek(at + 4, 4), "little")
    return name.isascii() and name.decode("ascii").isprintable() and at + 8 + size <= source.size + _SLACK_BYTES


def chunks(source: Source, at: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, place of the content and size of each RIFF chunk from `at` on."""
    for _ in range(_MOST_CHUNKS):
        header = source.peek(at, 8)
        if len(header) < 8:
            return
        size = int.from_bytes(header[4:], "little")
        yield header[:4], at + 8, size
        at += 8 + size + size % 2


def _caf(source: Source) -> Sizes:
    at = 8
    for _ in range(_MOST_CHUNKS):
        header = source.peek(at, 12)
        size = int.from_bytes(header[4:], "big", signed=True)
        if len(header) < 12 or size < 0:
            break
        if header[:4] == b"data":
            return Sizes(size, source.size - at - 12)
        at += 12 + size
    return Sizes()
