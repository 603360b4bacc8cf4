# What every agent does, with curl: sourced by the stories beside it, which define `handle`, with their arguments.
#
# The exchange's JSON is compact: a member is found by its name. Names hold no quotes, and quotes in texts are escaped.
# Exit code 2: wrong usage. 1: no gateway at the address, or a refusal of what the story cannot do without.

fail() { echo "$1" >&2; exit "${2:-1}"; }

# The story's own first comment is its usage.
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; fail "${0##*/}: $1" 2; }

[ $# -ge "${arguments:=3}" ] || usage "$arguments arguments are needed, $# are given"
URL=${1%/} AGENT=$2 TOKEN=$3
case $URL in http://?* | https://?*) ;; *) usage "'$1' is no address of a gateway: give http://HOST:PORT" ;; esac
[ -n "$AGENT" ] || usage "AGENT is empty"
[ -n "$TOKEN" ] || usage "TOKEN is empty: \`llmx token AGENT\` printed none"

# A moment for the gateway: who has mistyped its address learns it at once.
for attempt in {1..25}; do
  status=$(curl -s -o /dev/null --max-time 5 -w '%{http_code}' "$URL/healthz") || status=000
  [ "$status" = 000 ] || break
  sleep 0.2
done
case $status in
  200) ;;
  000) fail "no gateway answers at $URL: name another address, or start one: llmx demo --listen 127.0.0.1:8080 --duration 600" ;;
  *) fail "what answers at $URL is no gateway: $status to GET /healthz" ;;
esac

# request METHOD PATH [BODY]: what the exchange could not answer is repeated byte for byte, and nothing counts twice; for
# `patience` seconds, 60 unless the caller says otherwise. A refusal is told on stderr.
request() {
  local until=$((SECONDS + ${patience:-60})) answer status delivery lost=
  while :; do
    answer=$(curl -s --max-time 60 -w '\n%{http_code}' -X "$1" "$URL$2" \
      -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' ${3:+-d "$3"}) || true
    status=${answer##*$'\n'} delivery=${answer%$'\n'*}
    case $status in
      2??) break ;;
      000 | 429 | 5??) ;;
      *) echo "$1 $2 was refused: $status $(text code): $(text detail) (at $(text pointer)); expected: $(text expected)" >&2; return 1 ;;
    esac
    [ -n "$lost" ] || echo "$URL does not answer $1 $2 ($status): trying again" >&2
    lost=1
    [ "$SECONDS" -lt "$until" ] || { echo "$URL has not answered for ${patience:-60} s" >&2; return 1; }
    # Who repeats sooner than the exchange asks is served no sooner.
    local wait_ms=$(printf '%s' "$delivery" | grep -o '"retry_after_ms":[0-9]*' | grep -o '[0-9]*')
    sleep "$(( (${wait_ms:-1000} + 999) / 1000 ))"
  done
  [ -z "$lost" ] || echo "$URL answers again" >&2
  printf '%s' "$delivery"
}

# register REGISTRATION, and leave at the end: whoever stays registered is still called for a while.
register() {
  registration=$1
  request PUT "/v1/agents/$AGENT" "$registration" >/dev/null
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

# reply PAYLOAD: the id follows from the delivery's. What is refused is dropped, and the agent goes on.
reply() {
  say "$(field negotiation)" "re-$(field msg_id)" "$1" >/dev/null || echo "dropped: $1" >&2
}

# field NAME: the first member of that name in the delivery, or nothing.
field() {
  [[ $delivery =~ \"$1\":\"?([^\",\}]*) ]] && printf '%s' "${BASH_REMATCH[1]}" || true
}

# text NAME: the same for a text, which may hold commas.
text() {
  [[ $delivery =~ \"$1\":\"([^\"]*) ]] && printf '%s' "${BASH_REMATCH[1]}" || true
}

# Calls `handle` once for every delivery and acknowledges it, until `handle` sets `ended`.
inbox() {
  local line delivery id ended=
  local -A seen=()
  while :; do
    while [ -z "$ended" ] && IFS= read -r line; do
      case $line in data:*'"envelope"'*) delivery=${line#data:} ;; *) continue ;; esac
      id=$(field msg_id)
      [ -n "${seen[$id]:-}" ] || handle
      seen[$id]=1
      request POST /v1/acks "{\"delivery_ids\":[\"$id\"]}" || true # what is not acknowledged comes again
    done < <(exec curl -sN "$URL/v1/inbox" -H "Authorization: Bearer $TOKEN")
    stream=$!
    [ -z "$ended" ] || break
    # The stream broke. Connect again; what ended it may have taken the registration away.
    sleep 1
    if [ -n "${registration:-}" ]; then
      patience=86400 request PUT "/v1/agents/$AGENT" "$registration" >/dev/null
    else
      patience=86400 request GET /v1/whoami >/dev/null
    fi
  done
  kill "$stream" 2>/dev/null || true
}
