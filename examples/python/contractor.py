#!/usr/bin/env python3
"""A contractor: takes calls on the topic `courier`, offers a fixed price, confirms when it wins, reports its work as done.

    python3 contractor.py http://127.0.0.1:8080 carol "$(llmx token carol)" [AWARDS]

It goes on until it is asked to end, or after so many awards.
"""
import sys
from datetime import datetime, timezone

from exchange import Exchange

TERMS = {"price": 85_000_000, "delivery_ms": 2000}  # price in micro-units


def answer(told):
    """What a delivery is answered with; None: nothing."""
    if told["act"] == "cfp" and "bargain" in told:  # alternating offers: see bargainer.py
        return {"act": "refuse", "reason": "does not bargain"}
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


def main():
    awards_left = int(sys.argv[4]) if len(sys.argv) > 4 else -1
    with Exchange(*sys.argv[1:4]) as exchange:
        exchange.register(topics=["courier"])
        print(f"{exchange.agent} is registered for topic courier", flush=True)
        for delivery in exchange.inbox():
            told, negotiation = delivery["payload"], delivery["envelope"]["negotiation"]
            payload = answer(told)
            if payload is not None:
                exchange.reply(delivery, payload)
            if told.get("disposition") == "committed":
                print(f"{negotiation}: award {told['award_no']} committed", flush=True)
                awards_left -= 1
                if awards_left == 0:
                    exchange.acknowledge(delivery)
                    return


if __name__ == "__main__":
    main()
