"""A stand-in for CUDA's MPS programs: the control program with its daemon, pid file, commands and a server process."""

from __future__ import annotations

import os
from pathlib import Path

from parakeet_mps.mps import CONTROL, SERVER

DAEMON = r"""#!/bin/bash
# Behaves as nvidia-cuda-mps-control does: -d leaves a daemon with a pid file, commands come on standard input.
pidfile="$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
if [ "${1:-}" = --daemon ]; then
    [ -z "${FAKE_STUBBORN:-}" ] || trap "" TERM
    "$(dirname "$0")/nvidia-cuda-mps-server" &
    while :; do sleep 0.05; done
fi
if [ "${1:-}" = -d ]; then
    [ -z "${FAKE_FAILS:-}" ] || { echo "An instance of this daemon is already running"; exit 1; }
    [ -z "${FAKE_UNREACHABLE:-}" ] || exit 0
    setsid bash "$0" --daemon </dev/null &
    echo $! >"$pidfile"
    env | grep ^CUDA >"$CUDA_MPS_LOG_DIRECTORY/environ"
    echo "control started" >"$CUDA_MPS_LOG_DIRECTORY/control.log"
    exit 0
fi
read -r command
[ -e "$pidfile" ] || { echo "Cannot find MPS control daemon process"; exit 1; }
echo "$command" >>"$CUDA_MPS_LOG_DIRECTORY/commands"
case "$command" in
    get_server_list) echo 4711 ;;
    "get_client_list 4711") printf "12\n34\n" ;;
    "terminate_client 4711 "*) [ -z "${FAKE_STUBBORN:-}" ] || { echo "Failed to terminate"; exit 1; } ;;
    quit) [ -n "${FAKE_STUBBORN:-}" ] || { kill "$(cat "$pidfile")"; rm "$pidfile"; } ;;
    *) echo "Unrecognized command"; exit 1 ;;
esac
"""

SERVER_PROCESS = """#!/bin/bash
echo $$ >"$CUDA_MPS_LOG_DIRECTORY/server.pid"
while :; do sleep 0.05; done
"""


def install(folder: Path) -> dict[str, str]:
    """Put both programs into `folder`; return an environment in which they are found."""
    folder.mkdir()
    for name, text in ((CONTROL, DAEMON), (SERVER, SERVER_PROCESS)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}
