#!/usr/bin/env python3
"""An initiator: calls for offers on the topic `courier`, follows the call to its end, prints what came of it.

    python3 initiator.py http://127.0.0.1:8080 ann "$(llmx token ann)"

Exit code 0: an award was made and its work reported as done.
"""
import sys, time

from exchange import Exchange, arguments


def show(told):
    kind = told.get("kind")
    if told["act"] == "ack" and "invited" in told:
        print(f"called {told['invited']} agents")
    elif kind == "awarded":
        print(f"award {told['award_no']} to {told['contractor']}: {told['terms']}, best of {told['offers']} offers")
    elif kind == "committed":
        print(f"{told['contractor']} is bound")
    elif kind == "done":
        print(f"{told['contractor']} is done: {told.get('result', '-')}")
    elif told["act"] == "not_understood":
        print(f"not understood: {told['reason']}")


def main():
    given = arguments(__doc__)
    with Exchange(given.url, given.agent, given.token) as exchange:
        call = {"act": "cfp", "task": "deliver one parcel", "reply_within_ms": 2000}
        accepted = exchange.send(f"parcel-{time.time_ns()}", call, to=["topic://courier"], scope={"consent": "opt-in"})
        print(f"{accepted['negotiation']} runs under policy {accepted['policy']}")
        for delivery in exchange.inbox():
            told = delivery["payload"]
            if delivery["envelope"]["negotiation"] != accepted["negotiation"]:
                continue  # of an earlier start under the same name
            show(told)
            if told["act"] == "closed":
                exchange.acknowledge(delivery)
                print(f"closed: {told['outcome']}")
                sys.exit(0 if told["outcome"] == "completed" else 1)


if __name__ == "__main__":
    main()
