#!/usr/bin/env python3
"""A contractor: takes calls on the topic `courier`, offers a fixed price, confirms when it wins, reports its work as done.

    python3 contractor.py http://127.0.0.1:8080 carol "$(llmx token carol)" [AWARDS]

It goes on until it is asked to end, or after so many awards. It prints a line for each thing that happens.
"""
from datetime import datetime, timezone

from exchange import Exchange, arguments

TERMS = {"price": 50_000_000, "delivery_ms": 2000}  # price in micro-units


def answer(told):
    """What a delivery is answered with; None: nothing."""
    # See panelist.py, bargainer.py, teammate.py, bidder.py.
    if told["act"] == "ask" or any(protocol in told for protocol in ("bargain", "team", "auction")):
        return {"act": "refuse", "reason": "takes part in contract nets only"}
    if told["act"] == "cfp" and datetime.fromisoformat(told["reply_by"].replace("Z", "+00:00")) < datetime.now(timezone.utc):
        return None  # too late: what comes behind it matters more
    if told["act"] == "cfp":
        return {"act": "offer", "terms": TERMS, "round": told["round"]}
    if told["act"] == "accept" and told["terms"] == TERMS:
        return {"act": "confirm", "award_no": told["award_no"]}
    if told["act"] == "ack" and told["disposition"] == "committed":  # bound, and not before: the work may begin
        return {"act": "inform", "kind": "done", "result": "delivered"}
    if told["act"] == "cancel" and told["reason"] == "cancelled":
        return {"act": "inform", "kind": "cancelled"}
    return None


def describe(told, payload):
    """A delivery and its answer in words; None: not worth a line."""
    does = payload["act"] if payload else "nothing to say"
    if told["act"] == "cfp":
        return f"called to {told.get('task', 'do something')}: {does}"
    if told["act"] == "accept":
        return f"award {told['award_no']} offered: {does}"
    if told["act"] == "ack" and told["disposition"] == "committed":
        return f"award {told['award_no']} committed"
    if told["act"] == "ack":
        return f"{told['disposition']}" if told["disposition"] != "ok" else None
    if told["act"] in ("reject", "cancel"):
        return f"{told['act']}: {told['reason']}"
    return None


def main():
    given = arguments(__doc__, awards={"nargs": "?", "type": int, "default": -1, "metavar": "AWARDS"})
    with Exchange(given.url, given.agent, given.token) as exchange:
        exchange.register(topics=["courier"])
        print(f"{exchange.agent} is registered for topic courier", flush=True)
        for delivery in exchange.inbox():
            told, payload = delivery["payload"], answer(delivery["payload"])
            if payload is not None and not exchange.reply(delivery, payload):
                payload = None
            if said := describe(told, payload):
                print(f"{delivery['envelope']['negotiation']}: {said}", flush=True)
            if told.get("disposition") == "committed":
                given.awards -= 1
                if given.awards == 0:
                    exchange.acknowledge(delivery)
                    return


if __name__ == "__main__":
    main()
