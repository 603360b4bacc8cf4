"""How a contractor bids in an English auction."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from llmx import (
    Agent,
    Auction,
    AuctionRules,
    Bidder,
    Cfp,
    Contractor,
    IncomingCall,
    Inform,
    Job,
    StandingBid,
    decode,
    encode,
)
from llmx.codec import INTEGER_MAX
from llmx.deliveries import read_delivery
from llmx.english_auction import next_price, reaches

from .fake_gateway import FakeGateway, award, cfp, closed, delivery
from .test_contractor import logged, said

NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)
ENDS_AT = NOW + timedelta(seconds=20)
RISING = {"direction": "ascending", "start": 1000, "step": 50}
LEFT = {"act": "refuse", "reason": "beyond its limit", "round": 1}


def rules(
    direction: Literal["ascending", "descending"], step: int | None = None, step_permille: int | None = None
) -> AuctionRules:
    """Rules with a start of 1000."""
    return AuctionRules(direction=direction, start=1000, step=step, step_permille=step_permille)


def standing(price: int, bid_no: int = 1, *, leads: bool = False) -> StandingBid:
    """A bid that stands."""
    return StandingBid(bid_no=bid_no, price=price, leads=leads, bidders=3, reply_by=ENDS_AT)


def bid(price: int, bid_no: int, *, leads: bool = False, **members: Any) -> dict[str, Any]:
    """The notice of a bid."""
    end = "2099-01-01T00:00:00Z"
    notice = {"act": "inform", "kind": "bid", "bid_no": bid_no, "price": price, "leads": leads, "bidders": 3}
    return {**notice, "reply_by": end, **members}


def called(**members: Any) -> dict[str, Any]:
    """A call to an auction whose prices rise from 1000 by 50."""
    return cfp(auction={"rules": {**RISING, **members}, "latest_by": "2099-01-01T00:00:00Z"})


def offer(price: int) -> dict[str, Any]:
    """The bid of a price."""
    return {"act": "offer", "terms": {"price": price}, "round": 1}


@pytest.mark.parametrize(
    ("direction", "step", "stands", "expected"),
    [
        ("ascending", {"step": 50}, None, 1000),
        ("ascending", {"step": 50}, 1000, 1050),
        ("descending", {"step": 50}, None, 1000),
        ("descending", {"step": 50}, 1000, 950),
        ("descending", {"step": 50}, 50, 0),
        ("descending", {"step": 50}, 49, None),
        ("ascending", {"step_permille": 25}, 1001, 1027),
        ("descending", {"step_permille": 25}, 1001, 975),
        ("ascending", {"step_permille": 1}, 0, 1),
        ("ascending", {"step_permille": 1000}, INTEGER_MAX, None),
        ("ascending", {"step": 1}, INTEGER_MAX, None),
        ("ascending", {"step": 0}, 7, 8),
        ("descending", {"step": -(2**63)}, 7, 6),
        ("ascending", {"step_permille": 1}, INTEGER_MAX - 10**13, INTEGER_MAX - 10**13 + 8997199254741),
    ],
)
def test_the_next_price_is_one_step_from_the_standing_one(
    direction: Literal["ascending", "descending"], step: dict[str, int], stands: int | None, expected: int | None
) -> None:
    assert next_price(rules(direction, **step), stands) == expected


@pytest.mark.parametrize(
    ("direction", "enough", "too_little"),
    [("ascending", (1050, 9000), (1049, 0)), ("descending", (950, 0), (951, 9000))],
)
def test_a_bid_reaches_the_next_price_or_goes_beyond_it(
    direction: Literal["ascending", "descending"], enough: tuple[int, int], too_little: tuple[int, int]
) -> None:
    auction = rules(direction, step=50)
    bound = next_price(auction, 1000)
    assert bound is not None
    assert all(reaches(auction, price, bound) for price in enough)
    assert not any(reaches(auction, price, bound) for price in too_little)


def test_a_call_tells_its_reserve_and_bidders_read_rules_without_one() -> None:
    written = {"direction": "ascending", "start": 5, "step": 2, "quiet_ms": 100, "reserve": 9}
    auction = Auction(direction="ascending", start=5, step=2, quiet_ms=100, reserve=9)
    assert encode(Cfp(auction=auction)) == {"act": "cfp", "auction": written}
    extend = {"ms": 2000, "latest_within_ms": 60_000}
    told: Any = read_delivery(delivery(called(extend=extend))).payload
    assert encode(told.auction.rules) == {**RISING, "extend": extend}
    assert not hasattr(told.auction.rules, "reserve")
    notice: Any = read_delivery(delivery(bid(1000, 7, next_price=1050))).payload
    assert (type(notice), notice.bid_no, notice.next_price) == (StandingBid, 7, 1050)


@pytest.mark.parametrize(
    ("strategy", "direction", "limit", "stands", "price"),
    [
        ("truthful", "ascending", 1000, None, 1000),
        ("truthful", "ascending", 999, None, None),
        ("truthful", "ascending", 1050, standing(1000), 1050),
        ("truthful", "ascending", 1049, standing(1000), None),
        ("truthful", "ascending", 9000, standing(1000, leads=True), None),
        ("truthful", "descending", 1000, None, 1000),
        ("truthful", "descending", 1001, None, None),
        ("truthful", "descending", 950, standing(1000), 950),
        ("truthful", "descending", 951, standing(1000), None),
        ("truthful", "descending", 0, standing(49), None),
        ("jump", "ascending", 2001, None, 1500),
        ("jump", "ascending", 1050, standing(1000), 1050),
        ("jump", "ascending", 1051, standing(1000), 1050),
        ("jump", "descending", 101, standing(1000), 525),
        ("jump", "descending", -5, standing(50), 0),
        ("jump", "ascending", INTEGER_MAX, standing(INTEGER_MAX - 60), INTEGER_MAX - 5),
        ("sniper", "ascending", 2000, standing(1000), 1050),
    ],
)
def test_a_bidder_bids_within_its_limit_and_never_while_it_leads(
    strategy: Literal["truthful", "jump", "sniper"],
    direction: Literal["ascending", "descending"],
    limit: int,
    stands: StandingBid | None,
    price: int | None,
) -> None:
    assert Bidder(limit=limit, strategy=strategy).price(rules(direction, step=50), stands) == price


@pytest.mark.parametrize(
    ("strategy", "quiet_ms", "stands", "left_us", "wait_ms"),
    [
        ("truthful", 500, standing(1000), 20_000_000, 30),
        ("jump", None, None, 20_000_000, 30),
        ("sniper", None, None, 20_000_000, 19_900),
        ("sniper", 500, None, 20_000_000, 19_900),
        ("sniper", 500, standing(1000), 20_000_000, 400),
        ("sniper", 500, standing(1000), 300_999, 200),
        ("sniper", 50, standing(1000), 20_000_000, 0),
        ("sniper", None, None, -1, 0),
    ],
)
def test_only_a_sniper_waits_until_bidding_would_end(
    strategy: Literal["truthful", "jump", "sniper"],
    quiet_ms: int | None,
    stands: StandingBid | None,
    left_us: int,
    wait_ms: int,
) -> None:
    auction = AuctionRules(direction="ascending", start=1000, step=50, quiet_ms=quiet_ms)
    bidder, ends_at = Bidder(limit=2000, strategy=strategy, delay_ms=30), NOW + timedelta(microseconds=left_us)
    assert bidder.wait_ms(auction, stands, NOW, ends_at) == wait_ms


def buyer(bidder: Any) -> Contractor:
    """A contractor that bids, and knows nothing else."""
    bob = Contractor("bob")

    @bob.on_auction
    async def answer(call: IncomingCall) -> Bidder:
        await asyncio.sleep(0)
        return bidder  # type: ignore[no-any-return]

    @bob.on_commit
    async def pay(job: Job) -> Inform:
        return job.done()

    return bob


@contextmanager
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing is worth a line in the log."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


async def test_a_contractor_bids_until_the_next_price_is_beyond_its_limit_and_confirms_what_it_bid(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bob = buyer(Bidder(limit=1150))
    with quiet(caplog):
        async with FakeGateway() as gateway, Agent(bob, gateways=gateway.url, token="t"):
            await gateway.deliver(called())
            assert await said(gateway, 1) == [offer(1000)]
            for notice in (bid(1000, 1, leads=True), bid(1050, 2), bid(1050, 2), bid(1000, 1)):
                await gateway.deliver(notice)
            assert (await said(gateway, 2))[1:] == [offer(1100)]
            # Another bid came before it.
            await gateway.deliver({"act": "reject", "reason": "policy", "code": "price.step", "offer_id": "o3-0"})
            await gateway.deliver(bid(1100, 3))
            assert (await said(gateway, 3))[2:] == [offer(1150)]
            for notice in (bid(1150, 4, leads=True), bid(1100, 3), bid(1200, 5)):
                await gateway.deliver(notice)
            await gateway.deliver({"act": "reject", "reason": "replaced", "offer_id": "o1-0"})
            await said(gateway, 3)
            await gateway.deliver(award({"price": 1150}))
            assert (await said(gateway, 4))[3]["act"] == "confirm"
            await gateway.deliver(bid(1000, 6))
            await said(gateway, 4)
            await gateway.deliver(closed())
            await gateway.until(lambda: bob.open_count == 0)


@pytest.mark.parametrize("notices", [[], [bid(1150, 4)], [bid(1150, 4), bid(1000, 1)]])
async def test_a_contractor_leaves_where_the_first_price_is_beyond_its_limit(notices: list[Any]) -> None:
    """Also where the notice of a bid comes before the call."""
    bob = buyer(Bidder(limit=999 if not notices else 1199))
    async with FakeGateway() as gateway, Agent(bob, gateways=gateway.url, token="t"):
        for notice in [*notices, called()]:
            await gateway.deliver(notice)
        assert await said(gateway, 1) == [LEFT]
        await gateway.deliver(bid(1000, 5))
        await said(gateway, 1)
        assert bob.open_count == 0


async def test_a_bid_that_was_beaten_before_it_was_made_is_not_made() -> None:
    bob = buyer(Bidder(limit=1150, delay_ms=300))
    async with FakeGateway() as gateway, Agent(bob, gateways=gateway.url, token="t"):
        await gateway.deliver(called())
        await asyncio.sleep(0.03)
        await gateway.deliver(bid(1000, 1))
        await asyncio.sleep(0.03)
        await gateway.deliver(bid(1050, 2))
        await asyncio.sleep(0.5)
        assert await said(gateway, 1) == [offer(1100)]
        await gateway.deliver(bid(1060, 3))
        await gateway.deliver(bid(1110, 4))
        await asyncio.sleep(0.5)
        await said(gateway, 1)
        await gateway.deliver(called(), negotiation="alice~job-2")
        await asyncio.sleep(0.03)
        await gateway.deliver(closed("cancelled"), negotiation="alice~job-2")
        await asyncio.sleep(0.5)
        await said(gateway, 1)


async def test_a_contractor_that_bids_in_no_auction_refuses_and_one_for_auctions_alone_refuses_the_rest() -> None:
    bob = buyer(None)
    async with FakeGateway() as gateway, Agent(bob, gateways=gateway.url, token="t"):
        await gateway.deliver(cfp())
        assert await said(gateway, 1) == [{"act": "refuse", "reason": "bids in auctions only"}]
        bob._on_call, bob._on_auction = untyped(bob._on_auction), None
        await gateway.deliver(called(), negotiation="alice~job-2")
        assert (await said(gateway, 2))[1] == {"act": "refuse", "reason": "bids in no auction"}


def untyped(value: Any) -> Any:
    """A value whose type nobody checks."""
    return value


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"price": 1}, "`on_auction` returned dict; return `Bidder(limit=...)` or `call.refuse(...)`"),
        (Bidder(limit=untyped("9")), "`on_auction` returned Bidder: /limit: expected an integer"),
        (
            Bidder(limit=2**60),
            "`on_auction` returned Bidder: /limit: an integer beyond 9007199254740991 (2**53 - 1) cannot be sent",
        ),
    ],
)
async def test_what_is_no_bidder_is_logged_and_the_call_refused(
    answer: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeGateway() as gateway, Agent(buyer(answer), gateways=gateway.url, token="t"):
        await gateway.deliver(called())
        assert await said(gateway, 1) == [{"act": "refuse", "reason": "internal", "round": 1}]
        assert logged(caplog) == [f"bob: in alice~job-1: {why}"]


def test_the_call_of_the_rules_page_is_written_as_it_stands_there() -> None:
    page = (
        '{"direction":"ascending","start":40000000,"step":1000000,"quiet_ms":5000,'
        '"extend":{"ms":2000,"latest_within_ms":60000},"reserve":55000000}'
    )
    document = json.loads(page)
    assert encode(decode(Auction, document)) == document
