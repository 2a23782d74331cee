"""Every kind of recording that must decode, made on the spot from one WAV. `python tests/kinds.py` prints the table."""

from __future__ import annotations

import functools
import io
import random
import struct
import sys
import wave
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import av

from recordings import encoded, piped, speech

Make = Callable[[bytes], bytes]

SENTENCE = "the patient presents with cough and loss of appetite"
"""What the demo recogniser hears in every kind; tests of all kinds share its recordings."""


@dataclass(frozen=True)
class Kind:
    """A container, a variant of it, how it is made of a WAV, and the least correlation of what is decoded with that."""

    container: str
    variant: str
    make: Make
    least: float = 0.95

    @property
    def name(self) -> str:
        return f"{self.container}, {self.variant}"


def by_ffmpeg(suffix: str, *options: str) -> Make:
    return lambda wav: encoded(wav, suffix, *options)


def by_ffmpeg_pipe(container: str, *options: str) -> Make:
    return lambda wav: piped(wav, container, *options)


def with_video(suffix: str, *options: str) -> Make:
    film = ("-f", "lavfi", "-i", "testsrc=size=64x64:rate=5", "-shortest")
    return by_ffmpeg(suffix, *film, *options)


def by_amr(codec: str, rate_hz: int) -> Make:
    """Debian's FFmpeg writes no AMR; PyAV's does."""

    def make(wav: bytes) -> bytes:
        file = io.BytesIO()
        source = encoded(wav, "wav", "-ar", str(rate_hz))
        with av.open(io.BytesIO(source)) as reader, av.open(file, "w", format="amr") as writer:
            stream = writer.add_stream(codec, rate=rate_hz, layout="mono")
            stream.bit_rate = 12_200
            for frame in reader.decode(audio=0):
                frame.pts = None
                writer.mux(stream.encode(frame))
            writer.mux(stream.encode(None))
        return file.getvalue()

    return make


# WAV headers by hand


def samples_of(wav: bytes) -> bytes:
    return wav[44:]


def wav_header(data_size: int, riff_size: int | None = None, fmt: bytes | None = None, before: bytes = b"") -> bytes:
    """Return a header for 16-bit mono at 22.05 kHz that promises what it is told to."""
    fmt = fmt or struct.pack("<HHIIHH", 1, 1, 22_050, 44_100, 2, 16)
    chunks = b"fmt " + struct.pack("<I", len(fmt)) + fmt + before + b"data" + struct.pack("<I", data_size)
    whole = 4 + len(chunks) + data_size if riff_size is None else riff_size
    return b"RIFF" + struct.pack("<I", whole) + b"WAVE" + chunks


def wav_promising(share: float) -> Make:
    return lambda wav: wav_header(int(share * len(samples_of(wav))) & ~1, riff_size=0) + samples_of(wav)


def wav_of_size(size: int) -> Make:
    return lambda wav: wav_header(size, riff_size=size) + samples_of(wav)


def wave_extensible(wav: bytes) -> bytes:
    pcm = bytes.fromhex("0100000000001000800000aa00389b71")
    fmt = struct.pack("<HHIIHHHHI", 0xFFFE, 1, 22_050, 44_100, 2, 16, 22, 16, 4) + pcm
    return wav_header(len(samples_of(wav)), fmt=fmt) + samples_of(wav)


def wav_with_long_preamble(wav: bytes) -> bytes:
    junk = b"bext" + struct.pack("<I", 200_000) + bytes(200_000) + b"JUNK" + struct.pack("<I", 3) + b"xyz\0"
    return wav_header(len(samples_of(wav)), before=junk) + samples_of(wav) + b"LIST\x04\0\0\0INFO"


def dts_as_pcm(wav: bytes) -> bytes:
    """Return DTS behind the header of a CD's PCM, as discs of surround sound have it."""
    dts = piped(wav, "dts", "-ar", "44100", "-ac", "2", "-c:a", "dca", "-strict", "-2", "-b:a", "1411200")
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((2, 2, 44_100, 0, "NONE", ""))
        writer.writeframes(dts)
    return file.getvalue()


# MP3 tags by hand


def id3(picture: bytes, mime: bytes) -> bytes:
    """Return an ID3v2.3 tag with a front cover."""
    body = b"\0" + mime + b"\0\x03\0" + picture
    frame = b"APIC" + struct.pack(">IH", len(body), 0) + body
    return promising(b"ID3\x03\0\0" + bytes(4) + frame, len(frame))


def promising(tag: bytes, size: int) -> bytes:
    """Return the tag with another size in its header."""
    return tag[:6] + bytes(size >> 7 * byte & 0x7F for byte in (3, 2, 1, 0)) + tag[10:]


