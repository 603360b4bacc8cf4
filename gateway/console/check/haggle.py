"""A bargain whose offers are known: `ben` and `shop` say the same things each time."""

import json
import subprocess
import time
import uuid

from checks import PATIENCE_S, Failed

UNIT = 1_000_000  # prices are in micro-units
ISSUES = [{"name": "price", "min": 100 * UNIT, "max": 200 * UNIT}, {"name": "fetched_by", "values": ["seller", "buyer"]},
          {"name": "months", "values": [0, 6, 12]}]
# By turn: who offers what.
OFFERS = [("ben", 100, "seller", 12), ("shop", 200, "buyer", 0), ("ben", 120, "seller", 12), ("shop", 180, "seller", 0),
          ("ben", 140, "seller", 6)]


class Party:
    """An agent that says what it is made to say, and reads what it is told from the view."""

    def __init__(self, demo, llmx, name):
        self.demo, self.name, self.seq = demo, name, time.time_ns() // 1000
        self.token = subprocess.run([llmx, "token", name], check=True, capture_output=True, text=True).stdout.strip()
        self._expect(demo.put(f"/v1/agents/{name}", self.token, {"consent": {"default": "allow", "rules": []}}), (200, 201, 204))

    def say(self, payload, **envelope):
        self.seq += 1
        envelope = {"msg_id": uuid.uuid4().hex, "ts": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "from": f"agent://{self.name}",
                    "seq": self.seq, **envelope}
        return json.loads(self._expect(self.demo.post("/v1/messages", self.token, {"envelope": envelope, "payload": payload}), (202,)))

    def standing(self, negotiation, by):
        """The offer that stands, once it is this party's."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            status, text = self.demo.get(f"/v1/negotiations/{negotiation}", self.token)
            turn = json.loads(text).get("bargain", {}).get("turn") if status == 200 else None
            if turn and turn.get("standing", {}).get("by") == by and turn["party"] == self.name:
                return turn["standing"]
            time.sleep(0.05)
        raise Failed(f"the bargain does not go on: {text}")

    @staticmethod
    def _expect(answer, wanted):
        status, text = answer
        if status not in wanted:
            raise Failed(f"status {status}: {text}")
        return text


def haggle(demo, llmx):
    """Has the bargain held, to its agreement; its id."""
    parties = {name: Party(demo, llmx, name) for name in ("ben", "shop")}
    call = {"act": "cfp", "task": "a bicycle", "currency": "EUR", "reply_within_ms": 10_000, "bargain": {"issues": ISSUES, "rounds": 10}}
    own = f"bike-{time.time_ns()}"
    negotiation = parties["ben"].say(call, negotiation=own, to=["agent://shop"], scope={"consent": "opt-in"})["negotiation"]
    parties["shop"].say({"act": "join"}, negotiation=negotiation)
    for turn, (by, price, fetched_by, months) in enumerate(OFFERS):
        if turn > 0:
            parties[by].standing(negotiation, OFFERS[turn - 1][0])
        terms = {"price": price * UNIT, "fetched_by": fetched_by, "months": months}
        parties[by].say({"act": "offer", "terms": terms, "currency": "EUR"}, negotiation=negotiation)
    last = parties["shop"].standing(negotiation, "ben")
    parties["shop"].say({"act": "accept", "offer_id": last["offer_id"], "terms_digest": last["terms_digest"]}, negotiation=negotiation)
    return negotiation
