"""How a contractor bids in an English auction (docs/spec/english-auction.md). Prices are integers in micro-units.

| strategy | what it bids, while it does not lead and the next price is within its limit |
|---|---|
| `truthful` | the next price: dominant where each bidder knows what the lot is worth to it |
| `jump` | the price halfway from the next one to its limit, rounded down |
| `sniper` | the next price, 100 ms before bidding would end |
"""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from llmx.acts import Offer
from llmx.codec import INTEGER_MAX
from llmx.deliveries import Call, StandingBid
from llmx.documents import AuctionRules, Terms

PRICE = "price"
"""The term that is bid."""

SNIPE_MS = 100
"""How long before bidding would end a sniper bids."""


def next_price(rules: AuctionRules, standing: int | None) -> int | None:
    """The price that a bid must reach now; None where no price from 0 to 2^53 - 1 does. `standing` is the standing price."""
    if standing is None:
        price = rules.start
    else:
        step = rules.step if rules.step is not None else (standing * (rules.step_permille or 0) + 999) // 1000
        price = standing + max(step, 1) if is_rising(rules) else standing - max(step, 1)
    return price if 0 <= price <= INTEGER_MAX else None


def reaches(rules: AuctionRules, price: int, bound: int) -> bool:
    """Whether a price is at least as good, for the initiator, as a bound."""
    return price >= bound if is_rising(rules) else price <= bound


def is_rising(rules: AuctionRules) -> bool:
    """Whether the initiator sells."""
    return rules.direction == "ascending"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bidder:
    """How a contractor bids in one auction."""

    limit: int
    """What the lot is worth to it where prices rise, what the work costs it where they fall."""
    strategy: Literal["truthful", "jump", "sniper"] = "truthful"
    terms: Terms = field(default_factory=dict)
    """What a bid offers besides its price."""
    delay_ms: int = 0
    """How long it waits before a bid; a sniper has its own time."""

    def price(self, rules: AuctionRules, standing: StandingBid | None) -> int | None:
        """What to bid now; None for who leads, or where the next price is beyond the limit."""
        if standing is not None and standing.leads:
            return None
        price = next_price(rules, standing.price if standing is not None else None)
        if price is None or not reaches(rules, self.limit, price):
            return None
        return max((price + self.limit) // 2, 0) if self.strategy == "jump" else price

    def wait_ms(self, rules: AuctionRules, standing: StandingBid | None, now: datetime, ends_at: datetime) -> int:
        """How long to wait before the bid. `ends_at` is when bidding ends, unless it ends for quiet before."""
        if self.strategy != "sniper":
            return self.delay_ms
        if standing is not None and rules.quiet_ms is not None:
            ends_at = min(ends_at, now + timedelta(milliseconds=rules.quiet_ms))
        return max((ends_at - now) // timedelta(milliseconds=1) - SNIPE_MS, 0)


@dataclass(slots=True)
class Bidding:
    """One auction that a contractor takes part in."""

    bidder: Bidder | None = None
    standing: StandingBid | None = None
    """The latest that it knows of."""
    timer: asyncio.TimerHandle | None = None
    """Of the bid that it is about to make."""

    def hear(self, standing: StandingBid) -> bool:
        """Takes note of a standing bid; whether it is news."""
        is_news = self.standing is None or standing.bid_no > self.standing.bid_no
        if is_news:
            self.standing = standing
        return is_news

    def next_bid(self, call: Call, now: datetime) -> tuple[Offer, float] | None:
        """What to bid, and in how many seconds; None: nothing. A bid stands to the end, and without conditions."""
        assert call.auction is not None
        assert self.bidder is not None
        bidder, rules, standing = self.bidder, call.auction.rules, self.standing
        price = bidder.price(rules, standing)
        if price is None:
            return None
        wait_ms = bidder.wait_ms(rules, standing, now, call.reply_by if standing is None else standing.reply_by)
        return Offer(terms={**bidder.terms, PRICE: price}, currency=call.currency, round=call.round), wait_ms / 1000

    def unschedule(self) -> None:
        """Bids nothing any more: what it was about to bid is beaten, or the auction over."""
        if self.timer is not None:
            self.timer.cancel()
