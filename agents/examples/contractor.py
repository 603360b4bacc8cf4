#!/usr/bin/env python3
"""A contractor without any library: HTTP and server-sent events from the standard library alone.

    python3 contractor.py http://127.0.0.1:8080 carol "$TOKEN"

It takes calls on the topic `courier`, offers a fixed price, commits when it wins, and reports its work as done.
"""
import json, sys, time, uuid
from datetime import datetime, timezone
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

URL, AGENT, TOKEN = sys.argv[1:4]
TERMS = {"price": 85_000_000, "delivery_ms": 2000}  # price in micro-units
seq = time.time_ns() // 1000  # rises from message to message, and from start to start


def call(method, path, body=None):
    """One request. What the exchange could not answer is repeated byte for byte: nothing counts twice."""
    request = Request(URL + path, json.dumps(body).encode() if body is not None else None, method=method,
                      headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"})
    for attempt in range(8):
        try:
            return urlopen(request, timeout=60)
        except HTTPError as error:
            if error.code < 500 and error.code != 429:
                sys.exit(f"{path}: {error.read().decode()}")
        except URLError as error:
            print(f"{path}: {error}", file=sys.stderr)
        time.sleep(min(0.2 * 2**attempt, 10))
    sys.exit(f"{path}: no answer")


def reply(delivery, payload):
    global seq
    seq += 1
    envelope = {"msg_id": uuid.uuid4().hex, "ts": datetime.now(timezone.utc).isoformat(), "from": f"agent://{AGENT}",
                "negotiation": delivery["envelope"]["negotiation"], "seq": seq,
                "in_reply_to": delivery["envelope"]["msg_id"]}
    call("POST", "/v1/messages", {"envelope": envelope, "payload": payload}).close()


def handle(delivery):
    told = delivery["payload"]
    if told["act"] == "cfp" and "bargain" in told:  # alternating offers: another protocol
        reply(delivery, {"act": "refuse", "reason": "does not bargain"})
    elif told["act"] == "cfp":
        reply(delivery, {"act": "offer", "terms": TERMS, "round": told["round"]})
    elif told["act"] == "accept" and told["terms"] == TERMS:
        reply(delivery, {"act": "confirm", "award_no": told["award_no"]})
    elif told["act"] == "ack" and told["disposition"] == "committed":
        reply(delivery, {"act": "inform", "kind": "done", "result": "delivered"})
    elif told["act"] == "cancel" and told["reason"] == "cancelled":
        reply(delivery, {"act": "inform", "kind": "cancelled"})


def main():
    call("PUT", f"/v1/agents/{AGENT}", {"topics": ["courier"], "consent": {"default": "allow", "rules": []}}).close()
    heard = {}  # delivery ids, oldest first: a delivery may come more than once
    while True:
        try:
            for line in call("GET", "/v1/inbox"):
                if not line.startswith(b"data:"):
                    continue
                delivery = json.loads(line[5:])
                delivery_id = delivery["envelope"]["msg_id"]
                if delivery_id not in heard:
                    heard[delivery_id] = True
                    handle(delivery)
                call("POST", "/v1/acks", {"delivery_ids": [delivery_id]}).close()
                while len(heard) > 100_000:
                    heard.pop(next(iter(heard)))
        except OSError as error:  # the stream broke: connect again
            print(f"inbox: {error}", file=sys.stderr)
            time.sleep(1)


if __name__ == "__main__":
    main()
