#!/usr/bin/env python3
"""A bidder in English auctions: bids the next price until that is beyond its limit. Or whoever auctions one lot to bidders.

    python3 bidder.py http://127.0.0.1:8080 eve "$(llmx token eve)" 60               bids up to 60, where prices rise
    python3 bidder.py http://127.0.0.1:8080 ann "$(llmx token ann)" 55 eve fay       sells to one of these two, from 40, not below 55

A bidder goes on until it is asked to end. Who sells ends with the auction; exit code 0: sold.
"""
import sys, time

from exchange import Exchange, agent_id, arguments

UNIT = 1_000_000  # prices are in micro-units
RULES = {"direction": "ascending", "start": 40 * UNIT, "step": UNIT, "quiet_ms": 1000}


class Bidder:
    def __init__(self, limit):
        self.limit = limit  # what the lot is worth to it
        self.latest = {}  # number of the latest bid, by auction: one may overtake another
        self.bids = {}  # prices, by auction

    def answer(self, auction, told):
        """What a delivery is answered with; None: nothing."""
        if told["act"] == "cfp" and told.get("auction", {}).get("rules", {}).get("direction") == "ascending":
            self.bids[auction], self.latest[auction] = [], 0
            return self.bid(auction, told["auction"]["rules"]["start"])
        if told["act"] in ("cfp", "ask"):
            return {"act": "refuse", "reason": "buys in auctions only"}
        if told.get("kind") == "bid" and told["bid_no"] > self.latest.get(auction, told["bid_no"]):
            self.latest[auction] = told["bid_no"]
            return None if told["leads"] else self.bid(auction, told.get("next_price"))
        if told["act"] == "accept" and told["terms"].get("price") in self.bids.get(auction, []):
            return {"act": "confirm", "award_no": told["award_no"]}
        if told["act"] == "ack" and told["disposition"] == "committed":  # bound: it pays
            return {"act": "inform", "kind": "done", "result": "paid"}
        return None

    def bid(self, auction, price):
        if price is not None and price <= self.limit:
            self.bids[auction].append(price)
            return {"act": "offer", "terms": {"price": price}}
        if self.bids[auction]:
            return None  # it stays: its last bid may still be awarded
        return {"act": "refuse", "reason": "beyond its limit"}


def main():
    others = {"nargs": "*", "type": agent_id, "metavar": "OTHER", "help": "to whom to sell"}
    given = arguments(__doc__, limit={"type": int, "metavar": "LIMIT", "help": "what the lot is worth"}, others=others)
    bidder, called = Bidder(given.limit * UNIT), None
    with Exchange(given.url, given.agent, given.token) as exchange:
        exchange.register(topics=["courier"])
        print(f"{given.agent} is registered", flush=True)
        if given.others:
            rules = {**RULES, "reserve": given.limit * UNIT}
            call = {"act": "cfp", "task": "a pallet of tiles", "reply_within_ms": 20_000, "auction": rules}
            called = exchange.call(f"tiles-{time.time_ns()}", call, given.others)
        for delivery in exchange.inbox():
            told, auction = delivery["payload"], delivery["envelope"]["negotiation"]
            if auction != called:
                payload = bidder.answer(auction, told)
                if payload is not None and exchange.reply(delivery, payload):
                    print(f"{auction}: {payload}", flush=True)
            elif told.get("kind") == "bid":
                print(f"bid {told['bid_no']}: {told['price']}", flush=True)
            elif told.get("kind") == "awarded":
                print(f"award {told['award_no']} to {told['contractor']}: {told['terms']['price']}", flush=True)
            elif told["act"] in ("closed", "not_understood"):
                exchange.acknowledge(delivery)
                print(f"closed: {told.get('outcome') or told.get('reason')}", flush=True)
                sys.exit(0 if told.get("outcome") == "completed" else 1)


if __name__ == "__main__":
    main()
