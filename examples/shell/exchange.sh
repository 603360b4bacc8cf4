# What every agent does, with curl: sourced by the stories beside it, which define `handle`.
#
# The exchange's JSON is compact: a member is found by its name. Names hold no quotes, and quotes in texts are escaped.
: "${URL:?gateway address}" "${AGENT:?agent id}" "${TOKEN:?token}"

# request METHOD PATH [BODY]: what the exchange could not answer is repeated byte for byte, and nothing counts twice.
request() {
  curl -sS --fail-with-body --retry 8 --retry-connrefused --max-time 60 -X "$1" "$URL$2" \
    -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' ${3:+-d "$3"}
}

# register REGISTRATION, and leave at the end: whoever stays registered is still called for a while.
register() {
  request PUT "/v1/agents/$AGENT" "$1" >/dev/null
  trap 'leave' EXIT
  echo "$AGENT is registered"
}

leave() {
  [ -z "${stream:-}" ] || kill "$stream" 2>/dev/null || true
  curl -s --max-time 5 -X DELETE "$URL/v1/agents/$AGENT" -H "Authorization: Bearer $TOKEN" >/dev/null || true
}

# say NEGOTIATION MSG_ID PAYLOAD [MEMBERS]: sends an act; MEMBERS are further ones of the envelope.
say() {
  local now envelope
  TZ=UTC printf -v now '%(%FT%TZ)T' -1
  envelope="\"msg_id\":\"$2\",\"ts\":\"$now\",\"from\":\"agent://$AGENT\""
  envelope="$envelope,\"negotiation\":\"$1\",\"seq\":${EPOCHREALTIME/[.,]/}${4:+,$4}"
  request POST /v1/messages "{\"envelope\":{$envelope},\"payload\":$3}"
}

# reply PAYLOAD: the id follows from the delivery's.
reply() {
  say "$(field negotiation)" "re-$(field msg_id)" "$1" >/dev/null || echo "a reply was refused" >&2
}

# field NAME: the first member of that name in the delivery, or nothing.
field() {
  [[ $delivery =~ \"$1\":\"?([^\",\}]*) ]] && printf '%s' "${BASH_REMATCH[1]}" || true
}

# Calls `handle` once for every delivery and acknowledges it, until `handle` sets `ended`.
inbox() {
  local line delivery id ended=
  local -A seen=()
  while [ -z "$ended" ]; do
    while [ -z "$ended" ] && IFS= read -r line; do
      case $line in data:*) delivery=${line#data:} ;; *) continue ;; esac
      id=$(field msg_id)
      [ -n "${seen[$id]:-}" ] || handle
      seen[$id]=1
      request POST /v1/acks "{\"delivery_ids\":[\"$id\"]}"
    done < <(exec curl -sN "$URL/v1/inbox" -H "Authorization: Bearer $TOKEN")
    stream=$!
    [ -n "$ended" ] || sleep 1 # the stream broke: connect again
  done
  kill "$stream" 2>/dev/null || true
}
