#!/usr/bin/env bash
# Check every shell script and Dockerfile in git; fails when a linter is missing or git lists no script.
#
# Usage: scripts/lint-shell.sh
set -Eeuo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
PATH="${VENV:-$ROOT/.venv}/bin:$PATH"

# shell_scripts: print the files in git that bash runs, by their first line.
shell_scripts() {
    git grep -I -l -E -e '^#!.*\b(ba)?sh\b' -- . | while read -r file; do
        if head -n 1 "$file" | grep -q -E '^#!.*\b(ba)?sh\b'; then echo "$file"; fi
    done
}

_main() {
    local scripts dockerfiles
    cd "$ROOT"
    mapfile -t scripts < <(shell_scripts)
    mapfile -t dockerfiles < <(git ls-files 'Dockerfile*' '**/Dockerfile*')
    [ "${#scripts[@]}" -gt 0 ] || { echo "lint-shell: git lists no shell script" >&2; exit 1; }
    shellcheck "${scripts[@]}"
    hadolint --version >/dev/null
    [ "${#dockerfiles[@]}" -eq 0 ] || hadolint "${dockerfiles[@]}"
    echo "shellcheck: ${#scripts[@]} scripts, hadolint: ${#dockerfiles[@]} Dockerfiles"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    _main "$@"
fi
