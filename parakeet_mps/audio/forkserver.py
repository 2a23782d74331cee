"""Entry: `python -m parakeet_mps.audio.forkserver`. Forks one confined process for each file to decode.

A process meets one file only: what a hostile file does to it dies with it, and it never sees another recording.
Forking takes milliseconds, because PyAV and numpy are loaded once, here. Standard input is the control socket; the
server ends when that is closed.
"""

from __future__ import annotations

import io
import os
import signal
import socket
import sys
import wave

from parakeet_mps.audio import messages
from parakeet_mps.audio.confinement import address_space_bytes, confine, confine_further, die_with_parent
from parakeet_mps.audio.recording import Recording
from parakeet_mps.audio.source import Source
from parakeet_mps.errors import AudioError

MEMORY_BYTES = 512 << 20
"""What decoding may take on top of the loaded libraries. Indexes of long files take tens of MB."""
_LEAST_CPU_S = 60
_AUDIO_S_PER_CPU_S = 10


def serve(control: socket.socket) -> None:
    """Fork a process for each request that comes through `control`, until it is closed."""
    _ignore_signals()
    die_with_parent()
    _load_everything()
    memory_bytes = address_space_bytes() + MEMORY_BYTES
    confine()
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, messages.REQUEST.size, 2)
        if not request:
            return
        if len(descriptors) == 2 and _fork() == 0:
            control.close()
            file, stream = descriptors
            _decode_and_exit(file, stream, messages.REQUEST.unpack(request)[0], memory_bytes)
        for descriptor in descriptors:  # where no process was made, the end of its stream tells the gateway
            os.close(descriptor)


def _fork() -> int | None:
    """Return as `os.fork` does, or None where no more processes may be made."""
    try:
        return os.fork()
    except OSError as error:
        sys.stderr.write(f"no process can be made to decode a file: {error}\n")
        return None


def _ignore_signals() -> None:
    # Ctrl-C and a stop of the whole group reach this process too, while requests may still be answered.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended processes leave no zombie


def _load_everything() -> None:
    """Decode something, so that nothing is left to be imported from a file system that is out of reach then."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((2, 2, 8000, 0, "NONE", ""))
        writer.writeframes(bytes(4 * 8000))
    with Source.of(file.getvalue()) as source:
        list(Recording(source, max_audio_s=2).blocks())


def _decode_and_exit(file: int, stream: int, max_audio_s: float, memory_bytes: int) -> None:
    status = 1
    try:
        with socket.socket(fileno=stream) as gateway:
            _introduce(gateway)
            confine_further(memory_bytes, _LEAST_CPU_S + int(max_audio_s / _AUDIO_S_PER_CPU_S))
            _decode(file, gateway, max_audio_s)
        status = 0
    except (BrokenPipeError, ConnectionResetError):
        status = 0  # nobody wants the rest
    except BaseException:  # noqa: BLE001  this process must end here, not in its parent's code
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _introduce(gateway: socket.socket) -> None:
    """Send a handle by which the gateway can kill this process and no other."""
    handle = os.pidfd_open(os.getpid())
    socket.send_fds(gateway, [b"\0"], [handle])
    os.close(handle)


def _decode(file: int, gateway: socket.socket, max_audio_s: float) -> None:
    try:
        with Source(file) as source:
            recording = Recording(source, max_audio_s)
            for block in recording.blocks():
                _send(gateway, messages.AUDIO, block.data.cast("B"))
        _send(gateway, messages.END, (recording.warning or "").encode())
    except AudioError as error:
        _send(gateway, messages.REFUSED, error.message.encode())
    except MemoryError:
        _send(gateway, messages.REFUSED, b"The file takes too much memory to decode.")


def _send(gateway: socket.socket, kind: bytes, body: bytes | memoryview) -> None:
    """Send header and body together: alone, the header would wake the gateway for nothing."""
    sent = gateway.sendmsg([messages.HEADER.pack(kind, len(body)), body])
    gateway.sendall(memoryview(body)[max(0, sent - messages.HEADER.size) :])


if __name__ == "__main__":
    serve(socket.socket(fileno=sys.stdin.fileno()))
