#!/usr/bin/env bash
# Start the whole service on this machine: MPS, Triton and the gateway; when one dies, all are restarted in order.
# The same script runs in the container and, from a virtual environment, on a laptop.
#
# Usage: ./start-single-container.sh [--help]     (settings come from the environment, --help lists them)
set -Eeuo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

# refuse MESSAGE: stop with what the person has to do.
refuse() {
    printf 'start: %s\n' "$*" >&2
    exit 2
}

# choose_python: print the interpreter: the one PARAKEET_PYTHON names, else of the virtual environment, else python3.
choose_python() {
    if [ -n "${PARAKEET_PYTHON:-}" ]; then
        echo "$PARAKEET_PYTHON"
    elif [ -x "${VENV:-$ROOT/.venv}/bin/python" ]; then
        echo "${VENV:-$ROOT/.venv}/bin/python"
    else
        echo python3
    fi
}

# check_python PROGRAM: refuse an interpreter without the packages of the service.
check_python() {
    command -v "$1" >/dev/null || refuse "there is no $1: run scripts/install.sh, or set PARAKEET_PYTHON."
    "$1" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' ||
        refuse "$1 lacks the service's packages: run scripts/install.sh, or set PARAKEET_PYTHON."
}

# check_shared_memory FOLDER: Triton and its Python stubs meet in POSIX shared memory.
check_shared_memory() {
    if [ ! -d "$1" ] || [ ! -w "$1" ]; then
        refuse "$1 is missing or read-only: start the container with --shm-size=1g."
    fi
}

_main() {
    local python
    python="$(choose_python)"
    check_python "$python"
    [ "$#" -gt 0 ] || check_shared_memory /dev/shm
    cd "$ROOT"
    # exec: the supervisor gets the signals itself and, as process 1, collects ended processes.
    exec "$python" -m parakeet_mps.service "$@"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    _main "$@"
fi
