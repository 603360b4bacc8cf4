#!/usr/bin/env bash
# A contractor: takes calls on the topic `courier`, offers a fixed price, confirms when it wins, reports its work as done.
#
#     examples/shell/contractor.sh http://127.0.0.1:8080 carol "$(llmx token carol)"
#
# It prints a line for each thing that happens. Prices are in micro-units.
set -euo pipefail
. "$(dirname "$0")/exchange.sh"
terms='{"price":50000000,"delivery_ms":2000}'

tell() { echo "$(field negotiation): $1"; }

handle() {
  case $delivery in
    *'"act":"cfp"'*'"bargain":'*) reply '{"act":"refuse","reason":"does not bargain"}' ;;
    *'"act":"cfp"'*'"team":{"lead":'*) reply '{"act":"refuse","reason":"joins no team"}' ;;
    *'"act":"cfp"'*'"auction":{"'*) reply '{"act":"refuse","reason":"bids in no auction"}' ;;
    *'"act":"ask"'*) reply '{"act":"refuse","reason":"sits on no panel"}' ;;
    *'"act":"cfp"'*)
      tell "called to $(text task): offer"
      reply "{\"act\":\"offer\",\"terms\":$terms,\"round\":$(field round)}"
      ;;
    *'"act":"accept"'*)
      tell "award $(field award_no) offered: confirm"
      reply "{\"act\":\"confirm\",\"award_no\":$(field award_no)}"
      ;;
    *'"disposition":"committed"'*) # bound, and not before: the work may begin
      reply '{"act":"inform","kind":"done","result":"delivered"}'
      tell "award $(field award_no) committed"
      ;;
    *'"act":"cancel"'*'"reason":"cancelled"'*) tell cancelled && reply '{"act":"inform","kind":"cancelled"}' ;;
    *'"act":"reject"'* | *'"act":"cancel"'*) tell "$(field act): $(field reason)" ;;
  esac
}

register '{"topics":["courier"],"consent":{"default":"allow","rules":[]}}'
inbox
