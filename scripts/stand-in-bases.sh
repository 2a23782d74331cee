#!/usr/bin/env bash
# Make stand-ins for the images' bases where no registry can be reached: Debian 12 with Python, and the same with a
# Triton laid out as in NVIDIA's image. They take this machine's certificates. Does nothing when they are there.
#
# Usage: scripts/stand-in-bases.sh     as root, with DOCKER (default docker); needs the installed .venv
set -Eeuo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# shellcheck source=scripts/install.sh
source "$ROOT/scripts/install.sh"

DOCKER="${DOCKER:-docker}"
PYTHON_STAND_IN="parakeet-mps-stand-in:python"
TRITON_STAND_IN="parakeet-mps-stand-in:tritonserver"
# What the real bases have and these images use: Python with its shared library and venv, certificates, setpriv, curl.
PACKAGES="python3,python3-venv,libpython3.11,ca-certificates,curl"

# make_debian FOLDER: unpack a Debian 12 into FOLDER.
make_debian() {
    command -v debootstrap >/dev/null || apt_install debootstrap
    debootstrap --variant=minbase --include="$PACKAGES" bookworm "$1" >"$1.log" 2>&1 ||
        refuse "debootstrap failed: $(tail -n 3 "$1.log")"
    rm -rf "$1"/var/cache/apt/archives/*.deb "$1"/var/lib/apt/lists/*
    cp /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/ca-certificates.crt"
}

# add_triton FOLDER: put the tritonserver of the embedding package into FOLDER as NVIDIA's image has it.
add_triton() {
    local packages home="$1/opt/tritonserver"
    packages="$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
    mkdir -p "$home"
    cp -r "$packages/pytriton/tritonserver/bin" "$packages/pytriton/tritonserver/backends" "$home"
    cp "$packages/pytriton/tritonserver/python_backend_stubs/3.11/triton_python_backend_stub" "$home/backends/python"
    cp -r "$packages/nvidia_pytriton.libs" "$home/lib"
}

# import_image FOLDER TAG [OPTION...]
import_image() { tar -c -C "$1" . | "$DOCKER" import "${@:3}" - "$2" >/dev/null; }

_main() {
    if "$DOCKER" image inspect "$PYTHON_STAND_IN" "$TRITON_STAND_IN" >/dev/null 2>&1; then return; fi
    say "making stand-ins for the base images"
    SCRATCH="$(mktemp -d)"
    trap 'rm -rf "$SCRATCH"' EXIT
    make_debian "$SCRATCH/debian"
    import_image "$SCRATCH/debian" "$PYTHON_STAND_IN"
    add_triton "$SCRATCH/debian"
    import_image "$SCRATCH/debian" "$TRITON_STAND_IN" --change 'ENV LD_LIBRARY_PATH=/opt/tritonserver/lib' \
        --change 'ENV PATH=/opt/tritonserver/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    _main "$@"
fi
