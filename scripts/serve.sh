#!/usr/bin/env bash
# Run the service in the foreground and show one transcription. Ctrl-C stops every process that it started.
#
# Usage: scripts/serve.sh     (settings come from the environment, see the README)
set -Eeuo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
SAMPLE="models/sample.wav"
SERVICE=""

# stop_service: end the service and wait until it has stopped everything; also runs when this script fails.
stop_service() {
    trap '' INT TERM HUP
    [ -z "$SERVICE" ] || kill -TERM "$SERVICE" 2>/dev/null || true
    [ -z "$SERVICE" ] || wait "$SERVICE" || true
}

# is_ready: the service says that it is ready; a file left by an earlier one names another process.
is_ready() { [ "$(cat "${RUN_DIR:-run}/ready" 2>/dev/null)" = "$SERVICE" ]; }

# wait_ready: return when the service is ready, or with its status when it ends before.
wait_ready() {
    local status=0
    until is_ready; do
        if ! kill -0 "$SERVICE" 2>/dev/null; then
            wait "$SERVICE" || status=$?
            SERVICE=""
            exit "$status"
        fi
        sleep 0.2
    done
}

# first_key: print an API key that the service accepts; nothing when it asks for none.
first_key() {
    { tr ',' '\n' <<<"${API_KEYS-}"; [ -z "${API_KEYS_FILE-}" ] || cat "$API_KEYS_FILE"; } |
        awk 'NF && !/^[ \t]*#/ && !found++ { print $1 }'
}

# show_sample: transcribe the sample over HTTP; print the command, without a key, and the JSON it answers with.
show_sample() {
    local form=(-F "file=@$SAMPLE" -F model=parakeet-tdt "localhost:${PORT:-8002}/v1/audio/transcriptions")
    local key shown=""
    key="$(first_key)"
    [ -z "$key" ] || shown="-H 'Authorization: Bearer KEY' "
    printf '\n$ curl %s\n' "$shown${form[*]}"
    curl -sS --fail-with-body -H @<([ -z "$key" ] || printf 'Authorization: Bearer %s\n' "$key") "${form[@]}"
    printf '\n\nReady after %d s. Ctrl-C stops the service.\n' "$SECONDS"
}

_main() {
    local status=0
    cd "$ROOT"
    trap 'exit 0' INT TERM HUP
    trap stop_service EXIT
    ./start-single-container.sh &
    SERVICE=$!
    wait_ready
    show_sample
    wait "$SERVICE" || status=$?
    SERVICE=""
    exit "$status"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    _main "$@"
fi
