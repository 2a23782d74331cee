#!/usr/bin/env bash
# Build the three images, or the gateway's alone, run the container tests of what was built and print sizes and times.
# Installs Docker where it is missing. Bases that no registry gives are replaced by stand-ins made here; on a machine
# without a GPU torch is its CPU build.
#
# Usage: scripts/images.sh [all|gateway]     (MODEL files are baked in with docker build itself, see the README)
set -Eeuo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# shellcheck source=scripts/install.sh
source "$ROOT/scripts/install.sh"

export DOCKER_BUILDKIT=1 DOCKER=""
STAND_IN_PYTHON="3.11"
NO_DOCKER=69 # sysexits.h: a service is unavailable
CPU_INDEX="https://download.pytorch.org/whl/cpu"
BUILD_OPTIONS=()
RESULTS=()
HELPERS=()
SCRATCH=""

# clean_up: end what this script started; images and the builder's cache stay.
clean_up() {
    [ "${#HELPERS[@]}" -eq 0 ] || kill "${HELPERS[@]}" 2>/dev/null || true
    wait
    [ -z "$SCRATCH" ] || rm -rf "$SCRATCH"
}

# can_build CLIENT: this docker has BuildKit; a client without its buildx component is there on some machines.
can_build() {
    local probe
    probe="$(printf 'FROM scratch\nLABEL probe=1\n' | "$1" build -q - 2>/dev/null)" && "$1" rmi "$probe" >/dev/null
}

# find_client: print the first docker on the PATH that can build.
find_client() {
    local client
    while read -r client; do
        if can_build "$client"; then
            echo "$client"
            return
        fi
    done < <(type -aP docker)
    return 1
}

# start_daemon: run Docker's daemon until this script ends.
start_daemon() {
    say "starting Docker's daemon"
    dockerd >"$SCRATCH/dockerd.log" 2>&1 &
    HELPERS+=("$!")
    for _ in {1..100}; do
        if [ -S /var/run/docker.sock ] && find_client >/dev/null; then return; fi
        kill -0 "$!" 2>/dev/null || break
        sleep 0.3
    done
    say "Docker's daemon does not start: $(tail -n 5 "$SCRATCH/dockerd.log")"
    exit "$NO_DOCKER"
}

# find_docker: set DOCKER to a client that can build; install it, and start its daemon, where that is needed.
find_docker() {
    if ! find_client >/dev/null; then
        command -v dockerd >/dev/null || apt_install docker.io iptables
        find_client >/dev/null || start_daemon
    fi
    DOCKER="$(find_client)"
}

# find_compose: install Compose unless it is there, as a plugin or as the older program.
find_compose() {
    "$DOCKER" compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null || apt_install docker-compose
}

# base ARGUMENT DOCKERFILE: print the image that the Dockerfile names as its base.
base() { sed -n "s/^ARG $1=//p" "$ROOT/Dockerfile.$2"; }

# choose_bases [triton]: use the Dockerfiles' own bases, Triton's when it is named, or stand-ins where they cannot be had.
choose_bases() {
    local image images stand_ins=(python)
    images=("$(base PYTHON_IMAGE gateway)")
    [ "$#" -eq 0 ] || { images+=("$(base TRITON_IMAGE single)") && stand_ins+=(tritonserver); }
    for image in "${images[@]}"; do
        "$DOCKER" pull -q "$image" >/dev/null 2>&1 && continue
        say "no registry gives $image"
        "$ROOT/scripts/stand-in-bases.sh" "${stand_ins[@]}"
        RESULTS+=("on stand-in bases: for tests, not for GPUs")
        BUILD_OPTIONS+=(--build-arg TRITON_IMAGE=parakeet-mps-stand-in:tritonserver
            --build-arg PYTHON_IMAGE=parakeet-mps-stand-in:python)
        return
    done
}

# serve_wheel VERSION: hand the CPU build of torch that pip finds on this machine to the builds. Fails without one.
serve_wheel() {
    local port
    mkdir "$SCRATCH/wheels"
    "$VENV/bin/pip" download -q --no-deps --only-binary :all: --python-version "$STAND_IN_PYTHON" \
        -d "$SCRATCH/wheels" "torch==$1+cpu" >/dev/null 2>&1 || return
    port="$("$VENV/bin/python" -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')"
    "$VENV/bin/python" -m http.server --bind 127.0.0.1 --directory "$SCRATCH/wheels" "$port" >/dev/null 2>&1 &
    HELPERS+=("$!")
    printf '[global]\nfind-links = http://127.0.0.1:%s/\n' "$port" >"$SCRATCH/pip.conf"
    BUILD_OPTIONS+=(--secret "id=pip,src=$SCRATCH/pip.conf" --build-arg TORCH_INDEX=)
}

# choose_torch: on a machine without a GPU the images get the CPU build of torch, which saves 5 GB.
choose_torch() {
    local pinned
    has_gpu && return
    pinned="$(sed -n 's/^torch==//p' "$ROOT/constraints.txt")"
    if curl -fsI --max-time 10 "$CPU_INDEX/torch/" >/dev/null 2>&1; then
        BUILD_OPTIONS+=(--build-arg "TORCH_INDEX=$CPU_INDEX")
    else
        serve_wheel "$pinned" || refuse "no CPU build of torch can be reached."
    fi
}

# build NAME TAG [OPTION...]: build Dockerfile.NAME and say how long it took and how large the image is.
build() {
    local begin="$SECONDS"
    say "building $2"
    "$DOCKER" build -q --network=host "${BUILD_OPTIONS[@]}" "${@:3}" -f "$ROOT/Dockerfile.$1" -t "$2" "$ROOT" >/dev/null
    RESULTS+=("$(printf '%-28s %7s   built in %d s' "$2" "$(size "$2")" "$((SECONDS - begin))")")
}

# size IMAGE: print its size in GB.
size() { "$DOCKER" image inspect -f '{{.Size}}' "$1" | awk '{ printf "%.2f GB", $1 / 1e9 }'; }

build_gateway() {
    choose_bases
    choose_torch
    build gateway parakeet-mps-gateway:latest
}

build_all() {
    find_compose
    choose_bases triton
    choose_torch
    build triton parakeet-mps-triton:latest
    build single parakeet-mps:latest
    build gateway parakeet-mps-gateway:latest
    build single parakeet-mps:local-attention --build-arg ATTENTION=local
}

# run_tests PATH: run the container tests that lie there.
run_tests() {
    local begin="$SECONDS"
    "$VENV/bin/python" -m pytest "$ROOT/$1"
    RESULTS+=("container tests passed in $((SECONDS - begin)) s; everything took $SECONDS s")
}

_main() {
    local what="${1:-all}"
    [[ "$what" =~ ^(all|gateway)$ ]] || refuse "what is built is all or gateway, not $what."
    SCRATCH="$(mktemp -d)"
    trap clean_up EXIT
    find_docker
    "build_$what"
    case "$what" in
        all) run_tests tests/images ;;
        gateway) run_tests tests/images/test_gateway_image.py ;;
    esac
    printf '%s\n' "${RESULTS[@]}"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    _main "$@"
fi