def png(side: int) -> bytes:
    """Return a square of noise, about 3 bytes a pixel."""
    noise = random.Random(1).randbytes(3 * side)
    rows = b"".join(b"\0" + noise for _ in range(side))

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    pixels = zlib.compress(rows, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def mp3(wav: bytes) -> bytes:
    return encoded(wav, "mp3", "-b:a", "128k")


def with_damaged_frames(wav: bytes) -> bytes:
    """Overwrite two stretches of 100 bytes, each inside one frame or two."""
    data = bytearray(mp3(wav))
    for share in (0.02, 0.98):
        at = int(share * len(data))
        data[at : at + 100] = bytes(range(100))
    return bytes(data)


def chained(wav: bytes) -> bytes:
    """Return two Ogg streams one after the other, of different sample rates, as radio servers and joined files have."""
    codec = ("-c:a", "libvorbis", "-q:a", "6")
    seconds = (len(wav) - 44) / 44_100
    first = encoded(wav, "ogg", "-t", f"{seconds / 2:.3f}", *codec)
    second = encoded(wav, "ogg", "-ss", f"{seconds / 2:.3f}", *codec, "-ar", "44100")
    return first + second


def channels(count: int) -> Make:
    return by_ffmpeg("wav", "-af", f"pan={count}c|" + "|".join(f"c{index}=c0" for index in range(count)))


OPUS = ("-c:a", "libopus", "-b:a", "64k")
FRAGMENTS = ("-movflags", "frag_keyframe+empty_moov+default_base_moof")

KINDS: tuple[Kind, ...] = (
    Kind("WAV", "8-bit", by_ffmpeg("wav", "-c:a", "pcm_u8"), 0.99),
    Kind("WAV", "16-bit", by_ffmpeg("wav"), 0.999),
    Kind("WAV", "24-bit", by_ffmpeg("wav", "-c:a", "pcm_s24le"), 0.999),
    Kind("WAV", "32-bit", by_ffmpeg("wav", "-c:a", "pcm_s32le"), 0.999),
    Kind("WAV", "float32", by_ffmpeg("wav", "-c:a", "pcm_f32le"), 0.999),
    Kind("WAV", "float64", by_ffmpeg("wav", "-c:a", "pcm_f64le"), 0.999),
    Kind("WAV", "mu-law", by_ffmpeg("wav", "-c:a", "pcm_mulaw"), 0.99),
    Kind("WAV", "A-law", by_ffmpeg("wav", "-c:a", "pcm_alaw"), 0.99),
    Kind("WAV", "mu-law at 8 kHz", by_ffmpeg("wav", "-c:a", "pcm_mulaw", "-ar", "8000"), 0.9),
    Kind("WAV", "MS ADPCM", by_ffmpeg("wav", "-c:a", "adpcm_ms"), 0.99),
    Kind("WAV", "IMA ADPCM", by_ffmpeg("wav", "-c:a", "adpcm_ima_wav"), 0.99),
    Kind("WAV", "GSM", by_ffmpeg("wav", "-c:a", "libgsm_ms", "-ar", "8000"), 0.8),
    Kind("WAV", "WAVE_EXTENSIBLE", wave_extensible, 0.999),
    Kind("WAV", "RF64", by_ffmpeg("wav", "-rf64", "always"), 0.999),
    Kind("WAV", "W64", by_ffmpeg("w64"), 0.999),
    Kind("WAV", "written to a pipe", by_ffmpeg_pipe("wav"), 0.999),
    Kind("WAV", "size 0", wav_of_size(0), 0.999),
    Kind("WAV", "size 2^31-1", wav_of_size(0x7FFF_FFFF), 0.999),
    Kind("WAV", "size 2^32-1", wav_of_size(0xFFFF_FFFF), 0.999),
    Kind("WAV", "size too small", wav_promising(0.4), 0.999),
    Kind("WAV", "long chunks in front", wav_with_long_preamble, 0.999),
    *(
        Kind("Sample rate", f"{rate / 1000:g} kHz", by_ffmpeg("wav", "-ar", str(rate)), 0.9 if rate < 16_000 else 0.999)
        for rate in (8000, 11_025, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000, 192_000)
    ),
    *(Kind("Channels", str(count), channels(count), 0.999) for count in range(1, 9)),
    Kind("Channels", "2 out of phase", by_ffmpeg("wav", "-af", "pan=stereo|c0=c0|c1=-1*c0"), 0.999),
    Kind("WAV", "DTS that says it is PCM", dts_as_pcm),
    Kind("FLAC", "16-bit", by_ffmpeg("flac"), 0.999),
    Kind("FLAC", "24-bit 96 kHz", by_ffmpeg("flac", "-sample_fmt", "s32", "-ar", "96000"), 0.999),
    Kind("FLAC", "written to a pipe", by_ffmpeg_pipe("flac"), 0.999),
    Kind("MP3", "constant bit rate", mp3),
    Kind("MP3", "VBR", by_ffmpeg("mp3", "-q:a", "2")),
    Kind("MP3", "VBR without a header", by_ffmpeg("mp3", "-q:a", "2", "-write_xing", "0")),
    Kind("MP3", "8 kHz", by_ffmpeg("mp3", "-ar", "8000"), 0.9),
    Kind("MP3", "6 MB of cover art", lambda wav: id3(png(1414), b"image/png") + mp3(wav)),
    Kind("MP3", "mislabelled cover art", lambda wav: id3(png(300), b"image/jpeg") + mp3(wav)),
    Kind("MP3", "cover art that is none", lambda wav: id3(bytes(range(256)) * 500, b"image/png") + mp3(wav)),
    Kind("MP3", "cover art larger than its tag says", lambda w: promising(id3(png(500), b"image/png"), 1000) + mp3(w)),
    Kind(
        "MP3", "cover art smaller than its tag says", lambda w: promising(id3(png(50), b"image/png"), 99_999) + mp3(w)
    ),
    Kind("MP3", "damaged frames", with_damaged_frames, 0.9),
    Kind("MP3", "ID3v1 at the end", lambda wav: mp3(wav) + b"TAG" + b"x".ljust(125, b"\0")),
    Kind("MP2", "192 kbit/s", by_ffmpeg("mp2")),
    Kind("AAC", "ADTS", by_ffmpeg("aac")),
    Kind("M4A", "index at the end", by_ffmpeg("m4a")),
    Kind("M4A", "index in front", by_ffmpeg("m4a", "-movflags", "+faststart")),
    Kind("M4A", "ALAC", by_ffmpeg("m4a", "-c:a", "alac"), 0.999),
    Kind("MP4", "fragmented", by_ffmpeg("mp4", *FRAGMENTS)),
    Kind("MP4", "fragmented, written to a pipe", by_ffmpeg_pipe("mp4", "-c:a", "aac", *FRAGMENTS)),
    Kind("MP4", "with video", with_video("mp4")),
    Kind("MP4", "Opus", by_ffmpeg("mp4", *OPUS, "-strict", "-2")),
    Kind("MOV", "with video", with_video("mov", "-c:a", "pcm_s16le"), 0.999),
    Kind("MOV", "mu-law", by_ffmpeg("mov", "-c:a", "pcm_mulaw"), 0.99),
    Kind("3GP", "AAC", by_ffmpeg("3gp", "-c:a", "aac")),
    Kind("WebM", "Opus", by_ffmpeg("webm", *OPUS)),
    Kind("WebM", "Opus without duration", by_ffmpeg_pipe("webm", *OPUS)),
    Kind("WebM", "with video", with_video("webm", "-c:v", "libvpx", *OPUS)),
    Kind("MKV", "with video", with_video("mkv")),
    Kind("MKV", "clock that starts at 1000 s", by_ffmpeg("mka", "-output_ts_offset", "1000")),
    Kind("Ogg", "Opus", by_ffmpeg("ogg", *OPUS)),
    Kind("Ogg", "Opus written to a pipe", by_ffmpeg_pipe("ogg", *OPUS)),
    Kind("Ogg", "Vorbis", by_ffmpeg("ogg", "-c:a", "libvorbis")),
    Kind("Ogg", "FLAC", by_ffmpeg("ogg", "-c:a", "flac"), 0.999),
    Kind("Ogg", "Speex", by_ffmpeg("ogg", "-c:a", "libspeex", "-ar", "16000"), 0.8),
    Kind("Ogg", "chained, rates differ", chained),
    Kind("AIFF", "16-bit", by_ffmpeg("aiff"), 0.999),
    Kind("AIFF", "24-bit", by_ffmpeg("aiff", "-c:a", "pcm_s24be"), 0.999),
    Kind("CAF", "16-bit", by_ffmpeg("caf"), 0.999),
    Kind("CAF", "ALAC", by_ffmpeg("caf", "-c:a", "alac"), 0.999),
    Kind("CAF", "written to a pipe", by_ffmpeg_pipe("caf", "-c:a", "pcm_s16be"), 0.999),
    Kind("AU", "mu-law", by_ffmpeg("au", "-c:a", "pcm_mulaw"), 0.99),
    Kind("AMR", "narrow band", by_amr("libopencore_amrnb", 8000), 0.7),
    Kind("WMA", "version 1", by_ffmpeg("wma", "-c:a", "wmav1")),
    Kind("WMA", "version 2", by_ffmpeg("wma")),
    Kind("AC-3", "192 kbit/s", by_ffmpeg("ac3", "-ar", "44100")),
    Kind("AVI", "with video", with_video("avi")),
    Kind("FLV", "with video", with_video("flv", "-ar", "44100")),
    Kind("MPEG-TS", "AAC", by_ffmpeg("ts", "-c:a", "aac")),
    Kind("WavPack", "16-bit", by_ffmpeg("wv"), 0.999),
    Kind("TTA", "16-bit", by_ffmpeg("tta"), 0.999),
)


@functools.cache
def recording(kind: Kind, wav: bytes) -> bytes:
    """Return the WAV as a recording of that kind, made once."""
    return kind.make(wav)


def corpus() -> list[bytes]:
    """Return one small recording of each kind, to be mutated."""
    recordings = [recording(kind, speech(SENTENCE)) for kind in KINDS]
    return [data for data in recordings if len(data) < 2 << 20]


def table() -> str:
    """Return the README's table of what decodes."""
    variants: dict[str, list[str]] = {}
    for kind in KINDS:
        variants.setdefault(kind.container, []).append(kind.variant)
    rows = [f"| {container} | {'; '.join(names)} |" for container, names in variants.items()]
    return "\n".join(["| recording | encoded by a test and transcribed word for word |", "|---|---|", *rows])


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
