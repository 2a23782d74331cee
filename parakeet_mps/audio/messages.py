"""What a decoding process and the gateway say to each other.

To the fork server, one packet a file: `REQUEST` (the longest audio allowed, s) with two descriptors, the file and a
stream socket. Back through that socket: one byte with a descriptor of the process, by which it can be killed; then
messages of a `HEADER` (kind, bytes) and a body. Standard library only.
"""

from __future__ import annotations

import struct

REQUEST = struct.Struct("<d")
HEADER = struct.Struct("<cI")

AUDIO = b"A"
"""Body: float32 samples in the machine's byte order, at most 10 s."""
END = b"E"
"""Body: a warning in UTF-8, or nothing. The last message."""
REFUSED = b"R"
"""Body: why the file cannot be decoded, in UTF-8. The last message."""

MAX_TEXT_BYTES = 1000
