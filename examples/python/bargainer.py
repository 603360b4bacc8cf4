#!/usr/bin/env python3
"""A party of bargains over the price of a bicycle: alternating offers, as seller or as buyer.

    python3 bargainer.py http://127.0.0.1:8080 shop "$(llmx token shop)" seller         joins whoever calls it
    python3 bargainer.py http://127.0.0.1:8080 ben "$(llmx token ben)" buyer shop       calls `shop`

It ends with its bargain; exit code 0: agreed.
"""
import sys, time

from exchange import Exchange, agent_id, arguments

UNIT = 1_000_000  # prices are in micro-units
RULES = {"issues": [{"name": "price", "min": 80 * UNIT, "max": 200 * UNIT}], "rounds": 10, "step_ms": 10_000}
# First proposal, change from turn to turn, and the limit.
PLANS = {"seller": (180 * UNIT, -10 * UNIT, 120 * UNIT), "buyer": (100 * UNIT, 10 * UNIT, 150 * UNIT)}


class Party:
    def __init__(self, name, role):
        self.name, self.is_seller = name, role == "seller"
        self.proposal, self.change, self.limit = PLANS[role]
        self.step = -1  # of the latest turn: one may overtake another, or come again

    def answer(self, told):
        """What a delivery is answered with; None: nothing."""
        if told["act"] in ("cfp", "ask"):
            return {"act": "join"} if "bargain" in told else {"act": "refuse", "reason": "only bargains"}
        if told["act"] != "turn" or told["step"] <= self.step:
            return None
        self.step = told["step"]
        if told.get("party") != self.name:
            return None
        standing = told.get("standing")
        if standing and self.likes(standing["terms"]["price"]):
            return {"act": "accept", "offer_id": standing["offer_id"], "terms_digest": standing["terms_digest"]}
        offer = {"act": "offer", "terms": {"price": self.proposal}}
        further = self.proposal + self.change
        self.proposal = max(further, self.limit) if self.is_seller else min(further, self.limit)
        return offer

    def likes(self, price):
        return price >= self.proposal if self.is_seller else price <= self.proposal


def main():
    other = {"nargs": "?", "type": agent_id, "metavar": "OTHER", "help": "whom to call"}
    given = arguments(__doc__, role={"choices": PLANS}, other=other)
    party, called = Party(given.agent, given.role), None
    with Exchange(given.url, given.agent, given.token) as exchange:
        exchange.register()
        print(f"{given.agent} is registered", flush=True)
        if given.other:
            call = {"act": "cfp", "task": "a bicycle", "currency": "EUR", "reply_within_ms": 10_000, "bargain": RULES}
            called = exchange.call(f"bike-{time.time_ns()}", call, [given.other])
        for delivery in exchange.inbox():
            told = delivery["payload"]
            if called and delivery["envelope"]["negotiation"] != called:
                if told["act"] in ("cfp", "ask"):  # so that nobody waits
                    exchange.reply(delivery, {"act": "refuse", "reason": "bargains already"})
                continue
            payload = party.answer(told)
            if payload is not None:
                print(f"{told['act']}: {payload}", flush=True)
                exchange.reply(delivery, payload)
            if told["act"] == "closed":
                exchange.acknowledge(delivery)
                agreed = told.get("agreement")
                print(f"closed: {told['outcome']}", agreed["terms"] if agreed else "")
                sys.exit(0 if agreed else 1)


if __name__ == "__main__":
    main()
