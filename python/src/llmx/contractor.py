"""A contractor: takes calls, makes offers, confirms what it wins, works, reports.

| it receives | it does |
|---|---|
| a call | what `on_call` returns: `Offer`, `Refuse`, or nothing |
| a call to a bargain | `Refuse`: `Bargainer` bargains |
| a call to an auction | bids as `on_auction` says; `Refuse` without one, or where the first price is beyond its limit |
| a standing bid | bids again, unless it leads or the next price is beyond its limit |
| a call to a team, what a panel asks | `Refuse`, by `Agent` |
| an award of terms it offered | what `on_award` returns; without one, `Confirm` |
| an award of anything else | `Refuse`: it commits to nothing it does not know |
| `committed` | what `on_commit` returns when the work has ended: `Inform` or `Failure` |
| `cancel` by the initiator | what `on_cancel` returns; without one the work is stopped, and `Inform` says so |
| `reject` | what `on_reject` does; one that says that the offer could not win is logged, once per reason |
| `not_understood` | it is logged, once per reason |
| `reject` at the end, `closed`, `cancel` for another reason | the work is stopped, and the negotiation forgotten |

A handler that raises, or returns what cannot be sent, is logged, and the other side is told by `Refuse` or `Failure`, so
that nobody waits.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import NoneType
from typing import Any, TypeVar

from llmx.acts import Act, Confirm, Failure, Inform, Offer, Refuse
from llmx.agent import Agent
from llmx.codec import encode, texts
from llmx.deliveries import (
    Award,
    Call,
    Cancellation,
    Closing,
    Delivery,
    Misunderstanding,
    Receipt,
    Rejection,
    StandingBid,
)
from llmx.documents import EVERYBODY, Attribute, Consent, Registration, Terms
from llmx.english_auction import Bidder, Bidding
from llmx.errors import LlmxError, OverloadedError
from llmx.handlers import Returns, run_notified
from llmx.limits import Limits

logger = logging.getLogger("llmx")

CANCELLED_BY_INITIATOR = "cancelled"
"""The reason of the only cancellation that awaits an answer."""

GRACE_S = 60.0
"""How long after a negotiation must have ended its last deliveries are awaited."""

ENDED_BY = frozenset({"outscored", "late", "expired", "cancelled", "awarded", "withdrawn"})
"""Reasons of rejections after which nothing comes."""

COULD_NOT_WIN = frozenset({"policy", "late"})
"""Reasons of rejections of which the offer itself is the cause."""

OVERTAKEN = "price.step"
"""Code of a bid that another one came before: no fault, and it bids again when it is told of that one."""

EARLY_MAX = 1024
"""Standing bids kept for calls that have not come: what agents that lost a connection have open, and more."""

REASONS_MAX = 64
"""Reasons that are logged once. The attributes in them are other agents' words, of which there is no end."""

ON_CALL = Returns("`on_call`", (Offer, Refuse, NoneType), "return `call.offer(...)`, `call.refuse(...)` or None")
ON_AUCTION = Returns("`on_auction`", (Bidder, Refuse), "return `Bidder(limit=...)` or `call.refuse(...)`")
ON_AWARD = Returns("`on_award`", (Confirm, Refuse), "return `award.confirm()` or `award.refuse(...)`")
ON_COMMIT = Returns("`on_commit`", (Inform, Failure), "return `job.done(...)` or `job.failed(...)`")
ON_CANCEL = Returns(
    "`on_cancel`",
    (Inform, Failure),
    'return `Inform(kind="cancelled")`, `job.done(...)` or `Failure(phase="cannot_cancel", code=...)`',
)


@dataclass(frozen=True, slots=True)
class IncomingCall:
    """A call, and what may be answered."""

    negotiation: str
    initiator: str
    document: Call

    @property
    def task(self) -> str | None:
        """What is wanted, in words."""
        return self.document.task

    @property
    def constraints(self) -> Terms:
        """What offers should respect."""
        return self.document.constraints or {}

    @property
    def reply_by(self) -> datetime:
        """Collection ends then."""
        return self.document.reply_by

    def offer(self, terms: Terms, *, valid_for_ms: int | None = None) -> Offer:
        """An offer in this round, in the currency of the call."""
        document = self.document
        return Offer(terms=terms, currency=document.currency, valid_for_ms=valid_for_ms, round=document.round)

    def refuse(self, reason: str | None = None) -> Refuse:
        """Declines the call."""
        return Refuse(reason=reason, round=self.document.round)


