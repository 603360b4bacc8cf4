#!/usr/bin/env bash
# A contractor: takes calls on the topic `courier`, offers a fixed price, confirms when it wins, reports its work as done.
#
#     examples/shell/contractor.sh http://127.0.0.1:8080 carol "$(llmx token carol)"
set -euo pipefail
URL=$1 AGENT=$2 TOKEN=$3
. "$(dirname "$0")/exchange.sh"

handle() {
  case $delivery in
    *'"act":"cfp"'*'"bargain":'*) reply '{"act":"refuse","reason":"does not bargain"}' ;;
    *'"act":"cfp"'*) reply "{\"act\":\"offer\",\"terms\":{\"price\":84000000,\"delivery_ms\":2000},\"round\":$(field round)}" ;;
    *'"act":"accept"'*) reply "{\"act\":\"confirm\",\"award_no\":$(field award_no)}" ;;
    *'"disposition":"committed"'*) # bound, and not before: the work may begin
      echo "$(field negotiation): award $(field award_no) committed"
      reply '{"act":"inform","kind":"done","result":"delivered"}'
      ;;
    *'"act":"cancel"'*'"reason":"cancelled"'*) reply '{"act":"inform","kind":"cancelled"}' ;;
  esac
}

register '{"topics":["courier"],"consent":{"default":"allow","rules":[]}}'
inbox
