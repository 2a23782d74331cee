"""The frame header of MPEG-1, -2 and -2.5 audio, layers II and III. https://www.datavoyage.com/mpgscript/mpeghdr.htm"""

from __future__ import annotations

_RATES_HZ = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
_KBITS = {
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}


def frame_bytes(header: bytes) -> int:
    """Return the size of the frame that begins with these four bytes, 0 when they say none."""
    if len(header) < 4 or header[0] != 0xFF or header[1] & 0xE0 != 0xE0:
        return 0
    version, layer = header[1] >> 3 & 3, 4 - (header[1] >> 1 & 3)
    is_first = version == 3
    kbits, rate, padding = header[2] >> 4, header[2] >> 2 & 3, header[2] >> 1 & 1
    if version == 1 or layer not in (2, 3) or not 0 < kbits < 15 or rate == 3:
        return 0
    samples = 1152 if is_first or layer == 2 else 576
    return samples // 8 * 1000 * _KBITS[is_first, layer][kbits - 1] // _RATES_HZ[version][rate] + padding
