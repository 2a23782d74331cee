"""Hostile files that name another file or an address, which a decoder must not open."""

from __future__ import annotations

import struct
from pathlib import Path

from recordings import encoded

ID3 = b"ID3\x03\0\0\0\0\0\x10" + bytes(16)
PNG = b"\x89PNG\r\n\x1a\n"


def references(target: str, wav: bytes) -> dict[str, bytes]:
    """Return files of many kinds that all refer to `target`, a path or an address. None is plain text."""
    playlists = {
        "ffconcat": f"ffconcat version 1.0\nfile {target}\n",
        "HLS": f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{target}\n#EXT-X-ENDLIST\n",
        "HLS with a map": f'#EXTM3U\n#EXT-X-MAP:URI="{target}"\n#EXTINF:9,\n{target}\n',
        "DASH": '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" profiles="urn:mpeg:dash:profile:'
        f'isoff-on-demand:2011"><Period><AdaptationSet><Representation id="1"><BaseURL>{target}</BaseURL>'
        "</Representation></AdaptationSet></Period></MPD>",
        "SDP": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 9 RTP/AVP 0\n",
        "RTSP redirect": f"RTSPtextRTSP://{target}\n",
        "SMIL": f'<smil><body><audio src="{target}"/></body></smil>',
        "M3U": f"#EXTM3U\n#EXTINF:9,x\n{target}\n",
        "ASX": f'<asx version="3.0"><entry><ref href="{target}"/></entry></asx>',
        "IMF": f'<?xml version="1.0"?><CompositionPlaylist><Id>{target}</Id></CompositionPlaylist>',
        "image pattern": f"{Path(target).with_suffix('')}%03d.png\n",
        "SVG": f'<svg xmlns="http://www.w3.org/2000/svg"><image href="{target}"/></svg>',
    }
    binary_end = bytes([0xFF, 0xFE] * 64)
    files = {name: text.encode() + binary_end for name, text in playlists.items()}
    files |= {f"{name} behind an ID3 tag": ID3 + data for name, data in list(files.items())[:4]}
    files["MOV with an external track"] = external_track(target, wav)
    return files


def external_track(path: str, wav: bytes) -> bytes:
    """Return a MOV whose samples lie in another file, by an alias record as QuickTime writes them."""
    movie = encoded(wav, "mov", "-c:a", "pcm_s16le")
    name = path.encode().replace(b"/", b":")
    record = struct.pack(">HH", 18, len(path)) + path.encode() + bytes(len(path) % 2)
    record = struct.pack(">HH", 2, len(name)) + name + bytes(len(name) % 2) + record + struct.pack(">HH", 0xFFFF, 0)
    file_name = Path(path).name.encode()[:63]
    alias = bytes(10) + b"\x04disk".ljust(28, b"\0") + bytes(12) + bytes([len(file_name)]) + file_name.ljust(63, b"\0")
    alias += bytes(16) + struct.pack(">HH", 1, 1) + bytes(16) + record
    entry = struct.pack(">I4sI", 12 + len(alias), b"alis", 0) + alias
    return _replaced(movie, [b"moov", b"trak", b"mdia", b"minf", b"dinf", b"dref"], bytes(7) + b"\x01" + entry)


def _replaced(boxes: bytes, path: list[bytes], content: bytes) -> bytes:
    """Return the boxes with the content of the one at `path` replaced, and all sizes put right."""
    if not path:
        return content
    at = 0
    while at < len(boxes):
        size, name = struct.unpack(">I4s", boxes[at : at + 8])
        if name == path[0]:
            inner = _replaced(boxes[at + 8 : at + size], path[1:], content)
            return boxes[:at] + struct.pack(">I4s", 8 + len(inner), name) + inner + boxes[at + size :]
        at += size
    raise ValueError(f"no box {path[0]!r}")
