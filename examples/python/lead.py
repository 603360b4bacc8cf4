#!/usr/bin/env python3
"""A lead: calls a team, asks its members one after another, assigns a task, concludes with both, has it voted on.

    python3 lead.py http://127.0.0.1:8080 ann "$(llmx token ann)" carol [MORE ...]

Exit code 0: the team came to a conclusion with an answer in it.
"""
import sys, time

from exchange import Exchange, agent_id, arguments

QUESTION = "How many words has this: count the words of this sentence"
# To one member directly, to one of several by award, on what each offers.
TASK = {"title": "capitals", "text": "write in capitals: the end", "reply_within_ms": 2_000, "perform_ms": 10_000}
VOTE = {"of": "all", "vote_ms": 5_000, "attempts": 1}


class Lead:
    def __init__(self, name):
        self.name = name
        self.members, self.answers, self.step = [], {}, 0
        self.is_assigned, self.result = False, "nothing"

    def hear(self, floor):
        """Who the members are, what they answer, and what came of the task: in whatever order notices come."""
        self.members = floor.get("members", self.members)  # told with the first step, and with every change
        if "said" in floor and floor["by"] != self.name:
            self.answers[floor["by"]] = floor["said"].get("text", "")
        for task in floor.get("tasks", []):
            self.result = task.get("result", self.result)

    def speak(self, floor):
        """What the lead does with the floor; None: it has not got it."""
        self.hear(floor)
        if floor["step"] <= self.step:
            return None
        self.step = floor["step"]
        if floor.get("speaker") != self.name or floor["state"] not in ("discussing", "concluding"):
            return None
        unheard = [member for member in self.members if member != self.name and member not in self.answers]
        if unheard and floor["state"] == "discussing":
            return {"act": "say", "turn": floor["turn"], "text": QUESTION, "next": unheard[0]}
        if not self.is_assigned and floor["state"] == "discussing":
            self.is_assigned = True
            return {"act": "assign", "turn": floor["turn"], "mode": "sync", "tasks": [TASK]}  # the floor comes back with its end
        said = sorted(set(self.answers.values()))
        text = f"the sentence has {' or '.join(said) or 'no answer'}: {self.result}"
        return {"act": "conclude", "turn": floor["turn"], "text": text}


def main():
    given = arguments(__doc__, members={"nargs": "+", "metavar": "MEMBER", "type": agent_id, "help": "whom to call"})
    lead = Lead(given.agent)
    with Exchange(given.url, given.agent, given.token) as exchange:
        seats = {"min": 2, "max": 1 + len(given.members)}
        turns = 3 + 2 * len(given.members)
        rules = {"members": seats, "turns": turns, "speak_ms": 5_000, "ends_within_ms": 60_000, "vote": VOTE,
                 "on_repeat": "pass"}  # members that agree say the same
        call = {"act": "cfp", "task": "count words", "reply_within_ms": 5_000, "team": rules}
        team = exchange.call(f"team-{time.time_ns()}", call, given.members)
        invited = 0
        print(f"{team} is called", flush=True)
        for delivery in exchange.inbox():
            told = delivery["payload"]
            if delivery["envelope"]["negotiation"] != team:
                continue  # of an earlier start under the same name
            if told["act"] == "floor":
                if "said" in told:
                    print(f"{told['by']}: {told['said'].get('text')}", flush=True)
                payload = lead.speak(told)
                for task in told.get("tasks", []):
                    came = task.get("result", task.get("code", ""))
                    print(f"task {task['task']}: {task['status']}", task.get("owner", ""), came, flush=True)
                if payload is not None:
                    print(f"{given.agent}: {payload['act']}: {payload.get('text', TASK['text'])}", flush=True)
                    exchange.reply(delivery, payload)
            if told["act"] == "ack" and "invited" in told:  # of its call
                invited = told["invited"]
            if told["act"] == "closed":
                exchange.acknowledge(delivery)
                conclusion = told.get("conclusion")
                why = told.get("detail", "")
                if told["outcome"] == "not_formed":  # who declined is told to nobody
                    why = (f"of {len(set(given.members))} called {invited} are registered and consent, and none of them joined: "
                           f"each declined, or was silent for {call['reply_within_ms']} ms")
                print(f"closed: {told['outcome']}", conclusion["text"] if conclusion else why)
                sys.exit(0 if conclusion and lead.answers else 1)


if __name__ == "__main__":
    main()
