"""Uploaded bytes -> one mono waveform at the recogniser's sample rate.

The bytes alone decide what a file is: no name and no declared type is known here. Knows nothing of HTTP or Triton.
"""

from __future__ import annotations

import codecs
import math

import torch
from torchcodec.decoders import AudioDecoder  # type: ignore[attr-defined]  # re-exported without __all__

from parakeet_mps.contract import MIN_SAMPLES, SAMPLE_RATE_HZ
from parakeet_mps.errors import AudioError

MAX_CHANNELS = 8
"""More channels are no recording of speech, and would cost memory in proportion."""

_PROBE_BYTES = 1 << 20
_TEXT_BYTES = 4096
_RIFF_UNKNOWN_SIZE = 0x7FFF_F000
_RIFF_SIZE_SLACK = 1024
_MOST_RIFF_CHUNKS = 1000

# FFmpeg follows what these formats refer to, local files and network addresses included, and its probe finds them
# anywhere in its window (also behind an ID3 tag): HLS, concat, DASH (two profiles), IMF and SDP.
# https://github.com/FFmpeg/FFmpeg/tree/n5.1/libavformat: hls.c, concatdec.c, dashdec.c, imfdec.c, rtsp.c
_REFERENCE_MARKS = (
    b"#extm3u",
    b"ffconcat version",
    b"dash:profile",
    b"pss:profile:dash",
    b"<compositionplaylist",
    b"c=in ip",
)


def decode(data: bytes, max_audio_s: float) -> torch.Tensor:
    """Return the file's audio as float32 [samples] in [-1, 1], mono at `SAMPLE_RATE_HZ`.

    Raises `AudioError`, with the reason, on anything that is not decodable audio of 0.1 s to `max_audio_s` seconds.
    """
    _refuse_what_is_no_media(data)
    _refuse_cut_short_wav(data)
    decoder = _open(data)
    _refuse_long_header(decoder, max_audio_s)
    waveform = downmix(_samples(decoder, max_audio_s))
    return _checked(waveform, max_audio_s)


def downmix(channels: torch.Tensor) -> torch.Tensor:
    """Average float32 [channels, samples] to [samples]; channels that cancel out give way to the loudest one."""
    if channels.shape[0] == 1:
        return channels[0]
    mixed = channels.mean(dim=0)
    energies = channels.square().sum(dim=1)
    # Unrelated channels keep sum(energies) / n^2 when averaged; far less than that means they are out of phase.
    if mixed.square().sum() < 0.25 * energies.sum() / channels.shape[0] ** 2:
        return channels[int(energies.argmax())].contiguous()
    return mixed


def _refuse_what_is_no_media(data: bytes) -> None:
    if not data:
        raise AudioError("The file is empty.")
    if _is_text(data[:_TEXT_BYTES]):
        raise AudioError("The file is text, not audio.")
    head = data[:_PROBE_BYTES].lower()
    if any(mark in head for mark in _REFERENCE_MARKS):
        raise AudioError("The file is a playlist that refers to other media; send the audio itself.")


def _is_text(head: bytes) -> bool:
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character.isspace() for character in text)


def _refuse_cut_short_wav(data: bytes) -> None:
    """Compare the size in a WAV's header with the bytes that came; FFmpeg would transcribe the stump in silence."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return
    at = _data_chunk(data)
    promised, present = _chunk_size(data, at), max(0, len(data) - at - 8)
    # Writers that cannot seek back leave a huge size in the header: it promises nothing.
    if not promised and not present:
        raise AudioError("The WAV file has no samples.")
    if present + _RIFF_SIZE_SLACK < promised < _RIFF_UNKNOWN_SIZE or not present:
        raise AudioError(f"The WAV file is cut short: {present} bytes of samples came, its header says {promised}.")


def _data_chunk(data: bytes) -> int:
    """Return where the WAV's samples are announced. Raises `AudioError` when chunks without end stand before them."""
    at = 12
    for _ in range(_MOST_RIFF_CHUNKS):
        if at + 8 > len(data) or data[at : at + 4] == b"data":
            return at
        at += 8 + _chunk_size(data, at) + _chunk_size(data, at) % 2
    raise AudioError("The WAV file has no samples.")


def _chunk_size(data: bytes, at: int) -> int:
    return int.from_bytes(data[at + 4 : at + 8], "little")


def _open(data: bytes) -> AudioDecoder:
    # Given bytes, torchcodec silences a warning about their being read-only, which is not safe in threads.
    writable = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    try:
        decoder = AudioDecoder(writable, sample_rate=SAMPLE_RATE_HZ)
    except ValueError:
        raise AudioError("The file has no audio track.") from None
    except RuntimeError:
        raise AudioError("The file is not audio in a known format, or it is damaged or cut short.") from None
    if (decoder.metadata.num_channels or 1) > MAX_CHANNELS:
        raise AudioError(f"The audio has {decoder.metadata.num_channels} channels; at most {MAX_CHANNELS} are read.")
    return decoder


def _refuse_long_header(decoder: AudioDecoder, max_audio_s: float) -> None:
    metadata = decoder.metadata
    duration_s = metadata.duration_seconds_from_header
    if duration_s is None:  # only the container knows its last timestamp
        duration_s = (metadata.duration_seconds or 0.0) - (metadata.begin_stream_seconds or 0.0)
    # FFmpeg estimates some durations from the bit rate, so the header alone refuses only what is far too long.
    if duration_s > 2 * max_audio_s:
        raise AudioError(f"The audio lasts {duration_s:.0f} s; at most {max_audio_s:g} s are accepted.")


def _samples(decoder: AudioDecoder, max_audio_s: float) -> torch.Tensor:
    """Decode at most a second more than `max_audio_s`, whatever the header says: float32 [channels, samples]."""
    stop_s = (decoder.metadata.begin_stream_seconds or 0.0) + max_audio_s + 1.0
    try:
        return decoder.get_samples_played_in_range(0.0, max(stop_s, 0.0)).data
    except RuntimeError as error:
        if "No audio frames" in str(error):
            raise AudioError("The file has no audio samples.") from None
        raise AudioError("The audio is damaged or cut short.") from None


def _checked(waveform: torch.Tensor, max_audio_s: float) -> torch.Tensor:
    if waveform.numel() > max_audio_s * SAMPLE_RATE_HZ:
        raise AudioError(f"The audio is too long; at most {max_audio_s:g} s are accepted.")
    if waveform.numel() < MIN_SAMPLES:
        raise AudioError(f"The audio is too short; at least {MIN_SAMPLES / SAMPLE_RATE_HZ:g} s are needed.")
    peak = float(waveform.abs().max())
    if not math.isfinite(peak):
        raise AudioError("The audio has samples that are not numbers.")
    return waveform / peak if peak > 1.0 else waveform
