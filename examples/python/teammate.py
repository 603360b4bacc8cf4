#!/usr/bin/env python3
"""A member of teams: joins whoever calls it, counts the words of what the lead asks, writes in capitals what a task says, and votes.

    python3 teammate.py http://127.0.0.1:8080 carol "$(llmx token carol)" [TEAMS]

It goes on until it is asked to end, or until so many teams it joined have ended. `lead.py` calls it.
"""
from exchange import Exchange, arguments

TERMS = {"fit": 700_000, "delivery_ms": 1_000}  # how well it can do a task, in millionths, and in what time


class Team:
    """What is known of one team."""

    def __init__(self, lead):
        self.lead = lead
        self.step, self.asked, self.counted, self.voted = 0, (0, ""), None, None


class Member:
    def __init__(self, name):
        self.name = name
        self.teams = {}
        self.tasks = {}  # what is to be done, by the task's negotiation

    def answer(self, negotiation, told):
        """What a delivery is answered with; None: nothing."""
        if told["act"] == "cfp" and "team" in told:
            self.teams[negotiation] = Team(told["team"]["lead"])
            return {"act": "join"}
        if told["act"] == "cfp" and "brief" in told:  # a task that goes by award
            return {"act": "offer", "terms": TERMS, "round": told["round"]}
        if told["act"] in ("cfp", "ask"):
            return {"act": "refuse", "reason": "works in teams only"}
        if told["act"] == "accept" and "brief" in told:
            self.tasks[negotiation] = told["brief"]["text"]
            return {"act": "confirm", "award_no": told["award_no"]}
        if told["act"] == "ack" and told["disposition"] == "committed" and negotiation in self.tasks:  # bound: work may begin
            return {"act": "inform", "kind": "done", "result": behind_colon(self.tasks.pop(negotiation)).upper()}
        if told["act"] == "floor" and negotiation in self.teams:
            return self.speak(self.teams[negotiation], told)
        return None

    def speak(self, team, floor):
        if "said" in floor and floor["by"] == team.lead and floor["step"] > team.asked[0]:
            team.asked = (floor["step"], floor["said"].get("text", team.asked[1]))  # no text: it said so before
        if floor["step"] <= team.step:  # one may overtake another
            return None
        team.step = floor["step"]
        if floor["state"] == "voting":
            return self.vote(team, floor["conclusion"])
        if floor.get("speaker") != self.name:
            return None
        if floor["state"] == "concluding":  # nothing else is taken any more
            return {"act": "conclude", "turn": floor["turn"], "text": "no conclusion of mine"}
        team.counted = words(team.asked[1])
        return {"act": "say", "turn": floor["turn"], "text": team.counted, "next": team.lead}

    def vote(self, team, conclusion):
        """Against a conclusion without the number that it has counted itself."""
        if conclusion["by"] == self.name or conclusion["offer_id"] == team.voted:
            return None
        team.voted = conclusion["offer_id"]
        if team.counted and team.counted not in conclusion["text"]:
            return {"act": "refuse", "reason": "that is not what I counted"}
        return {"act": "accept", "offer_id": conclusion["offer_id"], "terms_digest": conclusion["terms_digest"]}


def words(text):
    """The number of words of what is asked about."""
    return f"{len(behind_colon(text).split())} words"


def behind_colon(text):
    return text.partition(":")[2].strip() or text


def main():
    given = arguments(__doc__, teams={"nargs": "?", "type": int, "default": -1, "metavar": "TEAMS"})
    member = Member(given.agent)
    with Exchange(given.url, given.agent, given.token) as exchange:
        exchange.register(description="counts words")
        print(f"{given.agent} is registered", flush=True)
        for delivery in exchange.inbox():
            negotiation, told = delivery["envelope"]["negotiation"], delivery["payload"]
            payload = member.answer(negotiation, told)
            if payload is not None and exchange.reply(delivery, payload):
                said = payload.get("text", payload.get("result", payload.get("reason", "")))
                print(f"{negotiation}: {told['act']}: {payload['act']} {said}".rstrip(), flush=True)
            if told["act"] == "closed":
                member.tasks.pop(negotiation, None)  # a task that was lost
            if told["act"] == "closed" and member.teams.pop(negotiation, None):
                given.teams -= 1
                if given.teams == 0:
                    exchange.acknowledge(delivery)
                    return


if __name__ == "__main__":
    main()
