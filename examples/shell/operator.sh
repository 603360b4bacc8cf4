#!/usr/bin/env bash
# An operator's first day: an exchange on NATS with two engines, load, a dead engine, another policy, and the proof.
#
#     scripts/nats-server && export PATH="$PWD/target/release:$PWD/.tools:$PATH" && examples/shell/operator.sh
#
# Everything is in a folder of its own and ends with the script. PORT and NATS_PORT choose other ports.
set -euo pipefail
PORT=${PORT:-8080} NATS_PORT=${NATS_PORT:-4222}
gateway=http://127.0.0.1:$PORT engine_ports=("$((PORT + 1001))" "$((PORT + 1002))")
home=$(mktemp -d)
cd "$home"
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$home"' EXIT
export LLMX_NATS=nats://127.0.0.1:$NATS_PORT LLMX_GATEWAY=$gateway

step() { printf '\n== %s\n' "$1"; }
until_ready() {
  for _ in $(seq 300); do llmx healthcheck "$1/readyz" 2>/dev/null && return; sleep 0.1; done
  llmx healthcheck "$1/readyz"
}

step "morning: NATS, keys, two engines that share the lanes, a gateway, the archive"
nats-server -a 127.0.0.1 -p "$NATS_PORT" -js -sd nats >nats.log 2>&1 &
llmx keys
llmx engine --id engine-1 --listen "127.0.0.1:${engine_ports[0]}" >engine-1.log 2>&1 &
engine=$!
llmx engine --id engine-2 --listen "127.0.0.1:${engine_ports[1]}" >engine-2.log 2>&1 &
llmx gateway --jwks run/keys/jwks.json --listen "127.0.0.1:$PORT" >gateway.log 2>&1 &
for port in "${engine_ports[@]}" "$PORT"; do until_ready "http://127.0.0.1:$port"; done
llmx archive --to archive >archive.log 2>&1 &
llmx contractors --count 6 >contractors.log 2>&1 &

step "noon: calls, and an engine that dies under them"
token=$(llmx token operator --admin)
until curl -sf "$gateway/v1/agents?topic=courier" -H "Authorization: Bearer $token" | grep -q contractor-5; do sleep 0.1; done
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
