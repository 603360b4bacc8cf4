"""What a contractor answers."""

import asyncio
import re
import time
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from llmx import (
    Agent,
    Bargainer,
    Closing,
    Confirm,
    Contractor,
    Failure,
    IncomingAward,
    IncomingCall,
    Inform,
    Initiator,
    Job,
    Offer,
    Refuse,
    Rejection,
)
from llmx.limits import Limits

from .fake_gateway import FakeGateway, award, cfp, closed, committed

TERMS = {"price": 50_000_000, "delivery_ms": 2000}


def untyped(value: Any) -> Any:
    """A value whose type nobody checks."""
    return value


class Courier:
    """A contractor and what happened to it."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.bob = Contractor("bob", topics=["courier"], limits=limits)
        self.jobs: list[Job] = []
        self.stopped: list[str] = []
        self.hold: asyncio.Event | None = None

        @self.bob.on_call
        async def answer(call: IncomingCall) -> Offer | Refuse | None:
            match call.task:
                case "refuse":
                    return call.refuse("busy")
                case "silence":
                    return None
                case "fail":
                    raise ValueError("no idea")
            return call.offer(TERMS)

        @self.bob.on_commit
        async def work(job: Job) -> Inform | Failure:
            self.jobs.append(job)
            try:
                if self.hold is not None:
                    await self.hold.wait()
            except asyncio.CancelledError:
                self.stopped.append(job.negotiation)
                raise
            if job.call.task == "break":
                raise ValueError("broken")
            return job.done("delivered")


async def said(gateway: FakeGateway, count: int) -> list[Any]:
    """What the contractor has said, once it is so much."""
    await gateway.until(lambda: len(gateway.messages) >= count)
    await asyncio.sleep(0.03)
    assert len(gateway.messages) == count
    return [message["payload"] for message in gateway.messages]


async def commit(gateway: FakeGateway, task: str = "carry") -> None:
    """Calls, awards, and tells that the award binds."""
    await gateway.deliver(cfp(task=task))
    await said(gateway, 1)
    await gateway.deliver(award(TERMS))
    await said(gateway, 2)
    await gateway.deliver(committed(gateway.messages[1]["envelope"]["msg_id"]))


async def started(courier: Courier) -> None:
    """Waits until the work has begun."""
    async with asyncio.timeout(15):
        while not courier.jobs:
            await asyncio.sleep(0.01)


async def test_a_contractor_offers_confirms_works_and_reports() -> None:
    courier = Courier()
    async with FakeGateway() as gateway, Agent(courier.bob, gateways=gateway.url, token="t"):
        await commit(gateway)
        offer, confirmation, report = await said(gateway, 3)
        assert offer == {"act": "offer", "terms": TERMS, "round": 1}
        assert confirmation == {"act": "confirm", "award_no": 1, "terms_digest": "0" * 64}
        assert report == {"act": "inform", "kind": "done", "result": "delivered"}
        assert [job.terms for job in courier.jobs] == [TERMS]
        numbers = [message["envelope"]["seq"] for message in gateway.messages]
        assert numbers == sorted(set(numbers))
        assert courier.bob.open_count == 1
        await gateway.deliver(closed())
        await asyncio.sleep(0.05)
        assert courier.bob.open_count == 0


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (cfp(task="refuse"), {"act": "refuse", "reason": "busy", "round": 1}),
        (cfp(task="fail"), {"act": "refuse", "reason": "internal", "round": 1}),
        (
            cfp(bargain={"parties": ["alice", "bob"], "rules": {"issues": [{"name": "price", "min": 1, "max": 2}]}}),
            {"act": "refuse", "reason": "does not bargain"},
        ),
        (cfp(round=2, currency="EUR"), {"act": "offer", "terms": TERMS, "round": 2, "currency": "EUR"}),
    ],
)
async def test_a_call_is_answered(call: dict[str, Any], answer: dict[str, Any]) -> None:
    async with FakeGateway() as gateway, Agent(Courier().bob, gateways=gateway.url, token="t"):
        await gateway.deliver(call)
        assert await said(gateway, 1) == [answer]


async def test_a_call_that_came_too_late_or_is_not_wanted_is_acknowledged_and_left() -> None:
    courier = Courier()
    async with FakeGateway() as gateway, Agent(courier.bob, gateways=gateway.url, token="t"):
        ids = {await gateway.deliver(cfp(task="silence")), await gateway.deliver(cfp(reply_by="2020-01-01T00:00:00Z"))}
        await gateway.until(lambda: gateway.acked() == ids)
        assert not gateway.messages
        assert courier.bob.open_count == 0


async def test_an_award_of_terms_that_were_not_offered_is_refused() -> None:
    async with FakeGateway() as gateway, Agent(Courier().bob, gateways=gateway.url, token="t"):
        await gateway.deliver(award(TERMS))
        await gateway.deliver(cfp())
        await said(gateway, 2)
        await gateway.deliver(award({**TERMS, "price": 1}))
        refusals = [payload for payload in await said(gateway, 3) if payload["act"] == "refuse"]
        assert refusals == [{"act": "refuse", "reason": "no such offer"}] * 2


async def test_a_handler_may_decline_an_award() -> None:
    courier = Courier()

    @courier.bob.on_award
    async def decide(won: IncomingAward) -> Confirm | Refuse:
        return won.refuse("too late for me") if won.terms == TERMS else won.confirm()

    async with FakeGateway() as gateway, Agent(courier.bob, gateways=gateway.url, token="t"):
        await gateway.deliver(cfp())
        await said(gateway, 1)
        await gateway.deliver(award(TERMS))
        assert (await said(gateway, 2))[1] == {"act": "refuse", "reason": "too late for me"}


async def test_work_begins_once_and_only_for_the_award_that_was_confirmed() -> None:
    courier = Courier()
    async with FakeGateway() as gateway, Agent(courier.bob, gateways=gateway.url, token="t"):
        await gateway.deliver(committed("m0"))
        await commit(gateway)
        await said(gateway, 3)
        await gateway.deliver(committed("m0", award_no=2))
        await gateway.deliver({**committed("m0"), "disposition": "duplicate", "first": "committed"})
        await gateway.deliver(award(TERMS), delivery_id="d" * 32)
        await said(gateway, 3)
        assert len(courier.jobs) == 1


async def test_work_that_fails_is_reported() -> None:
    async with FakeGateway() as gateway, Agent(Courier().bob, gateways=gateway.url, token="t"):
        await commit(gateway, "break")
        report = (await said(gateway, 3))[2]
        assert report == {"act": "failure", "phase": "perform", "code": "internal", "retryable": False}


@pytest.mark.parametrize(
    ("reason", "answers"), [("cancelled", [{"act": "inform", "kind": "cancelled"}]), ("perform_timeout", [])]
)
async def test_an_award_taken_back_stops_the_work(reason: str, answers: list[Any]) -> None:
    courier = Courier()
    courier.hold = asyncio.Event()
    async with FakeGateway() as gateway, Agent(courier.bob, gateways=gateway.url, token="t"):
        await commit(gateway)
        await started(courier)
        await gateway.deliver({"act": "cancel", "award_no": 1, "reason": reason})
        async with asyncio.timeout(15):
            while not courier.stopped:
                await asyncio.sleep(0.01)
        assert (await said(gateway, 2 + len(answers)))[2:] == answers


async def test_an_award_taken_back_before_the_work_began_is_not_worked_on() -> None:
    courier = Courier()
    async with FakeGateway() as gateway, Agent(courier.bob, gateways=gateway.url, token="t"):
        await gateway.deliver(cfp())
        await said(gateway, 1)
        await gateway.deliver(award(TERMS))
        await said(gateway, 2)
        frames = [committed("m"), {"act": "cancel", "award_no": 1, "reason": "confirm_timeout"}]
        await asyncio.gather(*(gateway.deliver(frame) for frame in frames))
        await said(gateway, 2)
        assert not courier.jobs or courier.bob.open_count == 0


async def test_a_handler_may_say_that_it_cannot_stop() -> None:
    courier = Courier()

    courier.hold = asyncio.Event()

    @courier.bob.on_cancel
    async def answer(job: Job) -> Failure:
        return Failure(phase="cannot_cancel", code="on_the_way")

    async with FakeGateway() as gateway, Agent(courier.bob, gateways=gateway.url, token="t"):
        await commit(gateway)
        await started(courier)
        await gateway.deliver({"act": "cancel", "award_no": 1, "reason": "cancelled"})
        assert (await said(gateway, 3))[2] == {"act": "failure", "phase": "cannot_cancel", "code": "on_the_way"}


async def test_the_end_waits_for_work_and_reports_what_does_not_end() -> None:
    courier = Courier(Limits(end_s=1.0))
    courier.hold = asyncio.Event()
    async with FakeGateway() as gateway:
        async with Agent(courier.bob, gateways=gateway.url, token="t"):
            await commit(gateway)
            await started(courier)
        report = gateway.messages[-1]["payload"]
        assert report == {"act": "failure", "phase": "perform", "code": "stopped", "retryable": True}


async def test_a_contractor_with_no_room_is_busy_and_forgets_what_is_over() -> None:
    courier = Courier(Limits(engagements_max=2))
    ended: list[Closing] = []

    @courier.bob.on_close
    async def note(negotiation: str, closing: Closing) -> None:
        ended.append(closing)

    async with FakeGateway() as gateway, Agent(courier.bob, gateways=gateway.url, token="t"):
        for number in range(3):
            await gateway.deliver(cfp(), negotiation=f"alice~{number}")
        acts = [payload["act"] for payload in await said(gateway, 3)]
        assert acts.count("refuse") == 1
        await gateway.deliver({"act": "reject", "reason": "outscored"}, negotiation="alice~0")
        await gateway.deliver(closed("cancelled"), negotiation="alice~1")
        await asyncio.sleep(0.05)
        assert courier.bob.open_count == 0
        assert [one.outcome for one in ended] == ["cancelled"]


@pytest.mark.parametrize(
    ("handlers", "missing"),
    [
        ([], "`on_call` and `on_commit` have no handler"),
        (["on_call"], "`on_commit` has no handler"),
        (["on_commit"], "`on_call` has no handler"),
    ],
)
async def test_a_contractor_without_a_handler_does_not_start_and_names_it(handlers: list[str], missing: str) -> None:
    bob = Contractor("bob")
    for name in handlers:
        getattr(bob, name)(returning(None))
    async with FakeGateway() as gateway:
        with pytest.raises(TypeError, match=f"^contractor bob: {missing}$"):
            async with Agent(bob, gateways=gateway.url, token="t"):
                pass


def returning(answer: Any) -> Any:
    """A handler that returns something."""

    async def handler(*_: Any) -> Any:
        return answer

    return handler


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The errors of the log; none has a traceback."""
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert not any(record.exc_info for record in errors)
    return [record.getMessage() for record in errors]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"price": 1}, "`on_call` returned dict; return `call.offer(...)`, `call.refuse(...)` or None"),
        (
            Offer(terms=untyped({"price": Decimal("0.5")})),
            "`on_call` returned Offer: /terms/price: Decimal cannot be sent; "
            "expected an int (money is an integer number of micro-units)",
        ),
        (Offer(terms=untyped({"price": True})), "`on_call` returned Offer: /terms/price: expected an integer"),
        (Offer(terms=untyped({"price": None})), "`on_call` returned Offer: /terms/price: expected an integer"),
        (Offer(terms=untyped(None)), "`on_call` returned Offer: /terms: expected this member"),
        (
            Offer(terms={"price": 2**60}),
            "`on_call` returned Offer: /terms/price: an integer beyond 9007199254740991 (2**53 - 1) cannot be sent",
        ),
        (Refuse(reason=untyped(7)), "`on_call` returned Refuse: /reason: expected a text"),
    ],
)
async def test_a_call_answered_with_what_cannot_be_sent_is_refused_and_the_next_one_answered(
    answer: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    courier = Courier()
    courier.bob.on_call(returning(answer))
    async with FakeGateway() as gateway, Agent(courier.bob, gateways=gateway.url, token="t"):
        await gateway.deliver(cfp())
        assert await said(gateway, 1) == [{"act": "refuse", "reason": "internal", "round": 1}]
        assert logged(caplog) == [f"bob: in alice~job-1: {why}"]
        assert courier.bob.open_count == 0
        courier.bob.on_call(returning(Offer(terms=TERMS)))
        await gateway.deliver(cfp(), negotiation="alice~job-2")
        assert (await said(gateway, 2))[1]["act"] == "offer"


@pytest.mark.parametrize(
    ("report", "why"),
    [
        ("delivered", "`on_commit` returned str; return `job.done(...)` or `job.failed(...)`"),
        (None, "`on_commit` returned NoneType; return `job.done(...)` or `job.failed(...)`"),
        (
            Inform(kind="done", result="\ud800"),
            "`on_commit` returned Inform: /result: a text with half a surrogate pair cannot be sent",
        ),
        (Inform(kind=untyped("over")), "`on_commit` returned Inform: /kind: expected one of cancelled, done, result"),
    ],
)
async def test_work_reported_by_what_cannot_be_sent_is_reported_as_failed(
    report: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    courier = Courier()
    courier.bob.on_commit(returning(report))
    async with FakeGateway() as gateway, Agent(courier.bob, gateways=gateway.url, token="t"):
        await commit(gateway)
        failure = (await said(gateway, 3))[2]
        assert failure == {"act": "failure", "phase": "perform", "code": "internal", "retryable": False}
        assert logged(caplog) == [f"bob: in alice~job-1: {why}"]
        await gateway.deliver(cfp(), negotiation="alice~job-2")
        await said(gateway, 4)


async def test_an_award_is_refused_where_what_its_handler_waits_for_is_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def asks_and_gives_up(offered: IncomingAward) -> Confirm:
        asking = asyncio.create_task(asyncio.sleep(60))
        asyncio.get_running_loop().call_soon(asking.cancel)
        await asking
        return offered.confirm()

    courier = Courier()
    courier.bob.on_award(asks_and_gives_up)
    async with FakeGateway() as gateway, Agent(courier.bob, gateways=gateway.url, token="t"):
        await gateway.deliver(cfp())
        await said(gateway, 1)
        await gateway.deliver(award(TERMS))
        assert (await said(gateway, 2))[1] == {"act": "refuse", "reason": "internal"}
        assert [record.getMessage() for record in caplog.records] == ["bob: `on_award` failed in alice~job-1"]


async def test_a_close_handler_whose_wait_is_cancelled_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def asks_and_gives_up(*_: object) -> None:
        raise asyncio.CancelledError

    courier = Courier()
    courier.bob.on_close(asks_and_gives_up)
    async with FakeGateway() as gateway, Agent(courier.bob, gateways=gateway.url, token="t"):
        delivery_id = await gateway.deliver(closed())
        await gateway.until(lambda: gateway.acked() == {delivery_id})
        assert [record.getMessage() for record in caplog.records] == ["bob: `on_close` failed in alice~job-1"]


async def test_terms_that_are_sent_are_those_that_an_award_is_compared_with() -> None:
    @dataclass
    class Ride:
        price: int
        delivery_ms: int

    courier = Courier()
    courier.bob.on_call(returning(Offer(terms=untyped(Ride(**TERMS)))))
    async with FakeGateway() as gateway, Agent(courier.bob, gateways=gateway.url, token="t"):
        await gateway.deliver(cfp())
        assert (await said(gateway, 1))[0]["terms"] == TERMS
        await gateway.deliver(award(TERMS))
        assert (await said(gateway, 2))[1]["act"] == "confirm"


async def test_an_award_answered_with_what_cannot_be_sent_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    courier = Courier()
    courier.bob.on_award(returning(True))
    async with FakeGateway() as gateway, Agent(courier.bob, gateways=gateway.url, token="t"):
        await gateway.deliver(cfp())
        await said(gateway, 1)
        await gateway.deliver(award(TERMS))
        assert (await said(gateway, 2))[1] == {"act": "refuse", "reason": "internal"}
        remedy = "return `award.confirm()` or `award.refuse(...)`"
        assert logged(caplog) == [f"bob: in alice~job-1: `on_award` returned bool; {remedy}"]


@pytest.mark.parametrize("is_raised", [False, True])
async def test_a_cancellation_answered_with_what_cannot_be_sent_is_answered_all_the_same(is_raised: bool) -> None:
    courier = Courier()
    courier.hold = asyncio.Event()

    def refuse(_: Job) -> Any:
        raise ValueError("no function of this kind")

    courier.bob.on_cancel(refuse if is_raised else returning("stopped"))
    async with FakeGateway() as gateway, Agent(courier.bob, gateways=gateway.url, token="t"):
        await commit(gateway)
        await started(courier)
        await gateway.deliver({"act": "cancel", "award_no": 1, "reason": "cancelled"})
        assert (await said(gateway, 3))[2] == {"act": "inform", "kind": "cancelled"}


async def test_an_offer_that_could_not_win_is_warned_of_once_per_reason_and_told_to_its_handler(
    caplog: pytest.LogCaptureFixture,
) -> None:
    courier = Courier()
    told: list[tuple[str, str, str | None]] = []

    @courier.bob.on_reject
    async def note(negotiation: str, rejection: Rejection) -> None:
        told.append((negotiation, rejection.reason, rejection.code))

    frames: list[dict[str, Any]] = [
        {"act": "reject", "reason": "policy", "code": "price.required"},
        {"act": "reject", "reason": "policy", "code": "price.min"},
        {"act": "reject", "reason": "late", "offer_id": "o1-0"},
        {"act": "reject", "reason": "outscored", "offer_id": "o1-0"},
    ]
    misunderstanding = {
        "act": "not_understood",
        "reason": "condition",
        "expected": [],
        "pointer": "/payload/conditions",
    }
    async with FakeGateway() as gateway, Agent(courier.bob, gateways=gateway.url, token="t"):
        for number in range(3):
            for frame in [*frames, misunderstanding]:
                await gateway.deliver(frame, negotiation=f"alice~{number}")
        await gateway.until(lambda: len(gateway.acked()) == 15)
    assert told == [(f"alice~{n}", one["reason"], one.get("code")) for n in range(3) for one in frames]
    assert [record.getMessage().partition(";")[0] for record in caplog.records if record.levelname == "WARNING"] == [
        "bob: in alice~0 its offer could not win: policy (price.required)",
        "bob: in alice~0 its offer could not win: policy (price.min)",
        "bob: in alice~0 its offer could not win: late",
        "bob: in alice~0 what it said is not understood: condition (/payload/conditions)",
    ]


async def test_one_text_where_several_are_meant_is_refused() -> None:
    courier: Any = "courier"
    fault = re.escape("topics='courier' is one text; give a list: topics=['courier']")
    for make in (Contractor, Bargainer):
        with pytest.raises(TypeError, match=fault):
            make("bob", topics=courier)
    with pytest.raises(TypeError, match=r"^capabilities='courier' is one text"):
        Contractor("bob", capabilities=courier)
    ann = Initiator("ann", gateways="http://127.0.0.1:9", token="t")
    for name in ("requires", "capabilities"):
        with pytest.raises(TypeError, match=rf"^{name}='courier' is one text"):
            await ann.call("topic://courier", **{name: courier})


@pytest.mark.parametrize("name", ["bob smith", "", "b" * 65, "bob\n", "bøb"])
def test_an_agents_id_that_is_none_is_named_before_anything_is_sent(name: str) -> None:
    with pytest.raises(
        ValueError, match=re.escape(f"{name!r} is no agent's id: give 1 to 64 characters of A-Z a-z 0-9 _ -")
    ):
        Agent(Contractor(name), gateways="http://127.0.0.1:9", token="t")


async def test_a_handler_that_blocks_is_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmx.handlers.BLOCKED_S", 0.25)
    courier = Courier()

    @courier.bob.on_call
    async def ask_a_model(call: IncomingCall) -> Offer:
        await asyncio.sleep(0.1)
        if call.task == "block":
            time.sleep(0.4)  # noqa: ASYNC251
        return call.offer(TERMS)

    @courier.bob.on_close
    async def write_down(negotiation: str, closing: Closing) -> None:
        time.sleep(0.4)  # noqa: ASYNC251

    async with FakeGateway() as gateway, Agent(courier.bob, gateways=gateway.url, token="t"):
        await gateway.deliver(cfp(task="wait"), negotiation="alice~1")
        await said(gateway, 1)
        assert not caplog.records
        await gateway.deliver(cfp(task="block"), negotiation="alice~2")
        await said(gateway, 2)
        delivery_id = await gateway.deliver(closed(), negotiation="alice~2")
        await gateway.until(lambda: delivery_id in gateway.acked())
    place = "test_a_handler_that_blocks_is_named.<locals>"
    assert [record.getMessage().partition(" for ")[0] for record in caplog.records] == [
        f"bob: `on_call` ({place}.ask_a_model) held everything else up",
        f"bob: `on_close` ({place}.write_down) held everything else up",
    ]
