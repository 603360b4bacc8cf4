"""A contractor that answers the weather task, in natural language and under a document; it asks no model.

    contractor.py URL AGENT TOKEN

Tasks that begin with `refuse`, `decline`, `fail` and `ignore` are refused, declined when awarded, failed, and not answered.
"""

import base64
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"))
from exchange import Exchange, Refused, arguments  # noqa: E402

TERMS = {"price": 0}


class Weather:
    def __init__(self, exchange):
        self.exchange = exchange
        self.calls = {}  # by negotiation
        self.is_known = {}  # by hash: whether it has a routine for the document

    def knows(self, document):
        """Whether a document is the one about the weather: its text is the exchange's."""
        if document not in self.is_known:
            key = base64.urlsafe_b64encode(base64.b64decode(document)).decode().rstrip("=")
            try:
                with self.exchange.request("GET", f"/v1/documents/{key}") as answer:
                    self.is_known[document] = json.load(answer)["name"] == "Weather by city"
            except Refused:
                return False
        return self.is_known[document]

    def answer(self, negotiation, told):
        """What a delivery is answered with; None: nothing."""
        if told["act"] == "cfp":
            self.calls[negotiation] = told
            return self.offer(told)
        call = self.calls.get(negotiation)
        if told["act"] == "closed":
            self.calls.pop(negotiation, None)
        if call is None:
            return None
        word = call.get("task", "").split(" ")[0]
        if told["act"] == "accept":
            if word == "decline":
                return {"act": "refuse", "reason": "not today"}
            return {"act": "confirm", "award_no": told["award_no"]}
        if told["act"] == "ack" and told["disposition"] == "committed":
            if word == "fail":
                return {"act": "failure", "phase": "perform", "code": "no_model", "retryable": False}
            return self.work(call)
        return None

    def offer(self, call):
        word, offer = call.get("task", "").split(" ")[0], {"act": "offer", "terms": TERMS, "round": call["round"]}
        if word == "ignore":
            return None
        if word == "refuse":
            return {"act": "refuse", "reason": "no"}
        wanted = call.get("documents", {}).get("hashes", [])
        known = [document for document in wanted if self.knows(document)]
        if wanted and not known:
            return {"act": "refuse", "reason": "the document is not known"}
        return offer | ({"documents": known} if known else {})

    def work(self, call):
        documents = call.get("documents", {}).get("hashes", [])
        if documents:
            json.loads(call["task"])["city"]
            routine = {"kind": "native", "hash": documents[0]}
            return {"act": "inform", "kind": "result", "result": json.dumps({"temperature": 25}), "routine": routine}
        if call.get("constraints", {}).get("agora_negotiation"):
            result = "Agreed: JSON with `city`, answered by JSON with `temperature`."
        else:
            result = "It is 25 degrees."
        return {"act": "inform", "kind": "result", "result": result, "routine": {"kind": "language"}}


def main():
    given = arguments(__doc__)
    with Exchange(given.url, given.agent, given.token) as exchange:
        weather = Weather(exchange)
        exchange.register()
        print(f"{exchange.agent} is registered", flush=True)
        for delivery in exchange.inbox():
            payload = weather.answer(delivery["envelope"]["negotiation"], delivery["payload"])
            if payload is not None:
                exchange.reply(delivery, payload)


if __name__ == "__main__":
    main()
