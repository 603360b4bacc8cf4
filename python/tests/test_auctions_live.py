"""English auctions on the exchange itself: who wins, and at what price, as a model of twenty lines says."""

import asyncio
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

import pytest

from llmx import (
    Agent,
    Auction,
    Awarded,
    Bidder,
    CallEvent,
    Closing,
    Contractor,
    IncomingCall,
    Inform,
    Initiator,
    InvalidMessageError,
    Job,
    Receipt,
    Rejection,
    Report,
    StandingBid,
)
from llmx.english_auction import is_rising, next_price, reaches

from .exchange import ROOT, Exchange
from .test_live import until_present

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

UNIT = 1_000_000
ATTEMPTS_MAX = 3
"""A sniper has 100 ms: an auction in which a bid was late is played again."""
RISING = Auction(direction="ascending", start=40 * UNIT, step=UNIT, quiet_ms=400)
FALLING = Auction(direction="descending", start=90 * UNIT, step_permille=25, quiet_ms=400)


@dataclass(frozen=True)
class Case:
    """An auction, and who bids in it."""

    auction: Auction
    bidders: tuple[Bidder, ...]
    reason: str = "window"


def truthful(*limits: int) -> tuple[Bidder, ...]:
    """Bidders with these limits, in whole units."""
    return tuple(Bidder(limit=limit * UNIT) for limit in limits)


def sniper(limit: int) -> Bidder:
    """A sniper with this limit, in whole units."""
    return Bidder(limit=limit * UNIT, strategy="sniper")


def jump(limit: int) -> Bidder:
    """A bidder that jumps, with this limit, in whole units."""
    return Bidder(limit=limit * UNIT, strategy="jump")


CASES = {
    "two": Case(RISING, truthful(60, 50)),
    "five": Case(RISING, truthful(44, 71, 60, 52, 39)),
    "one can bid": Case(RISING, truthful(39, 70, 20), "all_responded"),
    "nobody can bid": Case(RISING, truthful(39, 20)),
    "reserve met": Case(
        Auction(direction="ascending", start=0, step=UNIT, quiet_ms=400, reserve=19 * UNIT), truthful(22, 21)
    ),
    "reserve not met": Case(
        Auction(direction="ascending", start=40 * UNIT, step=UNIT, quiet_ms=400, reserve=90 * UNIT), truthful(60, 50)
    ),
    "falling": Case(FALLING, truthful(50, 65, 80)),
    "falling, reserve not met": Case(
        Auction(direction="descending", start=90 * UNIT, step=UNIT, quiet_ms=400, reserve=30 * UNIT), truthful(50, 65)
    ),
    "jump": Case(RISING, (*truthful(52, 58), jump(70))),
    "falling, jump": Case(FALLING, (jump(30), *truthful(55))),
    "sniper": Case(RISING, (*truthful(45), sniper(50))),
    "falling, sniper": Case(FALLING, (*truthful(82), sniper(80))),
}


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    with Exchange(tmp_path_factory.mktemp("auctions")) as running:
        yield running


def model(case: Case) -> tuple[str, int | None, Collection[int]]:
    """How it ends, which bidder wins, and the prices it may win at.

    Whoever is best wins where the second best has no answer: at the last price that this one bids, or a step beyond it,
    according to who of the two bid first. Who jumps may win at any price from there to its limit.
    """
    rules, better = case.auction, -1 if is_rising(case.auction) else 1
    ranked = sorted(range(len(case.bidders)), key=lambda one: better * case.bidders[one].limit)
    best, second = (case.bidders[one].limit for one in ranked[:2])
    if not reaches(rules, best, rules.start):
        return "no_offers", None, ()
    last, price = rules.start, next_price(rules, None)
    while price is not None and reaches(rules, second, price):
        last, price = price, next_price(rules, price)
    prices: Collection[int] = {last, price} if price is not None and reaches(rules, second, rules.start) else {last}
    if any(one.strategy == "jump" for one in case.bidders):
        prices = range(min(last, best), max(last, best) + 1)
    if rules.reserve is not None and not any(reaches(rules, one, rules.reserve) for one in prices):
        return "reserve_not_met", None, prices
    return "completed", ranked[0], prices


@dataclass
class Played:
    """What happened in one auction."""

    events: list[CallEvent] = field(default_factory=list)
    bought: list[Job] = field(default_factory=list)
    is_late: bool = False
    """Whether a bid came behind the end: this machine was too slow for it."""


