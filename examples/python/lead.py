#!/usr/bin/env python3
"""A lead: calls a team, hears what its members can do, gives one of them a task, waits for the result and concludes.

    python3 lead.py http://127.0.0.1:8080 ann "$(llmx token ann)" carol [MORE ...]

The first member named gets the task. Exit code 0: the team came to its conclusion with the result.
"""
import sys, time

from exchange import Exchange, arguments

TEXT = "count the words of this sentence"


class Lead:
    def __init__(self, name, members):
        self.name, self.members = name, members
        self.has_asked, self.result, self.step = False, None, 0

    def speak(self, floor):
        """What the lead does with the floor; None: it has not got it."""
        for task in floor.get("tasks", []):
            if task["status"] in ("done", "failed"):
                self.result = task.get("result", f"failed: {task.get('code')}")
        if floor["step"] <= self.step:
            return None
        self.step = floor["step"]
        if floor.get("speaker") != self.name or floor["state"] not in ("discussing", "concluding"):
            return None
        turn = {"turn": floor["turn"]}
        if self.result is not None or floor["state"] == "concluding":
            return {"act": "conclude", **turn, "text": f"the sentence has {self.result}"}
        if not self.has_asked:
            self.has_asked = True
            return {"act": "say", **turn, "text": "Who can count words?", "next": self.members[0]}
        task = {"title": "count", "text": TEXT, "owner": self.members[0], "perform_ms": 10_000}
        return {"act": "assign", **turn, "mode": "sync", "tasks": [task]}


def main():
    given = arguments(__doc__, members={"nargs": "+", "metavar": "MEMBER", "help": "whom to call"})
    lead = Lead(given.agent, given.members)
    with Exchange(given.url, given.agent, given.token) as exchange:
        rules = {"members": {"min": 2, "max": 1 + len(given.members)}, "turns": 8, "speak_ms": 5_000, "ends_within_ms": 60_000}
        call = {"act": "cfp", "task": "count words", "reply_within_ms": 5_000, "team": rules}
        to = {"to": [f"agent://{member}" for member in given.members], "scope": {"consent": "opt-in"}}
        team = exchange.send(f"team-{time.time_ns()}", call, **to)["negotiation"]
        print(f"{team} is called", flush=True)
        for delivery in exchange.inbox():
            told = delivery["payload"]
            if delivery["envelope"]["negotiation"] != team:
                continue  # of its task, or of an earlier start under the same name
            if told["act"] == "floor":
                if "said" in told:
                    print(f"{told['by']}: {told['said'].get('text')}", flush=True)
                payload = lead.speak(told)
                if payload is not None:
                    print(f"{given.agent}: {payload.get('text', payload['act'])}", flush=True)
                    exchange.reply(delivery, payload)
            if told["act"] == "closed":
                exchange.acknowledge(delivery)
                conclusion = told.get("conclusion")
                print(f"closed: {told['outcome']}", conclusion["text"] if conclusion else told.get("detail", ""))
                sys.exit(0 if conclusion and lead.result and "words" in lead.result else 1)


if __name__ == "__main__":
    main()
