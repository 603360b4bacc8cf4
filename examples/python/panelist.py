#!/usr/bin/env python3
"""A panelist: answers every question alike, until most of the others say something else.

    python3 panelist.py http://127.0.0.1:8080 ann "$(llmx token ann)" 42                  answers whoever asks
    python3 panelist.py http://127.0.0.1:8080 ben "$(llmx token ben)" 42 ann bob cyd      asks these three, and prints the finding

A panelist goes on until it is asked to end. Who asks ends with the panel; exit code 0: there is a finding.
"""
import sys, time
from collections import Counter

from exchange import Exchange, agent_id, arguments

TASK = "What is 17 + 25?"
RULES = {"domain": "arithmetic", "answer": {"kind": "number"}, "rounds": 3, "answer_ms": 5_000}


def answer(told, opinion):
    """What an ask is answered with."""
    if told["act"] != "ask" or "rank" in told:
        return {"act": "refuse", "reason": "answers and reviews only"} if told["act"] in ("ask", "cfp") else None
    if told.get("review"):
        return review(told, opinion)
    peers = [peer["answer"] for peer in told.get("peers", [])]
    votes = Counter(peer for peer in peers if peer is not None)
    said, count = votes.most_common(1)[0] if votes else (opinion, 1)
    reply = {"act": "answer", "round": told["round"], "answer": said if count > 1 else opinion}
    if told.get("rate") == "peers":  # 5 for who says the same, 1 for who says something else
        reply["ratings"] = [5 if peer == reply["answer"] else 1 for peer in peers]
    return reply


def review(told, opinion):
    """What it says of others' answers, if a call names it as a reviewer."""
    same = [peer["answer"] == opinion for peer in told["peers"]]
    reviews = ["so do I" if is_same else f"I find {opinion}" for is_same in same]
    reply = {"act": "answer", "round": told["round"], "reviews": reviews}
    if told.get("rate") == "peers":
        reply["ratings"] = [5 if is_same else 1 for is_same in same]
    return reply


def main():
    others = {"nargs": "*", "type": agent_id, "metavar": "OTHER", "help": "whom to ask"}
    given = arguments(__doc__, answer={"metavar": "ANSWER"}, others=others)
    with Exchange(given.url, given.agent, given.token) as exchange:
        exchange.register()
        print(f"{given.agent} is registered", flush=True)
        if given.others:
            call = {"act": "cfp", "task": TASK, "panel": RULES}
            called, found = exchange.call(f"panel-{time.time_ns()}", call, given.others), False
        for delivery in exchange.inbox():
            told, panel = delivery["payload"], delivery["envelope"]["negotiation"]
            if told["act"] == "ack" and told["disposition"] in ("late", "stale_round", "closed"):
                print(f"{panel}: the answer does not count: {told['disposition']}", flush=True)
            if told["act"] == "not_understood":  # what was sent does not count; until `answer_by` it may be sent again
                print(f"{panel}: not understood: {told['reason']} {told.get('pointer', '')}", flush=True)
            if not given.others:
                if payload := answer(told, given.answer):
                    exchange.reply(delivery, payload)
                    print(f"{panel}: round {told.get('round', '-')}: {payload.get('answer', payload['act'])}", flush=True)
            elif panel == called and told["act"] == "inform":
                found = True
                print(f"{panel}: {told['answer']}, {told['agreed']} of {told['of']} agree in round {told['round']}", flush=True)
                for seat in told["panelists"]:
                    print(f"  {seat['agent']}: {seat['answer']}, importance {seat['total_e12'] / 1e12:.3f}", flush=True)
                for other in sorted(set(given.others) - {seat["agent"] for seat in told["panelists"]}):
                    print(f"  {other}: left out: it is not registered, or does not consent", flush=True)
            elif panel == called and told["act"] in ("closed", "not_understood"):
                exchange.acknowledge(delivery)
                print(f"{panel}: {told.get('outcome') or told.get('reason')}", flush=True)
                sys.exit(0 if found else 1)
            elif told["act"] in ("cfp", "ask"):  # so that nobody waits
                exchange.reply(delivery, {"act": "refuse", "reason": "asks only"})


if __name__ == "__main__":
    main()
