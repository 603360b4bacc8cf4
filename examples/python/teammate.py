#!/usr/bin/env python3
"""A member of teams: joins whoever calls it, says a sentence when it holds the floor, and counts the words of its tasks.

    python3 teammate.py http://127.0.0.1:8080 carol "$(llmx token carol)" [TASKS]

It goes on until it is asked to end, or after so many tasks. `lead.py` calls it.
"""
from exchange import Exchange, arguments


class Member:
    def __init__(self, name):
        self.name = name
        self.leads, self.steps, self.voted, self.briefs = {}, {}, set(), {}

    def answer(self, negotiation, told):
        """What a delivery is answered with; None: nothing."""
        if told["act"] == "cfp" and "team" in told:
            self.leads[negotiation] = told["team"]["lead"]
            return {"act": "join"}
        if told["act"] == "cfp":  # of a task that goes by award, where there is a brief
            if "brief" not in told:
                return {"act": "refuse", "reason": "works in teams only"}
            return {"act": "offer", "terms": {}, "round": told["round"]}
        if told["act"] == "accept" and "brief" in told:
            self.briefs[negotiation] = told["brief"]
            return {"act": "confirm", "award_no": told["award_no"]}
        if told["act"] == "ack" and told["disposition"] == "committed" and negotiation in self.briefs:  # the work may begin
            words = len(self.briefs.pop(negotiation)["text"].split())
            return {"act": "inform", "kind": "result", "result": f"{words} words"}
        if told["act"] == "floor":
            return self.speak(negotiation, told)
        return None

    def speak(self, team, floor):
        if floor["step"] <= self.steps.get(team, 0):  # one may overtake another
            return None
        self.steps[team] = floor["step"]
        if floor["state"] == "voting" and floor["conclusion"]["offer_id"] not in self.voted:
            conclusion = floor["conclusion"]
            self.voted.add(conclusion["offer_id"])
            if conclusion["by"] == self.name:
                return None
            return {"act": "accept", "offer_id": conclusion["offer_id"], "terms_digest": conclusion["terms_digest"]}
        if floor.get("speaker") != self.name:
            return None
        if floor["state"] == "concluding":  # nothing else is taken any more
            return {"act": "conclude", "turn": floor["turn"], "text": "no conclusion of mine"}
        words = {"act": "say", "turn": floor["turn"], "text": f"I count words, turn {floor['turn']}"}
        return {**words, "next": self.leads[team]} if team in self.leads else words


def main():
    given = arguments(__doc__, tasks={"nargs": "?", "type": int, "default": -1, "metavar": "TASKS"})
    member = Member(given.agent)
    with Exchange(given.url, given.agent, given.token) as exchange:
        exchange.register(description="counts words")
        print(f"{given.agent} is registered", flush=True)
        for delivery in exchange.inbox():
            negotiation, told = delivery["envelope"]["negotiation"], delivery["payload"]
            payload = member.answer(negotiation, told)
            if payload is not None and exchange.reply(delivery, payload):
                words = payload.get("text", payload.get("result", ""))
                print(f"{negotiation}: {told['act']}: {payload['act']} {words}".rstrip(), flush=True)
                if payload["act"] == "inform":
                    given.tasks -= 1
            if told["act"] == "closed" and given.tasks == 0:
                exchange.acknowledge(delivery)
                return


if __name__ == "__main__":
    main()
