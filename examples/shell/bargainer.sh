#!/usr/bin/env bash
# A party of bargains over the price of a bicycle: alternating offers, as seller or as buyer.
#
#     examples/shell/bargainer.sh http://127.0.0.1:8080 shop "$(llmx token shop)" seller         joins whoever calls it
#     examples/shell/bargainer.sh http://127.0.0.1:8080 ben "$(llmx token ben)" buyer shop       calls `shop`
#
# It ends with its bargain; exit code 0: agreed. Prices are in micro-units.
set -euo pipefail
arguments=4
. "$(dirname "$0")/exchange.sh"
role=$4 other=${5:-}

# First proposal, change from turn to turn, and the limit.
case $role in
  seller) proposal=180000000 change=-10000000 limit=120000000 test=-ge ;;
  buyer) proposal=100000000 change=10000000 limit=150000000 test=-le ;;
  *) usage "seller or buyer, not '$role'" ;;
esac
step=-1 outcome=

# Turns may overtake each other, or come again: only a later step counts.
take_turn() {
  local now price
  now=$(field step) price=$(field price)
  [ "$now" -gt "$step" ] || return 0
  step=$now
  [ "$(field party)" = "$AGENT" ] || return 0
  if [ -n "$price" ] && [ "$price" "$test" "$proposal" ]; then
    echo "accepts $price"
    reply "{\"act\":\"accept\",\"offer_id\":\"$(field offer_id)\",\"terms_digest\":\"$(field terms_digest)\"}"
    return
  fi
  echo "offers $proposal"
  reply "{\"act\":\"offer\",\"terms\":{\"price\":$proposal}}"
  [ "$proposal" -eq "$limit" ] || proposal=$((proposal + change))
}

handle() {
  [ -z "$other" ] || [ "$(field negotiation)" = "$negotiation" ] || return 0
  case $delivery in
    *'"act":"cfp"'*'"bargain":'*) reply '{"act":"join"}' ;;
    *'"act":"cfp"'*) reply '{"act":"refuse","reason":"only bargains"}' ;;
    *'"act":"turn"'*) take_turn ;;
    *'"act":"closed"'*) ended=$(field outcome) && outcome="$ended at $(field price)" ;;
  esac
}

register '{"consent":{"default":"allow","rules":[]}}'
if [ -n "$other" ]; then
  own="bike-$(date +%s%N)" negotiation="$AGENT~$own"
  rules='{"issues":[{"name":"price","min":80000000,"max":200000000}],"rounds":10,"step_ms":10000}'
  say "$own" call "{\"act\":\"cfp\",\"task\":\"a bicycle\",\"currency\":\"EUR\",\"reply_within_ms\":10000,\"bargain\":$rules}" \
    "\"to\":[\"agent://$other\"],\"scope\":{\"consent\":\"opt-in\"}" >/dev/null
fi
inbox
echo "closed: $outcome"
case $outcome in agreement*) ;; *) exit 1 ;; esac
