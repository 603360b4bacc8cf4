#!/usr/bin/env bash
# An operator's first day: an exchange on NATS with two engines, load, a dead engine, another policy, and the proof.
#
#     scripts/nats-server && export PATH="$PWD/target/release:$PATH" && examples/shell/operator.sh
#
# Everything is in a folder of its own and ends with the script. PORT and NATS_PORT choose other ports, NATS_SERVER another
# server than the one on PATH, or the one that scripts/nats-server fetches.
set -euo pipefail
PORT=${PORT:-8080} NATS_PORT=${NATS_PORT:-4222}
gateway=http://127.0.0.1:$PORT engine_ports=("$((PORT + 1001))" "$((PORT + 1002))")
fail() { echo "operator.sh: $1" >&2; exit 1; }
root=$(cd "$(dirname "$0")/../.." && pwd)
nats_server=$(command -v "${NATS_SERVER:-nats-server}" || command -v "${NATS_SERVER:-$root/.tools/nats-server}") ||
  fail "no nats-server: run scripts/nats-server, which fetches the pinned one, or set NATS_SERVER to its path"
nats_server=$(realpath "$nats_server")
command -v llmx >/dev/null || fail 'no llmx on PATH: cargo build --release && export PATH="$PWD/target/release:$PATH"'

home=$(mktemp -d)
cd "$home"
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$home"' EXIT
export LLMX_NATS=nats://127.0.0.1:$NATS_PORT LLMX_GATEWAY=$gateway

step() { printf '\n== %s\n' "$1"; }
# until_ready NAME PROCESS COMMAND...: the command succeeds within 30 s; otherwise what the process has logged is shown.
until_ready() {
  local name=$1 process=$2
  shift 2
  for _ in {1..300}; do
    "$@" >/dev/null 2>&1 && return
    kill -0 "$process" 2>/dev/null || break
    sleep 0.1
  done
  tail -n 5 "$name.log" >&2
  fail "$name has ended, or is not ready after 30 s; above is what it logged"
}

step "morning: NATS, keys, two engines that share the lanes, a gateway, the archive"
"$nats_server" -a 127.0.0.1 -p "$NATS_PORT" -js -sd nats >nats-server.log 2>&1 &
until_ready nats-server $! bash -c "exec 3<>/dev/tcp/127.0.0.1/$NATS_PORT"
llmx keys
llmx engine --id engine-1 --listen "127.0.0.1:${engine_ports[0]}" >engine-1.log 2>&1 &
engine=$!
until_ready engine-1 $! llmx healthcheck "http://127.0.0.1:${engine_ports[0]}/readyz"
llmx engine --id engine-2 --listen "127.0.0.1:${engine_ports[1]}" >engine-2.log 2>&1 &
until_ready engine-2 $! llmx healthcheck "http://127.0.0.1:${engine_ports[1]}/readyz"
llmx gateway --jwks llmx-data/jwks.json --listen "127.0.0.1:$PORT" >gateway.log 2>&1 &
until_ready gateway $! llmx healthcheck "$gateway/readyz"
llmx archive --to archive >archive.log 2>&1 &
llmx contractors --count 6 >contractors.log 2>&1 &
until_ready contractors $! grep -q "6 connected" contractors.log

step "noon: calls, and an engine that dies under them"
token=$(llmx token operator --admin)
llmx traffic --rate 10 --duration 6 &
traffic=$!
sleep 2
kill -9 "$engine"
wait "$traffic" # every call ended, or this fails

step "afternoon: another default policy, for calls from now on"
llmx policy default low --gateway "$gateway" --token "$token"
llmx traffic --rate 10 --duration 2 --json >low.json
grep -A1 '"policies"' low.json

step "evening: what the archive proves"
# The archive syncs once a second; the records behind it are still in the log.
sleep 2
llmx audit verify archive --allow-open-end
