# shellcheck shell=bash
# Sourced by the setup scripts: how they talk, so that every message and every ending looks the same.

say() { printf 'kvwire setup: %s\n' "$*" >&2; }

# Ends the script with one sentence.
stop() {
    say "$*"
    exit 1
}

# The line of a tool's captured output (given as text) that says most: the last one marked as an error, else the last one
# that is not empty.
telling_line() {
    local line
    line=$(grep -E '^(ERROR|E|[a-zA-Z]*Error|error|fatal):' <<<"$1" | tail -n 1) || true
    [ -n "$line" ] || line=$(grep -v '^[[:space:]]*$' <<<"$1" | tail -n 1) || true
    printf '%s' "${line:-(it said nothing)}" | cut -c 1-300
}