@dataclass(frozen=True, slots=True)
class IncomingAward:
    """An award of terms that were offered, and what may be answered."""

    negotiation: str
    initiator: str
    document: Award

    @property
    def terms(self) -> Terms:
        """The accepted terms."""
        return self.document.terms

    def confirm(self) -> Confirm:
        """Commits, from the receipt `committed` on."""
        return Confirm(award_no=self.document.award_no, terms_digest=self.document.terms_digest)

    def refuse(self, reason: str | None = None) -> Refuse:
        """Declines the award."""
        return Refuse(reason=reason)


@dataclass(frozen=True, slots=True)
class Job:
    """A binding award: the work may begin."""

    negotiation: str
    initiator: str
    call: Call
    award: Award

    @property
    def terms(self) -> Terms:
        """What was agreed."""
        return self.award.terms

    def done(self, result: str | None = None) -> Inform:
        """The work is done."""
        return Inform(kind="done", result=result)

    def failed(self, code: str, *, retryable: bool = False) -> Failure:
        """The work cannot be done."""
        return Failure(phase="perform", code=code, retryable=retryable)


CallHandler = Callable[[IncomingCall], Awaitable[Offer | Refuse | None]]
AuctionHandler = Callable[[IncomingCall], Awaitable[Bidder | Refuse]]
AwardHandler = Callable[[IncomingAward], Awaitable[Confirm | Refuse]]
CommitHandler = Callable[[Job], Awaitable[Inform | Failure]]
CancelHandler = Callable[[Job], Awaitable[Inform | Failure]]
RejectHandler = Callable[[str, Rejection], Awaitable[None]]
CloseHandler = Callable[[str, Closing], Awaitable[None]]

AnyCallHandler = TypeVar("AnyCallHandler", bound=CallHandler)
AnyAuctionHandler = TypeVar("AnyAuctionHandler", bound=AuctionHandler)
AnyAwardHandler = TypeVar("AnyAwardHandler", bound=AwardHandler)
AnyCommitHandler = TypeVar("AnyCommitHandler", bound=CommitHandler)
AnyCancelHandler = TypeVar("AnyCancelHandler", bound=CancelHandler)
AnyRejectHandler = TypeVar("AnyRejectHandler", bound=RejectHandler)
AnyCloseHandler = TypeVar("AnyCloseHandler", bound=CloseHandler)


@dataclass(slots=True)
class Engagement:
    """One negotiation the contractor takes part in."""

    initiator: str
    call: Call
    offered: list[dict[str, Attribute]] = field(default_factory=list)
    award: Award | None = None
    """The one it has answered."""
    is_committed: bool = False
    work: "asyncio.Task[Any] | None" = None
    expiry: asyncio.TimerHandle | None = None
    bidding: Bidding = field(default_factory=Bidding)


