#!/usr/bin/env bash
# Install everything the service and its tests need into .venv, and Debian/Ubuntu packages that are missing.
# Does nothing, quickly, when nothing changed since the last time.
#
# Usage: scripts/install.sh [serve|test]     test adds the voices, JavaScript client, Prometheus and browser of the tests
# Settings: PYTHON (interpreter, 3.11 or 3.12), VENV (folder, default .venv)
set -Eeuo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="${VENV:-$ROOT/.venv}"
EXTRAS="gateway,engine,embedded-triton,dev"

say() { printf 'install: %s\n' "$*" >&2; }

# refuse MESSAGE: stop with what the person has to do.
refuse() {
    say "$*"
    exit 2
}

# python_version PROGRAM: print "3.11" or "3.12" when PROGRAM runs and is one of them, else fail.
python_version() {
    "$1" -c 'import sys; v = sys.version_info[:2]; print("%d.%d" % v); sys.exit(v not in ((3, 11), (3, 12)))' 2>/dev/null
}

# find_python: print the interpreter to use.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.12 python3.11}; do
        if python_version "$candidate" >/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    refuse "Python 3.11 or 3.12 is needed${PYTHON:+ and PYTHON=$PYTHON is neither}." \
        "Install one (Debian 12: apt-get install python3; Ubuntu 24.04: apt-get install python3;" \
        "Ubuntu 22.04: apt-get install python3.11), or set PYTHON to its path."
}

# apt_install PACKAGE...: install Debian packages as root or through sudo, or say how.
apt_install() {
    local as_root=()
    command -v apt-get >/dev/null || refuse "these are missing and there is no apt-get: $*. Install them and try again."
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || refuse "these are missing: run 'apt-get install $*' as root and try again."
        as_root=(sudo)
    fi
    say "installing $*"
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null ||
        refuse "apt-get could not install: $*"
}

has_library() { ldconfig -p | grep -q "$1" || /sbin/ldconfig -p | grep -q "$1"; } 2>/dev/null

# has_shared_python PROGRAM VERSION: Triton's Python stub links libpython, which many machines have only inside python3.
has_shared_python() {
    local folder
    has_library "libpython$2.so.1.0" && return
    folder="$("$1" -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))')"
    [ -e "$folder/libpython$2.so.1.0" ]
}

is_debian() { grep -q '^ID=debian' /etc/os-release; } 2>/dev/null

# missing_packages PYTHON VERSION PURPOSE: print the Debian packages whose programs or libraries are not there.
missing_packages() {
    local program
    command -v curl >/dev/null || echo curl
    if ! command -v ffmpeg >/dev/null || ! has_library libavcodec.so || ! has_library libavdevice.so; then echo ffmpeg; fi
    has_shared_python "$1" "$2" || echo "libpython$2"
    "$1" -c 'import ensurepip, venv' 2>/dev/null || echo "python$2-venv"
    [ "$3" = test ] || return 0
    for program in espeak-ng flite npm prometheus; do
        command -v "$program" >/dev/null || echo "$program"
    done
    command -v node >/dev/null || echo nodejs
    if is_debian && ! command -v chromium >/dev/null; then echo chromium; fi
}

install_packages() {
    local packages
    mapfile -t packages < <(missing_packages "$@")
    [ "${#packages[@]}" -eq 0 ] || apt_install "${packages[@]}"
}

has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU; }

# torch_options: print pip arguments that pick the CPU build of torch on a machine without an NVIDIA GPU.
# Elsewhere, and where no CPU build can be had, plain pip decides: the CUDA build also runs on a CPU.
torch_options() {
    local pinned index="https://download.pytorch.org/whl/cpu"
    pinned="$(sed -n 's/^torch==//p' "$ROOT/constraints.txt")"
    has_gpu && return
    if "$VENV/bin/pip" install -q --dry-run --no-deps "torch==$pinned+cpu" >/dev/null 2>&1; then
        echo "torch==$pinned+cpu"
    elif curl -fsI --max-time 10 "$index/torch/" >/dev/null 2>&1; then
        printf '%s\n' "torch==$pinned+cpu" --extra-index-url "$index"
    else
        say "no CPU build of torch can be reached: the CUDA build is installed, which is larger"
    fi
}

# fingerprint PYTHON: what the installation depends on; the first line tells one interpreter from another.
fingerprint() {
    "$1" -VV | tr '\n' ' '
    echo
    { cat "$ROOT/constraints.txt" "$ROOT/pyproject.toml" "${BASH_SOURCE[0]}" && echo "$ROOT"; } | sha256sum
}

# make_environment PYTHON FINGERPRINT: make the virtual environment, or keep the one of the same interpreter.
make_environment() {
    [ ! -e "$VENV" ] || [ -e "$VENV/pyvenv.cfg" ] || refuse "VENV=$VENV exists and is no virtual environment."
    if [ "$(head -n 1 "$VENV/installed" 2>/dev/null)" != "$(head -n 1 <<<"$2")" ]; then
        "$1" -m venv --clear "$VENV"
    fi
}

install_python_packages() {
    local options
    mapfile -t options < <(torch_options)
    say "installing Python packages into $VENV (a few minutes the first time)"
    "$VENV/bin/pip" install -qq --disable-pip-version-check --root-user-action=ignore \
        -c "$ROOT/constraints.txt" -e "${ROOT}[$EXTRAS]" "${options[@]}"
}

# install_node_packages: the versions in the lock file, unless they are there.
install_node_packages() {
    local folder="$ROOT/tests/node"
    [ "$folder/node_modules/.package-lock.json" -nt "$folder/package-lock.json" ] && return
    say "installing JavaScript packages into $folder"
    (cd "$folder" && npm ci --silent --no-audit --no-fund) || refuse "npm could not install what $folder/package.json names."
    touch "$folder/node_modules/.package-lock.json"
}

# install_browser: where Chromium is no Debian package (Ubuntu's is a snap), Playwright brings one.
install_browser() {
    if command -v chromium >/dev/null || [ -e "$VENV/browser" ]; then return; fi
    say "installing the browser that the tests use"
    "$VENV/bin/playwright" install --with-deps --only-shell chromium >/dev/null ||
        refuse "playwright could not install Chromium."
    touch "$VENV/browser"
}

_main() {
    local purpose="${1:-serve}" python version print
    python="$(find_python)"
    version="$(python_version "$python")"
    install_packages "$python" "$version" "$purpose"
    print="$(fingerprint "$python")"
    if [ "$(cat "$VENV/installed" 2>/dev/null)" != "$print" ]; then
        make_environment "$python" "$print"
        install_python_packages
        echo "$print" >"$VENV/installed"
    fi
    if [ "$purpose" = test ]; then
        install_node_packages
        install_browser
    fi
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    _main "$@"
fi
