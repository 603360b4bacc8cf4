#!/usr/bin/env bash
# An initiator: calls for offers on the topic `courier`, follows the call to its end, prints what came of it.
#
#     examples/shell/initiator.sh http://127.0.0.1:8080 ann "$(llmx token ann)"
#
# Exit code 0: an award was made and its work reported as done.
set -euo pipefail
. "$(dirname "$0")/exchange.sh"

handle() {
  [ "$(field negotiation)" = "$negotiation" ] || return 0 # of an earlier start under the same name
  case $delivery in
    *'"kind":"awarded"'*) echo "award $(field award_no) to $(field contractor) at $(field price) micro-units" ;;
    *'"kind":"committed"'*) echo "$(field contractor) is bound" ;;
    *'"kind":"done"'*) echo "$(field contractor) is done: $(field result)" ;;
    *'"act":"closed"'*) ended=$(field outcome) && outcome=$ended ;;
  esac
}

own="parcel-$(date +%s%N)" negotiation="$AGENT~$own"
delivery=$(say "$own" call '{"act":"cfp","task":"deliver one parcel","reply_within_ms":2000}' \
  '"to":["topic://courier"],"scope":{"consent":"opt-in"}')
echo "$negotiation runs under policy $(field policy)"
inbox
echo "closed: $outcome"
[ "$outcome" = completed ]
