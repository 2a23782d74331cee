"""Opening a recording: what is read as a container, what is refused, and with which words."""

from __future__ import annotations

import codecs
from typing import NoReturn

import av
from av.audio.stream import AudioStream
from av.container import InputContainer

from parakeet_mps.audio.source import Source
from parakeet_mps.errors import AudioError

FORMATS = (
    *("wav", "w64", "aiff", "caf", "au", "voc", "flac", "mp3", "aac", "ac3", "eac3", "amr", "ogg", "matroska"),
    *("mov", "asf", "avi", "flv", "mpegts", "mpeg", "wv", "tta", "ape", "dss", "nistsphere"),
)
"""FFmpeg's demuxers that are used. Each reads the one file it is given; none follows references to others."""

CODECS = (
    *("aac", "aac_latm", "ac3", "adpcm_ima_qt", "adpcm_ima_wav", "adpcm_ms", "adpcm_yamaha", "alac", "amrnb", "amrwb"),
    *("ape", "dca", "dss_sp", "eac3", "flac", "g722", "g723_1", "g726", "gsm", "gsm_ms", "ilbc", "libopencore_amrnb"),
    *("libopencore_amrwb", "libopus", "mp1", "mp1float", "mp2", "mp2float", "mp3", "mp3float", "nellymoser", "opus"),
    *("speex", "truespeech", "tta", "vorbis", "wavpack", "wmalossless", "wmapro", "wmav1", "wmav2", "wmavoice"),
    *("pcm_alaw", "pcm_mulaw", "pcm_s8", "pcm_u8", "pcm_f32be", "pcm_f32le", "pcm_f64be", "pcm_f64le", "pcm_bluray"),
    *("pcm_dvd", "pcm_s16be", "pcm_s16be_planar", "pcm_s16le", "pcm_s16le_planar", "pcm_s24be", "pcm_s24le"),
    *("pcm_s32be", "pcm_s32le", "pcm_s64be", "pcm_s64le", "pcm_u16be", "pcm_u16le", "pcm_u24be", "pcm_u24le"),
    *("pcm_u32be", "pcm_u32le"),
)
"""FFmpeg's decoders that are used: of recordings and telephony. Video and images are never decoded."""

MAX_CHANNELS = 8
"""More channels are no recording of speech, and would cost memory in proportion."""
_RATES_HZ = range(1_000, 768_001)
_TEXT_BYTES = 4096
_WAV_PROBE_PACKETS = "1"
"""Packets in which FFmpeg looks for DTS that calls itself PCM. Its usual 32 take ten times as long as decoding does."""
_READ_BYTES = 1 << 16


def open_container(source: Source, options: dict[str, str]) -> InputContainer:
    """Open what the bytes say. Raises `AudioError` when they are no audio or video file, with the reason."""
    head = source.peek(0, _TEXT_BYTES)
    if source.has_only_tags:
        raise AudioError("The file has no audio: it ends with its tags.")
    if not head:
        raise AudioError("The file is empty.")
    if _is_text(head):
        raise AudioError("The file is text, not audio.")
    limits = {
        "format_whitelist": ",".join(FORMATS),
        "codec_whitelist": ",".join(CODECS),
        "protocol_whitelist": "none",
        **({"max_probe_packets": _WAV_PROBE_PACKETS} if head[8:12] == b"WAVE" else {}),
    }
    known = "wav" if head[:4] == b"RIFF" and head[8:12] == b"WAVE" else None  # what trying all formats would say
    try:
        return av.open(  # type: ignore[return-value]  # an input, as it is opened for reading
            source,
            format=known,
            container_options={**limits, **options},
            io_open=_refuse_reference,
            buffer_size=_READ_BYTES,
        )
    except (av.FFmpegError, ValueError, OverflowError):
        raise AudioError(_why_not_opened(head)) from None


def audio_stream(container: InputContainer) -> AudioStream:
    """Return the main audio track. Raises `AudioError` when there is none that can be decoded."""
    stream = container.streams.best("audio")
    if not isinstance(stream, AudioStream):
        tracks = [track for track in container.streams if track.type == "audio"]
        raise AudioError("The codec of the audio is not known." if tracks else "The file has no audio track.")
    decoder = stream.codec_context
    if decoder is None or decoder.codec.name not in CODECS:
        raise AudioError("The codec of the audio is not known.")
    check_shape(decoder.channels or 1, decoder.sample_rate or 0)
    decoder.thread_count = 1
    return stream


def check_shape(channels: int, rate_hz: int) -> None:
    """Raise `AudioError` on a number of channels or a sample rate that no recording of speech has."""
    if not 0 < channels <= MAX_CHANNELS:
        raise AudioError(f"The audio has {channels} channels; at most {MAX_CHANNELS} are read.")
    if rate_hz not in _RATES_HZ:
        raise AudioError(f"The audio's sample rate is {rate_hz} Hz; {_RATES_HZ[0]} to {_RATES_HZ[-1]} Hz are read.")


def _is_text(head: bytes) -> bool:
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character.isspace() for character in text)


def _refuse_reference(*_: object) -> NoReturn:
    raise AudioError("The file refers to other media; send the audio itself.")


def _why_not_opened(head: bytes) -> str:
    if head[4:8] in (b"ftyp", b"mdat", b"wide", b"moov"):
        return "The file has no usable index (moov): it is cut short, or its recording was never finished."
    return "The file is not audio in a known format, or it is damaged or cut short."
