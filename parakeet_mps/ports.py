"""The ports that the service listens on, checked before anything starts."""

from __future__ import annotations

import contextlib
import errno
import socket
from typing import NamedTuple

from parakeet_mps.settings import SettingError, Settings


class Port(NamedTuple):
    """One listening port and the environment variable that moves it."""

    variable: str
    host: str
    number: int


def listening_ports(settings: Settings) -> list[Port]:
    """Return the ports of what is started here: the gateway's and Triton's."""
    ports = [Port("PORT", settings.host, settings.port)] if settings.starts_gateway else []
    if settings.starts_triton:
        ports += [
            Port("TRITON_URL", settings.triton_host, settings.triton_grpc_port),
            Port("TRITON_HTTP_PORT", settings.triton_host, settings.triton_http_port),
            Port("TRITON_METRICS_PORT", settings.triton_host, settings.triton_metrics_port),
        ]
    return ports


def check_ports(ports: list[Port]) -> None:
    """Raise `SettingError` for a port that is given twice, is in use, or cannot be listened on."""
    taken: dict[int, str] = {}
    with contextlib.ExitStack() as probes:  # all at once: the kernel knows whether two of one number get on
        for port in ports:
            family = socket.AF_INET6 if ":" in port.host else socket.AF_INET
            probe = probes.enter_context(socket.socket(family, socket.SOCK_STREAM))
            try:
                _listen(probe, port)
            except OSError as error:
                raise SettingError(_refusal(port, error, taken.get(port.number))) from None
            taken[port.number] = port.variable


def _listen(probe: socket.socket, port: Port) -> None:
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind((port.host, port.number))
    probe.listen()


def _refusal(port: Port, error: OSError, other: str | None) -> str:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        variable = "HOST" if port.variable == "PORT" else "TRITON_HOST"
        return f"{variable}={port.host!r} is no address of this machine"
    if error.errno == errno.EADDRINUSE and other:
        return f"{other} and {port.variable} both name port {port.number}: change one"
    what = "is in use by another program" if error.errno == errno.EADDRINUSE else f"cannot be used: {error}"
    return f"port {port.number} on {port.host} {what}; set {port.variable} to another"
