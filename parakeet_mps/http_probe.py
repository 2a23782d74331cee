"""The HTTP status of a local service, asked without blocking the event loop and without a library."""

from __future__ import annotations

import asyncio

PROBE_TIMEOUT_S = 10.0


async def http_status(
    host: str, port: int, path: str, timeout_s: float = PROBE_TIMEOUT_S, key: str | None = None
) -> int | None:
    """Return the status that `GET http://host:port/path` is answered with; None when nothing answers in time.

    `key` is sent as a bearer token.
    """
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n{authorization}Connection: close\r\n\r\n"
    try:
        async with asyncio.timeout(timeout_s):
            return await _ask(host, port, request)
    except (OSError, TimeoutError, ValueError, IndexError):
        return None


async def _ask(host: str, port: int, request: str) -> int:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(request.encode())
        await writer.drain()
        status_line = await reader.readline()
        return int(status_line.split()[1])
    finally:
        writer.close()


def loopback(listening: str) -> str:
    """Return the address at which a service that listens on `listening` is reached from this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(listening, listening)  # noqa: S104


def bracketed(host: str) -> str:
    """Return `host` as it stands in front of `:port`: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host
