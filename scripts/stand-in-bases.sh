#!/usr/bin/env bash
# Make stand-ins for the images' bases where no registry can be reached: Debian 12 with Python, and the same with a
# Triton laid out as in NVIDIA's image. They take this machine's certificates. Makes none that is there.
#
# Usage: scripts/stand-in-bases.sh python [tritonserver]     as root, with DOCKER (default docker); that of Triton needs
# the installed .venv
set -Eeuo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# shellcheck source=scripts/install.sh
source "$ROOT/scripts/install.sh"

DOCKER="${DOCKER:-docker}"
PYTHON_STAND_IN="parakeet-mps-stand-in:python"
TRITON_STAND_IN="parakeet-mps-stand-in:tritonserver"
# What the real bases have and these images use: Python with its shared library and venv, certificates, setpriv, curl.
PACKAGES="python3,python3-venv,libpython3.11,ca-certificates,curl"

# make_python SCRATCH: Debian 12 with Python.
make_python() {
    local debian="$1/debian"
    command -v debootstrap >/dev/null || apt_install debootstrap
    debootstrap --variant=minbase --include="$PACKAGES" bookworm "$debian" >"$1/log" 2>&1 ||
        refuse "debootstrap failed: $(tail -n 3 "$1/log")"
    rm -rf "$debian"/var/cache/apt/archives/*.deb "$debian"/var/lib/apt/lists/*
    cp /etc/ssl/certs/ca-certificates.crt "$debian/etc/ssl/certs/ca-certificates.crt"
    tar -c -C "$debian" . | "$DOCKER" import - "$PYTHON_STAND_IN" >/dev/null
}

# make_tritonserver SCRATCH: the same with the tritonserver of the embedding package where NVIDIA's image has it.
make_tritonserver() {
    local packages home="$1/triton"
    packages="$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
    mkdir "$home"
    cp -r "$packages/pytriton/tritonserver/bin" "$packages/pytriton/tritonserver/backends" "$home"
    cp "$packages/pytriton/tritonserver/python_backend_stubs/3.11/triton_python_backend_stub" "$home/backends/python"
    cp -r "$packages/nvidia_pytriton.libs" "$home/lib"
    printf '%s\n' "FROM $PYTHON_STAND_IN" "COPY . /opt/tritonserver" "ENV LD_LIBRARY_PATH=/opt/tritonserver/lib" \
        "ENV PATH=/opt/tritonserver/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" |
        "$DOCKER" build -q -t "$TRITON_STAND_IN" -f - "$home" >/dev/null
}

_main() {
    local name
    SCRATCH="$(mktemp -d)"
    trap 'rm -rf "$SCRATCH"' EXIT
    for name in "$@"; do
        "$DOCKER" image inspect "parakeet-mps-stand-in:$name" >/dev/null 2>&1 && continue
        say "making a stand-in for the base image of $name"
        "make_$name" "$SCRATCH"
    done
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    _main "$@"
fi