class Contractor:
    """See the module."""

    def __init__(
        self,
        name: str,
        *,
        topics: Sequence[str] = (),
        capabilities: Sequence[str] = (),
        consent: Consent = EVERYBODY,
        registration: Registration | None = None,
        limits: Limits | None = None,
    ) -> None:
        """`registration` instead of topics, capabilities and consent says everything at once."""
        self.name = name
        self.limits = limits or Limits()
        what = texts("topics", topics), texts("capabilities", capabilities)
        named = Registration(topics=what[0], capabilities=what[1], consent=consent)
        self.registration: Registration | None = registration or named
        self._agent: Agent | None = None
        self._engagements: dict[str, Engagement] = {}
        self._early: dict[str, StandingBid] = {}
        """Standing bids that overtook their calls, the oldest first."""
        self._on_call: CallHandler | None = None
        self._on_auction: AuctionHandler | None = None
        self._on_award: AwardHandler | None = None
        self._on_commit: CommitHandler | None = None
        self._on_cancel: CancelHandler | None = None
        self._on_reject: RejectHandler | None = None
        self._on_close: CloseHandler | None = None
        self._reasons: set[str] = set()
        """Those that were logged."""

    def on_call(self, handler: AnyCallHandler) -> AnyCallHandler:
        """What a call is answered with. A later round is a call of its own."""
        self._on_call = handler
        return handler

    def on_auction(self, handler: AnyAuctionHandler) -> AnyAuctionHandler:
        """How it bids in an auction it is called to. Who only bids in auctions needs no `on_call`."""
        self._on_auction = handler
        return handler

    def on_award(self, handler: AnyAwardHandler) -> AnyAwardHandler:
        """What an award of terms that were offered is answered with."""
        self._on_award = handler
        return handler

    def on_commit(self, handler: AnyCommitHandler) -> AnyCommitHandler:
        """The work. It is cancelled when the award is taken back."""
        self._on_commit = handler
        return handler

    def on_cancel(self, handler: AnyCancelHandler) -> AnyCancelHandler:
        """What a cancellation by the initiator is answered with; the work has been stopped before."""
        self._on_cancel = handler
        return handler

    def on_reject(self, handler: AnyRejectHandler) -> AnyRejectHandler:
        """What is done when an offer is out of the running: `reason` says why, and for `policy` `code` what it lacks."""
        self._on_reject = handler
        return handler

    def on_close(self, handler: AnyCloseHandler) -> AnyCloseHandler:
        """What is done when a negotiation has ended."""
        self._on_close = handler
        return handler

    @property
    def open_count(self) -> int:
        """Negotiations it takes part in."""
        return len(self._engagements)

    def attach(self, agent: Agent) -> None:
        """The agent starts."""
        handlers = {"`on_call`": self._on_call or self._on_auction, "`on_commit`": self._on_commit}
        missing = [name for name, handler in handlers.items() if handler is None]
        if missing:
            raise TypeError(
                f"contractor {self.name}: {' and '.join(missing)} {'have' if missing[1:] else 'has'} no handler"
            )
        self._agent = agent

    def handle(self, delivery: Delivery) -> Coroutine[Any, Any, None] | None:
        """A delivery that has not come before."""
        match delivery.payload:
            case Call() as call:
                return self._handle_call(delivery, call)
            case Award() as award:
                return self._handle_award(delivery, award)
            case Receipt() as receipt:
                return self._handle_receipt(delivery, receipt)
            case StandingBid() as standing:
                self._handle_standing(delivery, standing)
            case Cancellation() as cancellation:
                return self._handle_cancel(delivery, cancellation)
            case Rejection() as rejection:
                return self._handle_rejection(delivery.negotiation, rejection)
            case Misunderstanding() as why:
                self._warn_once(delivery.negotiation, "what it said is not understood", why.reason, why.pointer)
            case Closing() as closing:
                self._forget(delivery.negotiation)
                return run_notified("`on_close`", self.name, delivery.negotiation, self._on_close, closing)
            case _:
                pass
        return None

    def _handle_rejection(self, negotiation: str, rejection: Rejection) -> Coroutine[Any, Any, None] | None:
        engagement = self._engagements.get(negotiation)
        if rejection.reason in COULD_NOT_WIN and rejection.code != OVERTAKEN:
            self._warn_once(negotiation, "its offer could not win", rejection.reason, rejection.code)
        # A revision that came too late: the offer before it may stand.
        is_revision = rejection.reason == "late" and engagement is not None and len(engagement.offered) > 1
        if rejection.reason in ENDED_BY and not is_revision:
            self._forget(negotiation)
        return run_notified("`on_reject`", self.name, negotiation, self._on_reject, rejection)

    def _warn_once(self, negotiation: str, what: str, reason: str, detail: str | None) -> None:
        why = f"{what}: {reason}{f' ({detail})' if detail else ''}"
        if why not in self._reasons and len(self._reasons) < REASONS_MAX:
            self._reasons.add(why)
            logger.warning("%s: in %s %s; further ones for this reason are not logged", self.name, negotiation, why)

    async def stop(self) -> None:
        """Lets the work that is begun end; what does not end in time is reported as failed."""
        working = [one.work for one in self._engagements.values() if one.work is not None]
        if working:
            await asyncio.wait(working, timeout=self.limits.end_s / 2)
        for negotiation, engagement in list(self._engagements.items()):
            work = engagement.work
            engagement.bidding.unschedule()
            if work is not None and not work.done():
                work.cancel()
                if engagement.is_committed:
                    self._post(negotiation, Failure(phase="perform", code="stopped", retryable=True))

    # Calls

    def _handle_call(self, delivery: Delivery, call: Call) -> Coroutine[Any, Any, None] | None:
        negotiation = delivery.negotiation
        if call.bargain is not None:
            self._reply(delivery, Refuse(reason="does not bargain"))
            return None
        if (self._on_call if call.auction is None else self._on_auction) is None:
            self._reply(delivery, Refuse(reason=f"bids in {'no auction' if call.auction else 'auctions only'}"))
            return None
        if self._agent is not None and call.reply_by < self._agent.log_time():
            return None
        engagement = self._engagements.get(negotiation)
        if engagement is None:
            if len(self._engagements) >= self.limits.engagements_max:
                self._reply(delivery, Refuse(reason="busy", round=call.round))
                return None
            engagement = Engagement(initiator=delivery.envelope.sender, call=call)
            self._engagements[negotiation] = engagement
        engagement.call = call
        engagement.bidding.standing = self._early.pop(negotiation, engagement.bidding.standing)
        self._expire_at(negotiation, engagement, call.ends_by)
        return self._answer_call(delivery, engagement, call)

    async def _answer_call(self, delivery: Delivery, engagement: Engagement, call: Call) -> None:
        negotiation = delivery.negotiation
        if self._engagements.get(negotiation) is not engagement:
            return  # Over before it began.
        engagement.work = asyncio.current_task()
        returns, handler = (ON_CALL, self._on_call) if call.auction is None else (ON_AUCTION, self._on_auction)
        assert handler is not None
        incoming = IncomingCall(negotiation, engagement.initiator, call)
        internal = Refuse(reason="internal", round=call.round)
        try:
            answer = await returns.answer(self.name, negotiation, handler, incoming, internal)
        finally:
            engagement.work = None
        if self._engagements.get(negotiation) is not engagement:
            return
        if isinstance(answer, Bidder):
            engagement.bidding.bidder = answer
            self._bid(delivery, engagement)
            return
        if isinstance(answer, Offer):
            engagement.offered.append(encode(answer.terms))
            if answer.round is None:
                answer = replace(answer, round=call.round)
        elif not engagement.offered:
            self._forget(negotiation)
        if answer is not None:
            self._reply(delivery, answer)

    # Auctions

    def _handle_standing(self, delivery: Delivery, standing: StandingBid) -> None:
        engagement = self._engagements.get(delivery.negotiation)
        if engagement is None:
            known = self._early.pop(delivery.negotiation, standing)
            self._early[delivery.negotiation] = max(known, standing, key=lambda one: one.bid_no)
            if len(self._early) > EARLY_MAX:
                self._early.pop(next(iter(self._early)))
        elif engagement.bidding.hear(standing) and engagement.bidding.bidder is not None and engagement.award is None:
            self._bid(delivery, engagement)

    def _bid(self, delivery: Delivery, engagement: Engagement) -> None:
        bidding, call = engagement.bidding, engagement.call
        bidding.unschedule()
        if self._agent is None:
            return
        next_bid = bidding.next_bid(call, self._agent.log_time())
        if next_bid is not None:
            offer, wait_s = next_bid
            bidding.timer = asyncio.get_running_loop().call_later(wait_s, self._offer, delivery, engagement, offer)
        elif not engagement.offered:  # Whoever has bid stays: its bid may still be awarded.
            self._forget(delivery.negotiation)
            self._reply(delivery, Refuse(reason="beyond its limit", round=call.round))

    def _offer(self, delivery: Delivery, engagement: Engagement, offer: Offer) -> None:
        engagement.offered.append(encode(offer.terms))
        self._reply(delivery, offer)

    # Awards

    def _handle_award(self, delivery: Delivery, award: Award) -> Coroutine[Any, Any, None] | None:
        engagement = self._engagements.get(delivery.negotiation)
        if engagement is None or dict(award.terms) not in engagement.offered:
            self._reply(delivery, Refuse(reason="no such offer"))
            return None
        if engagement.award is not None and engagement.award.award_no >= award.award_no:
            return None  # It is answered, and the answer repeated until it is in the log.
        engagement.award = award
        engagement.bidding.unschedule()
        return self._answer_award(delivery, engagement, award)

    async def _answer_award(self, delivery: Delivery, engagement: Engagement, award: Award) -> None:
        offered = IncomingAward(delivery.negotiation, engagement.initiator, award)
        answer: Confirm | Refuse = offered.confirm()
        if self._on_award is not None:
            internal = Refuse(reason="internal")
            answer = await ON_AWARD.answer(self.name, delivery.negotiation, self._on_award, offered, internal)
        if self._engagements.get(delivery.negotiation) is not engagement or engagement.award is not award:
            return
        if isinstance(answer, Refuse):
            self._forget(delivery.negotiation)
        self._reply(delivery, answer)

    # Work

    def _handle_receipt(self, delivery: Delivery, receipt: Receipt) -> Coroutine[Any, Any, None] | None:
        engagement = self._engagements.get(delivery.negotiation)
        is_commitment = (receipt.first or receipt.disposition) == "committed"
        if not is_commitment or engagement is None or engagement.award is None or engagement.is_committed:
            return None
        if engagement.award.award_no != receipt.award_no:
            return None
        engagement.is_committed = True
        job = Job(delivery.negotiation, engagement.initiator, engagement.call, engagement.award)
        return self._work(delivery, engagement, job)

    async def _work(self, delivery: Delivery, engagement: Engagement, job: Job) -> None:
        if self._engagements.get(job.negotiation) is not engagement:
            return  # Taken back before it began.
        engagement.work = asyncio.current_task()
        assert self._on_commit is not None
        try:
            report = await ON_COMMIT.answer(self.name, job.negotiation, self._on_commit, job, job.failed("internal"))
        finally:
            engagement.work = None
        if self._engagements.get(job.negotiation) is engagement:
            self._reply(delivery, report)

    def _handle_cancel(self, delivery: Delivery, cancellation: Cancellation) -> Coroutine[Any, Any, None] | None:
        engagement = self._forget(delivery.negotiation)
        if cancellation.reason != CANCELLED_BY_INITIATOR:
            return None
        if self._on_cancel is None or engagement is None or engagement.award is None:
            self._reply(delivery, Inform(kind="cancelled"))
            return None
        job = Job(delivery.negotiation, engagement.initiator, engagement.call, engagement.award)
        return self._answer_cancel(delivery, self._on_cancel, job)

    async def _answer_cancel(self, delivery: Delivery, handler: CancelHandler, job: Job) -> None:
        stopped = Inform(kind="cancelled")
        self._reply(delivery, await ON_CANCEL.answer(self.name, job.negotiation, handler, job, stopped))

    # Engagements

    def _expire_at(self, negotiation: str, engagement: Engagement, ends_by: datetime) -> None:
        if self._agent is None:
            return
        if engagement.expiry is not None:
            engagement.expiry.cancel()
        left_s = (ends_by - self._agent.log_time()).total_seconds() + GRACE_S
        engagement.expiry = asyncio.get_running_loop().call_later(max(left_s, 0.0), self._forget, negotiation)

    def _forget(self, negotiation: str) -> Engagement | None:
        self._early.pop(negotiation, None)
        engagement = self._engagements.pop(negotiation, None)
        if engagement is not None:
            engagement.bidding.unschedule()
            if engagement.expiry is not None:
                engagement.expiry.cancel()
            if engagement.work is not None and engagement.work is not _current_task():
                engagement.work.cancel()
        return engagement

    def _reply(self, delivery: Delivery, act: Act) -> None:
        self._post(delivery.negotiation, act, in_reply_to=delivery.envelope.msg_id)

    def _post(self, negotiation: str, act: Act, in_reply_to: str | None = None) -> None:
        if self._agent is None:
            return
        try:
            self._agent.post(negotiation, act, in_reply_to=in_reply_to)
        except OverloadedError as error:
            logger.error("%s: %s in %s is not sent: %s", self.name, act.act, negotiation, error)
        except LlmxError as error:
            logger.info("%s: %s in %s is not sent: %s", self.name, act.act, negotiation, error)


def _current_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
