"""Every kind of agent answers every kind of call at once: what it takes no part in it refuses, so that nobody waits for it."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmx import Accept, Agent, Bargainer, Bidder, Contractor, End, IncomingCall, Inform, Initiator, Job, MyTurn, Offer

from .fake_gateway import FakeGateway, cfp

sys.path.append(str(Path(__file__).parents[2] / "examples" / "python"))

ISSUES = [{"name": "price", "min": 1, "max": 2}]
RISING = {"direction": "ascending", "start": 1, "step": 1}
TEAM = {"members": {"min": 2, "max": 3}, "turns": 16, "speak_ms": 30_000, "ends_within_ms": 600_000}
ASK = {"act": "ask", "round": 1, "answer_by": "2099-01-01T00:00:00Z", "ends_by": "2099-01-01T00:01:00Z"}
SEAT = {"rounds": 3, "task": "What is 17 + 25?", "answer": {"kind": "number"}, "rules_digest": "0" * 64}
PEERS = [{"answer": "41"}, {"answer": "42", "text": "so it is"}]

CALLS: dict[str, dict[str, Any]] = {
    "contract net": cfp(),
    "bargain": cfp(bargain={"parties": ["alice", "bob"], "rules": {"issues": ISSUES, "rounds": 2}}),
    "auction": cfp(auction={"rules": RISING, "latest_by": "2099-01-01T00:00:00Z"}),
    "team": cfp(policy="team", team={"lead": "alice", "rules": TEAM, "depth_left": 1}),
    "task of a team": cfp(
        brief={"team": "alice~survey", "task": 2, "title": "figures", "text": "draw", "mode": "async"}
    ),
    "question of a panel": {**ASK, **SEAT},
    "ranking for a panel": {**ASK, "peers": PEERS, "rank": {"keep": 1}},
    "review for a panel": {**ASK, "peers": PEERS, "rate": "peers", "review": True},
}
PACKAGE = {"Contractor": ("contract net", "auction", "task of a team"), "Bargainer": ("bargain",), "Initiator": ()}
"""What each takes part in."""
EXAMPLES = {
    "contractor.py": ("contract net", "task of a team"),
    "bidder.py": ("auction",),
    "bargainer.py": ("bargain",),
    "teammate.py": ("team", "task of a team"),
    "panelist.py": ("question of a panel", "review for a panel"),
}


def participant(kind: str, gateway: FakeGateway) -> Agent:
    """An agent of this kind, whose handlers take part in whatever they are asked to."""
    if kind == "Initiator":
        return Initiator("bob", gateways=gateway.url, token="t").agent
    if kind == "Bargainer":
        party = Bargainer("bob")

        @party.on_turn
        async def act(turn: MyTurn) -> Offer | Accept | End:
            return turn.end()

        return Agent(party, gateways=gateway.url, token="t")
    bob = Contractor("bob")

    @bob.on_call
    async def answer(call: IncomingCall) -> Offer:
        return call.offer({"price": 1})

    @bob.on_auction
    async def bid(call: IncomingCall) -> Bidder:
        return Bidder(limit=1)

    @bob.on_commit
    async def work(job: Job) -> Inform:
        return job.done()

    return Agent(bob, gateways=gateway.url, token="t")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", PACKAGE)
async def test_an_agent_of_the_package_takes_part_or_refuses_at_once(kind: str, call: str) -> None:
    async with FakeGateway() as gateway, participant(kind, gateway):
        delivery_id = await gateway.deliver(CALLS[call])
        await gateway.until(lambda: bool(gateway.messages) and gateway.acked() == {delivery_id}, 2)
        [message] = gateway.messages
        takes_part = message["payload"]["act"] in ("offer", "join")
        assert takes_part == (call in PACKAGE[kind]), message["payload"]
        assert takes_part or message["payload"]["act"] == "refuse"
        assert message["envelope"]["in_reply_to"] == delivery_id


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_agent_of_the_examples_takes_part_or_refuses_at_once(kind: str, call: str) -> None:
    said = example(kind)(CALLS[call])
    takes_part = said["act"] in ("offer", "join", "answer")
    assert takes_part == (call in EXAMPLES[kind]), said
    assert takes_part or said["act"] == "refuse"


def example(kind: str) -> Callable[[Any], Any]:
    """What an agent of the examples answers a delivery with."""
    module: Any = __import__(kind.removesuffix(".py"))
    match kind:
        case "bargainer.py":
            return lambda told: module.Party("bob", "buyer").answer(told)
        case "bidder.py":
            return lambda told: module.Bidder(60).answer("alice~job-1", told)
        case "teammate.py":
            return lambda told: module.Member("bob").answer("alice~job-1", told)
        case "panelist.py":
            return lambda told: module.answer(told, "42")
    answer: Callable[[Any], Any] = module.answer
    return answer
