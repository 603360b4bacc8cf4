"""What a party of a bargain does."""

import asyncio
import hashlib
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from llmx import (
    Accept,
    Agent,
    Bargainer,
    BargainResult,
    BargainRules,
    Domain,
    End,
    EndedError,
    Invitation,
    Issue,
    Mandate,
    MyTurn,
    Offer,
    Plan,
    Preferences,
    Refuse,
    Space,
    TimeDependent,
    TurnedDownError,
    UnreadableError,
    UnsendableError,
)
from llmx.bargaining.preferences import holds
from llmx.documents import Predicate

from .fake_gateway import FakeGateway, cfp, closed, problem, refused

RULES: dict[str, Any] = {"issues": [{"name": "price", "min": 0, "max": 10}], "rounds": 9, "step_ms": 1000}
INVITATION = cfp(bargain={"parties": ["alice", "bob"], "rules": RULES})
LATER = "2099-01-01T00:00:00Z"
DIGEST_OF_8 = hashlib.sha256(b'{"price":8}').hexdigest()


def turn(step: int, party: str = "bob", price: int | None = None, **standing: Any) -> dict[str, Any]:
    """Whose turn it is, and what stands."""
    document = {"act": "turn", "party": party, "round": step // 2 + 1, "step": step, "act_by": LATER, "ends_by": LATER}
    if price is None:
        return {**document, "t_ppm": 0}
    offer = {"offer_id": f"o{step + 1}-0", "by": "alice", "terms": {"price": price}, "terms_digest": "1" * 64}
    return {**document, "t_ppm": 100_000, "standing": {**offer, **standing}}


class Haggler:
    """A bargainer that asks for one less each time it is asked, and accepts 7 or more."""

    def __init__(self) -> None:
        self.bob = Bargainer("bob")
        self.turns: list[MyTurn] = []
        self.results: list[BargainResult] = []
        self.hold: asyncio.Event | None = None

        @self.bob.on_turn
        async def move(turn: MyTurn) -> Offer | Accept | End:
            self.turns.append(turn)
            if self.hold is not None:
                await self.hold.wait()
            if turn.standing is not None and turn.standing.terms["price"] in range(7, 11):
                return turn.accept()
            return turn.offer({"price": 10 - len(self.turns)})

        @self.bob.on_close
        async def note(result: BargainResult) -> None:
            self.results.append(result)


async def said(gateway: FakeGateway, count: int) -> list[Any]:
    """What the party has said, once it is so much."""
    await gateway.until(lambda: len(gateway.messages) >= count)
    await asyncio.sleep(0.03)
    assert len(gateway.messages) == count
    return [message["payload"] for message in gateway.messages]


async def test_a_party_joins_takes_its_turns_once_each_and_hears_the_end() -> None:
    haggler = Haggler()
    async with FakeGateway() as gateway, Agent(haggler.bob, gateways=gateway.url, token="t"):
        await gateway.deliver(INVITATION)
        assert await said(gateway, 1) == [{"act": "join"}]
        await gateway.deliver(turn(0, "alice"))
        await gateway.deliver(turn(1, price=3))
        assert (await said(gateway, 2))[1] == {"act": "offer", "terms": {"price": 9}}
        await gateway.deliver(turn(1, price=3))
        await gateway.deliver(turn(0, "alice"))
        await gateway.deliver(turn(3, price=8))
        acceptance = (await said(gateway, 3))[2]
        assert acceptance == {"act": "accept", "offer_id": "o4-0", "terms_digest": "1" * 64}
        agreement = {
            "offer_id": "o4-0",
            "by": "alice",
            "terms": {"price": 8},
            "terms_digest": "1" * 64,
            "round": 2,
            "step": 4,
        }
        await gateway.deliver({**closed("agreement"), "agreement": agreement})
        await said(gateway, 3)
        assert [one.outcome for one in haggler.results] == ["agreement"]
        assert haggler.bob.open_count == 0
        assert [one.t for one in haggler.turns] == [0.1, 0.2]


@pytest.mark.parametrize(
    "standing",
    [
        {"accepted_by": ["bob"]},
        {"by": "bob"},
        {"valid_until": "2020-01-01T00:00:00Z"},
        {"valid_from": "2098-01-01T00:00:00Z"},
        {"conditions": [{"attr": "round", "op": "gt", "value": 5}]},
    ],
)
async def test_what_cannot_be_accepted_now_does_not_stand_for_the_strategy(standing: dict[str, Any]) -> None:
    haggler = Haggler()
    async with FakeGateway() as gateway, Agent(haggler.bob, gateways=gateway.url, token="t"):
        await gateway.deliver(INVITATION)
        await said(gateway, 1)
        await gateway.deliver(turn(1, price=8, **standing))
        assert (await said(gateway, 2))[1]["act"] == "offer"


@pytest.mark.parametrize("by_gateway", [False, True])
async def test_a_move_that_is_refused_is_made_anew_a_bounded_number_of_times(by_gateway: bool) -> None:
    haggler = Haggler()
    async with FakeGateway() as gateway, Agent(haggler.bob, gateways=gateway.url, token="t"):
        await gateway.deliver(INVITATION)
        await said(gateway, 1)
        if by_gateway:

            def refuse_offers(frame: dict[str, Any]) -> dict[str, Any] | None:
                is_offer = frame["message"]["payload"]["act"] == "offer"
                return refused(frame, problem("out_of_range", 422)) if is_offer else gateway.accept(frame)

            gateway.answer = refuse_offers
        await gateway.deliver(turn(1, price=3))
        for number in range(1, 9):
            await gateway.until(lambda number=number: len(gateway.messages) > number)  # type: ignore[misc]
            if not by_gateway:
                await asyncio.sleep(0.03)
                await gateway.deliver({"act": "not_understood", "reason": "mandate_violation", "expected": ["offer"]})
        acts = [payload["act"] for payload in await said(gateway, 10)]
        assert acts == ["join", *["offer"] * 8, "end"]
        reason = "out_of_range" if by_gateway else "mandate_violation"
        assert [one.refusal for one in haggler.turns] == [None, *[reason] * 7]
        assert haggler.turns[1].refused == Offer(terms={"price": 9})


async def test_an_offer_that_is_gone_is_not_accepted_again() -> None:
    haggler = Haggler()
    async with FakeGateway() as gateway, Agent(haggler.bob, gateways=gateway.url, token="t"):
        await gateway.deliver(INVITATION)
        await said(gateway, 1)
        await gateway.deliver(turn(1, price=8))
        await said(gateway, 2)
        await gateway.deliver({"act": "not_understood", "reason": "standing", "expected": ["offer"]})
        assert [payload["act"] for payload in await said(gateway, 3)] == ["join", "accept", "offer"]


async def test_whoever_cannot_join_says_so() -> None:
    haggler = Haggler()
    async with FakeGateway() as gateway, Agent(haggler.bob, gateways=gateway.url, token="t"):
        await gateway.deliver(cfp())
        await gateway.deliver(INVITATION, negotiation="alice~2")
        await said(gateway, 2)
        await gateway.deliver(
            {"act": "not_understood", "reason": "invalid_mandate", "expected": ["join"]}, negotiation="alice~2"
        )
        answers = await said(gateway, 3)
        assert {"act": "refuse", "reason": "takes part in bargains only"} in answers
        assert answers[2] == {"act": "refuse", "reason": "cannot join"}


async def test_a_plan_binds_by_a_mandate_and_answers_the_agreement() -> None:
    bob = Bargainer("bob")
    mandate = Mandate(limits=(Predicate(attr="price", op="ge", value=5),))

    async def never(turn: MyTurn) -> End:
        return turn.end()

    @bob.on_invitation
    async def join(invitation: Invitation) -> Plan | Refuse:
        if invitation.initiator != "alice":
            return invitation.refuse("not with you")
        return Plan(never, mandate=mandate, may_agree=lambda terms: terms["price"] == 8)

    async with FakeGateway() as gateway, Agent(bob, gateways=gateway.url, token="t"):
        await gateway.deliver(INVITATION)
        limits = [{"attr": "price", "op": "ge", "value": 5}]
        assert await said(gateway, 1) == [{"act": "join", "mandate": {"limits": limits}}]
        assert len(gateway.messages[0]["envelope"]["msg_id"]) >= 20, "nobody guesses it"
        digest = "8fe7a78e0c1df9eb7a2b3cff0fd6b26d3e2d1b3b2a3b9e6bf8ac3a38c0ba4b5a"
        agreement = {"act": "accept", "offer_id": "o1-0", "lot": 0, "award_no": 1, "terms": {"price": 8}}
        await gateway.deliver({**agreement, "terms_digest": digest, "confirm_by": LATER})
        assert (await said(gateway, 2))[1] == {"act": "refuse", "reason": "terms and digest differ"}


async def sold(turn: MyTurn) -> End:
    """A strategy that ends."""
    return turn.end()


def mandate(limit: Any) -> Mandate:
    """A mandate with one limit."""
    return Mandate(limits=(Predicate(attr="price", op="ge", value=limit),))


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ("yes", "`on_invitation` returned str; return `Plan(...)` or `invitation.refuse(...)`"),
        (
            Plan(sold, mandate(Decimal(5))),
            "`on_invitation` returned Plan: /mandate/limits/0/value: Decimal cannot be sent; "
            "expected an int (money is an integer number of micro-units)",
        ),
    ],
)
async def test_an_invitation_answered_with_what_cannot_be_sent_is_refused(
    plan: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    bob = Bargainer("bob")

    @bob.on_invitation
    async def join(_: Invitation) -> Any:
        return plan

    async with FakeGateway() as gateway, Agent(bob, gateways=gateway.url, token="t"):
        await gateway.deliver(INVITATION)
        assert await said(gateway, 1) == [{"act": "refuse", "reason": "internal"}]
        assert [record.getMessage() for record in caplog.records] == [f"bob: in alice~job-1: {why}"]
        assert bob.open_count == 0


@pytest.mark.parametrize(
    ("move", "why"),
    [
        ({"price": 5}, "returned dict; return `turn.offer(...)`, `turn.accept()` or `turn.end()`"),
        (None, "returned NoneType; return `turn.offer(...)`, `turn.accept()` or `turn.end()`"),
        (Offer(terms={"price": True}), "returned Offer: /terms/price: expected an integer"),
    ],
)
async def test_a_move_that_cannot_be_sent_ends_the_bargain_and_no_other(
    move: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    bob = Bargainer("bob")

    @bob.on_turn
    async def play(_: MyTurn) -> Any:
        return move

    async with FakeGateway() as gateway, Agent(bob, gateways=gateway.url, token="t"):
        await gateway.deliver(INVITATION)
        await said(gateway, 1)
        await gateway.deliver(turn(1, price=3))
        assert (await said(gateway, 2))[1] == {"act": "end", "reason": "internal"}
        assert [record.getMessage() for record in caplog.records] == [f"bob: in alice~job-1: the strategy {why}"]
        await gateway.deliver(INVITATION, negotiation="alice~2")
        assert (await said(gateway, 3))[2] == {"act": "join"}


async def no_word(_: Any) -> bool:
    """As `may_agree` this would agree to everything."""
    return False


def cannot_say(_: Any) -> bool:
    """Fails."""
    raise ValueError("no idea")


@pytest.mark.parametrize(
    ("may_agree", "answer"),
    [
        (no_word, {"act": "refuse", "reason": "internal"}),
        (cannot_say, {"act": "refuse", "reason": "internal"}),
        (lambda _: False, {"act": "refuse", "reason": "may not agree to these terms"}),
        (lambda terms: terms["price"] == 8, {"act": "confirm", "award_no": 1, "terms_digest": DIGEST_OF_8}),
    ],
)
@pytest.mark.filterwarnings("ignore:coroutine 'no_word' was never awaited")
async def test_an_agreement_is_confirmed_by_a_clear_yes_only(may_agree: Any, answer: dict[str, Any]) -> None:
    bob = Bargainer("bob")

    @bob.on_invitation
    async def join(_: Invitation) -> Plan:
        return Plan(sold, may_agree=may_agree)

    async with FakeGateway() as gateway, Agent(bob, gateways=gateway.url, token="t"):
        await gateway.deliver(INVITATION)
        await said(gateway, 1)
        agreement = {"act": "accept", "offer_id": "o1-0", "lot": 0, "award_no": 1, "terms": {"price": 8}}
        await gateway.deliver({**agreement, "terms_digest": DIGEST_OF_8, "confirm_by": LATER})
        assert (await said(gateway, 2))[1] == answer


async def test_a_bargain_whose_call_cannot_be_sent_is_not_kept() -> None:
    haggler = Haggler()
    rules = BargainRules(issues=(Issue(name="price", min=0, max=10),), rounds=9)
    async with FakeGateway() as gateway, Agent(haggler.bob, gateways=gateway.url, token="t"):
        with pytest.raises(UnsendableError, match=r"^/mandate/limits/0/value: float"):
            await haggler.bob.open("agent://alice", rules=rules, plan=Plan(sold, mandate(0.5)))
        assert haggler.bob.open_count == 0


async def test_the_opener_begins_and_hears_when_its_call_is_turned_down() -> None:
    haggler = Haggler()
    rules = BargainRules(issues=(Issue(name="price", min=0, max=10),), rounds=9)
    async with FakeGateway() as gateway:
        async with Agent(haggler.bob, gateways=gateway.url, token="t"):
            bargain = await haggler.bob.open("agent://alice", rules=rules, own_id="b1")
            call = gateway.messages[0]
            assert call["envelope"]["to"] == ["agent://alice"]
            assert call["payload"]["bargain"]["rounds"] == 9
            receipt = {"act": "ack", "ack_of": call["envelope"]["msg_id"], "disposition": "malformed"}
            await gateway.deliver(receipt, negotiation="bob~b1")
            with pytest.raises(TurnedDownError, match="malformed"):
                await bargain.end()
            left = await haggler.bob.open("agent://alice", rules=rules, own_id="b2")
        assert gateway.messages[-1]["payload"] == {"act": "end", "reason": "stopped"}
        with pytest.raises(EndedError):
            await left.end()


def test_outcomes_are_numbered_row_major() -> None:
    space = Space([Issue(name="colour", values=("red", 7)), Issue(name="price", min=-1, max=1)])
    assert [space.terms(outcome) for outcome in (0, 1, 3, 5)] == [
        {"colour": "red", "price": -1},
        {"colour": "red", "price": 0},
        {"colour": 7, "price": -1},
        {"colour": 7, "price": 1},
    ]
    assert [space.outcome(space.terms(outcome)) for outcome in range(6)] == list(range(6))
    others: list[dict[str, int | str]] = [{"colour": "7", "price": 1}, {"colour": 7}, {"colour": 7, "size": 1}]
    for terms in others:
        assert space.outcome(terms) is None
    with pytest.raises(ValueError, match="outcomes"):
        Space([Issue(name="price", min=0, max=10**9)])


@pytest.mark.parametrize(
    ("value", "constant", "holding"),
    [
        (1, 2, {"ne", "lt", "le"}),
        (2, 2, {"eq", "le", "ge"}),
        (3, 2, {"ne", "gt", "ge"}),
        ("a", "a", {"eq"}),
        ("a", "b", {"ne"}),
        ("2", 2, {"ne"}),
        (None, 2, {"ne"}),
    ],
)
def test_predicates_hold_as_the_exchange_says(value: Any, constant: Any, holding: set[str]) -> None:
    operators: tuple[Any, ...] = ("eq", "ne", "lt", "le", "gt", "ge")
    assert {op for op in operators if holds(Predicate(attr="a", op=op, value=constant), value)} == holding


def test_aspirations_fall_from_the_best_to_the_reservation_value() -> None:
    space = Space([Issue(name="n", min=0, max=10)])
    preferences = Preferences([outcome / 10 for outcome in range(11)], 0.2)
    for strategy, t, expected in [
        (TimeDependent.boulware(space, preferences), 0.0, 1.0 - 1e-4),
        (TimeDependent.boulware(space, preferences), 0.5, 0.95 - 1e-4),
        (TimeDependent.boulware(space, preferences), 1.0, 0.2),
        (TimeDependent.linear(space, preferences), 0.5, 0.6 - 1e-4),
        (TimeDependent.conceder(space, preferences), 0.0625, 0.6 - 1e-4),
    ]:
        assert strategy.aspiration(t) == pytest.approx(expected, abs=1e-12)


def test_the_domains_of_the_repository_are_read() -> None:
    for file in sorted((Path(__file__).parents[2] / "domains").glob("*.json")):
        domain = Domain.read(file)
        for party in json.loads(file.read_text(encoding="utf-8"))["parties"]:
            preferences = domain.preferences(party["name"])
            assert preferences.ranking
            assert domain.mandate(party["name"]).reservation == party["reservation"]


def test_a_utility_in_real_numbers_is_refused_where_it_stands() -> None:
    file = Path(__file__).parents[2] / "domains" / "ecommerce.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    document["parties"][1]["utility"] = {"table_real": [0.5]}
    with pytest.raises(UnreadableError) as caught:
        Domain.parse(document)
    assert caught.value.pointer == "/parties/1/utility"