@pytest.mark.parametrize("name", CASES)
async def test_an_auction_ends_as_the_model_says(exchange: Exchange, name: str) -> None:
    case, prefix = CASES[name], name.replace(", ", "-").replace(" ", "-")
    names = [f"{prefix}-{number}" for number in range(len(case.bidders))]
    for _ in range(ATTEMPTS_MAX):
        played = await play(exchange, case, names)
        if not played.is_late:
            break
    outcome, winner, prices = model(case)
    events, rules = played.events, case.auction
    bids = [one for one in events if isinstance(one, StandingBid)]
    assert isinstance(events[0], Receipt)
    assert isinstance(events[-1], Closing)
    assert events[-1].outcome == outcome
    assert [one.bid_no for one in bids] == list(range(1, len(bids) + 1)), "in order, as nothing is repeated here"
    assert all(bid.next_price == next_price(rules, bid.price) and not bid.leads for bid in bids)
    bounds = [rules.start, *(bid.next_price for bid in bids)]
    assert all(bound is not None and reaches(rules, bid.price, bound) for bid, bound in zip(bids, bounds, strict=False))
    assert bool(bids) == bool(prices)
    assert all(bid.price in prices for bid in bids[-1:]), f"{bids[-1].price}, in the model {prices}"
    awarded = [(one.contractor, one.terms, one.score, one.reason) for one in events if isinstance(one, Awarded)]
    reports = [(one.contractor, one.kind) for one in events if isinstance(one, Report) and one.kind == "done"]
    if winner is None:
        assert (awarded, reports, played.bought) == ([], [], [])
    else:
        assert awarded == [(names[winner], {"price": bids[-1].price, "lot": "tiles"}, len(bids), case.reason)]
        assert reports == [(names[winner], "done")]
        assert [job.terms for job in played.bought] == [awarded[0][1]]


async def play(exchange: Exchange, case: Case, names: list[str]) -> Played:
    """One auction from its call to its end."""
    played = Played()
    async with AsyncExitStack() as agents:
        ann = await agents.enter_async_context(Initiator("ann", gateways=exchange.urls, token=exchange.token("ann")))
        for agent, bidder in zip(names, case.bidders, strict=True):
            contractor = buyer(agent, bidder, played)
            await agents.enter_async_context(Agent(contractor, gateways=exchange.urls, token=exchange.token(agent)))
        for agent in names:
            await until_present(ann, agent)
        to = [f"agent://{agent}" for agent in names]
        call = await ann.call(*to, task="tiles", reply_within_ms=10_000, currency="EUR", auction=case.auction)
        async with asyncio.timeout(30):
            played.events = [event async for event in call]
    return played


def buyer(name: str, bidder: Bidder, played: Played) -> Contractor:
    """A contractor that bids, and writes down what it got."""
    contractor = Contractor(name)

    @contractor.on_auction
    async def bid(call: IncomingCall) -> Bidder:
        return replace(bidder, terms={"lot": "tiles"})

    @contractor.on_reject
    async def note(negotiation: str, rejection: Rejection) -> None:
        played.is_late |= rejection.reason == "late"

    @contractor.on_commit
    async def pay(job: Job) -> Inform:
        played.bought.append(job)
        return job.done("paid")

    return contractor


async def test_an_auction_that_cannot_be_followed_is_refused_with_its_place(exchange: Exchange) -> None:
    async with Initiator("ann", gateways=exchange.urls, token=exchange.token("ann")) as ann:
        for auction, pointer in (
            (Auction(direction="ascending", start=1), "/payload/auction"),
            (Auction(direction="ascending", start=-1, step=1), "/payload/auction/start"),
        ):
            with pytest.raises(InvalidMessageError) as refused:
                await ann.call("agent://bob", auction=auction)
            assert (refused.value.pointer or "").startswith(pointer)


async def test_the_examples_auction_one_lot_and_buy_it_within_their_limits(exchange: Exchange) -> None:
    running = [start(exchange, agent, limit) for agent, limit in (("eve", "60"), ("fay", "57"))]
    async with Initiator("ann", gateways=exchange.urls, token=exchange.token("ann")) as ann:
        for agent in ("eve", "fay"):
            await until_present(ann, agent)
    for reserve, outcome in (("55", "completed"), ("61", "reserve_not_met")):
        seller = start(exchange, "sal", reserve, "eve", "fay")
        printed, _ = await asyncio.to_thread(seller.communicate, timeout=60)
        is_sold = outcome == "completed"
        assert seller.returncode == (0 if is_sold else 1), printed
        assert printed.endswith(f"closed: {outcome}\n")
        assert ("award 1 to eve: " in printed) == is_sold
    for process in running:
        process.terminate()
        printed, _ = await asyncio.to_thread(process.communicate, timeout=15)
        assert process.returncode == 0, printed


def start(exchange: Exchange, agent: str, *arguments: str) -> "subprocess.Popen[str]":
    """The example `bidder.py`."""
    example = str(ROOT / "examples" / "python" / "bidder.py")
    command = [sys.executable, "-u", example, exchange.urls[0], agent, exchange.token(agent), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
