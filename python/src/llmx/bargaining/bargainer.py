"""An agent that bargains: called by others, and calling them.

| it receives | it does |
|---|---|
| a call to a bargain | `Join`, or `Refuse`, as `on_invitation` decides; without one it joins without a mandate |
| any other call, what a panel asks | `Refuse` |
| `turn`, and it is its turn | what its strategy returns: `Offer`, `Accept`, `End` |
| `turn` of an earlier step, or of one it has acted in | nothing |
| `not_understood` of its `Join` | `Refuse`, so that nobody waits for it |
| `not_understood` of its move | asks the strategy again, a bounded number of times, then `End` |
| the agreement, to be confirmed | `Confirm` if `on_agreement` does not refuse it |
| `closed` | `on_close`, and forgets the bargain |

A handler that raises, or returns what cannot be sent, is logged, and the others are told by `Refuse` or `End`.
"""

import asyncio
import hashlib
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from llmx.acts import Accept, Act, CallAddress, Cfp, Confirm, End, Join, Offer, Refuse, Scope
from llmx.agent import Agent
from llmx.bargaining.preferences import PPM, holds
from llmx.codec import texts
from llmx.deliveries import (
    Agreement,
    Award,
    Call,
    Closing,
    Delivery,
    Misunderstanding,
    Outcome,
    Receipt,
    Standing,
    Turn,
)
from llmx.documents import EVERYBODY, BargainRules, Consent, Mandate, Registration, Terms
from llmx.errors import EndedError, LlmxError, OverloadedError, RefusedError, TurnedDownError
from llmx.handlers import Returns, run_notified
from llmx.limits import Limits
from llmx.session import Outcome as Sent

logger = logging.getLogger("llmx")

REFUSALS_MAX = 7
"""Moves of one turn that the exchange may refuse before the party ends the bargain: every one is in the log."""

GRACE_S = 60.0
"""How long after a bargain must have ended its end is awaited."""


@dataclass(frozen=True, slots=True)
class MyTurn:
    """A turn as the party whose it is sees it."""

    negotiation: str
    rules: BargainRules
    round: int
    t: float
    """Relative time, 0 to 1: the larger of round / (rounds + 1) and elapsed / deadline."""
    standing: Standing | None
    """The standing offer, where the party can accept it."""
    refused: "Offer | Accept | End | None" = None
    """The move the exchange has refused in this turn."""
    refusal: str | None = None
    """Why."""

    def offer(self, terms: Terms) -> Offer:
        """Offers."""
        return Offer(terms=terms)

    def accept(self) -> Accept:
        """Accepts what stands.

        Raises `ValueError` when nothing does.
        """
        if self.standing is None:
            raise ValueError("no offer stands that can be accepted")
        return Accept(offer_id=self.standing.offer_id, terms_digest=self.standing.terms_digest)

    def end(self, reason: str | None = None) -> End:
        """Leaves, which ends the bargain."""
        return End(reason=reason)


Strategy = Callable[[MyTurn], Awaitable[Offer | Accept | End]]
"""What a party does in its turn. Called again for the same turn when the move was refused."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a party goes into one bargain. The exchange holds it to its mandate, and tells nobody."""

    strategy: Strategy
    mandate: Mandate | None = None
    may_agree: Callable[[Terms], bool] = lambda _: True
    """Whether it confirms an agreement to these terms."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """A call to a bargain."""

    negotiation: str
    initiator: str
    document: Call
    parties: tuple[str, ...]
    rules: BargainRules

    def refuse(self, reason: str | None = None) -> Refuse:
        """Does not take part."""
        return Refuse(reason=reason)


@dataclass(frozen=True, slots=True)
class BargainResult:
    """How a bargain ended."""

    negotiation: str
    outcome: Outcome
    agreement: Agreement | None
    detail: str | None


@dataclass(slots=True, eq=False)
class Bargain:
    """One party's side of one bargain that is open."""

    negotiation: str
    rules: BargainRules
    plan: Plan
    ended: "asyncio.Future[BargainResult]"
    turn: Turn | None = None
    move: Offer | Accept | End | None = None
    """What it has done in its latest turn."""
    moved_at: int = -1
    """The step of that turn."""
    refusals: int = 0
    unacceptable: str | None = None
    """A standing offer that it tried in vain to accept."""
    thinking: "asyncio.Task[Any] | None" = None
    expiry: asyncio.TimerHandle | None = field(default=None, repr=False)

    async def end(self) -> BargainResult:
        """Waits for the end.

        Raises `RefusedError` or `TurnedDownError` when the call was not opened, `EndedError` when the agent ends before.
        """
        return await asyncio.shield(self.ended)


ON_INVITATION = Returns(
    "`on_invitation`",
    (Plan, Refuse),
    "return `Plan(...)` or `invitation.refuse(...)`",
    lambda answer: Join(mandate=answer.mandate) if isinstance(answer, Plan) else answer,
)
STRATEGY = Returns("the strategy", (Offer, Accept, End), "return `turn.offer(...)`, `turn.accept()` or `turn.end()`")
MAY_AGREE = Returns("`may_agree`", (bool,), "return True or False", lambda _: None)
"""What an `async` function returns is true, whatever it would have said."""

InvitationHandler = Callable[[Invitation], Awaitable[Plan | Refuse]]
CloseHandler = Callable[[BargainResult], Awaitable[None]]
AnyInvitationHandler = TypeVar("AnyInvitationHandler", bound=InvitationHandler)
AnyTurnHandler = TypeVar("AnyTurnHandler", bound=Strategy)
AnyCloseHandler = TypeVar("AnyCloseHandler", bound=CloseHandler)


class Bargainer:
    """See the module."""

    def __init__(
        self,
        name: str,
        *,
        topics: Sequence[str] = (),
        consent: Consent = EVERYBODY,
        registration: Registration | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.name = name
        self.limits = limits or Limits()
        named = Registration(topics=texts("topics", topics), consent=consent)
        self.registration: Registration | None = registration or named
        self._agent: Agent | None = None
        self._bargains: dict[str, Bargain] = {}
        self._on_invitation: InvitationHandler | None = None
        self._on_turn: Strategy | None = None
        self._on_close: CloseHandler | None = None

    def on_invitation(self, handler: AnyInvitationHandler) -> AnyInvitationHandler:
        """Whether it takes part in a bargain, and how."""
        self._on_invitation = handler
        return handler

    def on_turn(self, handler: AnyTurnHandler) -> AnyTurnHandler:
        """What it does in its turn, in bargains for which no plan says otherwise."""
        self._on_turn = handler
        return handler

    def on_close(self, handler: AnyCloseHandler) -> AnyCloseHandler:
        """What is done when a bargain has ended."""
        self._on_close = handler
        return handler

    @property
    def open_count(self) -> int:
        """Bargains it takes part in."""
        return len(self._bargains)

    async def open(
        self,
        *to: str,
        rules: BargainRules,
        plan: Plan | None = None,
        task: str | None = None,
        currency: str | None = None,
        reply_within_ms: int | None = None,
        own_id: str | None = None,
    ) -> Bargain:
        """Calls others to a bargain, in which it has the first turn, and returns when the call is in the log.

        Raises `RefusedError` and what else `Agent.send` raises.
        """
        if self._agent is None:
            raise EndedError("the agent does not run")
        if len(self._bargains) >= self.limits.engagements_max:
            raise OverloadedError(f"{self.limits.engagements_max} bargains are open (limits.engagements_max)")
        plan = plan or self._default_plan()
        cfp = Cfp(task=task, currency=currency, reply_within_ms=reply_within_ms, bargain=rules, mandate=plan.mandate)
        negotiation = f"{self.name}~{own_id or secrets.token_hex(12)}"
        bargain = self._begin(negotiation, rules, plan)
        try:
            await self._agent.send(negotiation, cfp, address=CallAddress(to=to, scope=Scope()))
        except (LlmxError, TypeError):
            self._bargains.pop(negotiation, None)
            raise
        return bargain

    def attach(self, agent: Agent) -> None:
        """The agent starts."""
        self._agent = agent

    def handle(self, delivery: Delivery) -> Coroutine[Any, Any, None] | None:
        """A delivery that has not come before."""
        bargain = self._bargains.get(delivery.negotiation)
        match delivery.payload:
            case Call() as call:
                return self._handle_call(delivery, call)
            case Turn() as turn if bargain is not None:
                return self._handle_turn(bargain, turn)
            case Misunderstanding() as why if bargain is not None:
                return self._handle_refusal(bargain, why.reason)
            case Receipt() as receipt if bargain is not None:
                self._handle_receipt(bargain, receipt)
            case Award() as award:
                return self._handle_agreement(delivery, bargain, award)
            case Closing() as closing if bargain is not None:
                return self._handle_closing(bargain, closing)
            case _:
                pass
        return None

    async def stop(self) -> None:
        """Leaves its bargains, which ends them: the others need not wait for its turns."""
        for bargain in list(self._bargains.values()):
            if bargain.thinking is not None:
                bargain.thinking.cancel()
            self._post(bargain.negotiation, End(reason="stopped"))
            self._close(bargain, EndedError("the agent has ended"))

    # Joining

    def _default_plan(self) -> Plan:
        if self._on_turn is None:
            raise TypeError(f"bargainer {self.name}: neither a plan nor `on_turn` says what it does in its turn")
        return Plan(self._on_turn)

    async def _join_as_planned(self, _: Invitation) -> Plan | Refuse:
        return self._default_plan()

    def _handle_call(self, delivery: Delivery, call: Call) -> Coroutine[Any, Any, None] | None:
        if call.bargain is None or self.name not in call.bargain.parties:
            self._reply(delivery, Refuse(reason="takes part in bargains only"))
            return None
        if len(self._bargains) >= self.limits.engagements_max:
            self._reply(delivery, Refuse(reason="busy"))
            return None
        sender, document = delivery.envelope.sender, call.bargain
        return self._join(delivery, Invitation(delivery.negotiation, sender, call, document.parties, document.rules))

    async def _join(self, delivery: Delivery, invitation: Invitation) -> None:
        handler, internal = self._on_invitation or self._join_as_planned, invitation.refuse("internal")
        plan = await ON_INVITATION.answer(self.name, delivery.negotiation, handler, invitation, internal)
        if isinstance(plan, Refuse):
            self._reply(delivery, plan)
            return
        bargain = self._begin(delivery.negotiation, invitation.rules, plan)
        if self._agent is not None:
            left_s = (invitation.document.ends_by - self._agent.log_time()).total_seconds() + GRACE_S
            lost = EndedError("its end was never reported")
            bargain.expiry = asyncio.get_running_loop().call_later(max(left_s, 0.0), self._close, bargain, lost)
        self._reply(delivery, Join(mandate=plan.mandate))

    def _begin(self, negotiation: str, rules: BargainRules, plan: Plan) -> Bargain:
        ended: asyncio.Future[BargainResult] = asyncio.get_running_loop().create_future()
        ended.add_done_callback(lambda done: done.cancelled() or done.exception())
        bargain = Bargain(negotiation, rules, plan, ended)
        self._bargains[negotiation] = bargain
        return bargain

    # Turns

    def _handle_turn(self, bargain: Bargain, turn: Turn) -> Coroutine[Any, Any, None] | None:
        if bargain.turn is not None and turn.step < bargain.turn.step:
            return None
        bargain.turn = turn
        if turn.party != self.name or turn.step <= bargain.moved_at:
            return None
        bargain.moved_at = turn.step
        bargain.refusals = 0
        return self._act(bargain, turn, None)

    def _handle_refusal(self, bargain: Bargain, reason: str) -> Coroutine[Any, Any, None] | None:
        turn, move = bargain.turn, bargain.move
        if turn is None or move is None:
            # Its JOIN was refused; who called is told by the receipt.
            if not bargain.negotiation.startswith(f"{self.name}~"):
                self._post(bargain.negotiation, Refuse(reason="cannot join"))
            return None
        if reason == "out_of_turn" or turn.step != bargain.moved_at or isinstance(move, End):
            return None
        bargain.refusals += 1
        if bargain.refusals > REFUSALS_MAX:
            self._move(bargain, turn, End())
            return None
        if isinstance(move, Accept):
            bargain.unacceptable = move.offer_id
        return self._act(bargain, turn, reason)

    async def _act(self, bargain: Bargain, turn: Turn, refusal: str | None) -> None:
        bargain.thinking = asyncio.current_task()
        view = self._view(bargain, turn, refusal)
        internal = End(reason="internal")
        try:
            move = await STRATEGY.answer(self.name, bargain.negotiation, bargain.plan.strategy, view, internal)
        finally:
            bargain.thinking = None
        if self._bargains.get(bargain.negotiation) is bargain and bargain.turn is turn:
            self._move(bargain, turn, move)

    def _move(self, bargain: Bargain, turn: Turn, move: Offer | Accept | End) -> None:
        bargain.move = move

        def settled(outcome: Sent) -> None:
            """A gateway refuses the move itself: as if the exchange had not understood it."""
            if isinstance(outcome, RefusedError) and self._bargains.get(bargain.negotiation) is bargain:
                again = self._handle_refusal(bargain, outcome.code)
                if again is not None:
                    bargain.thinking = asyncio.create_task(again)

        self._post(bargain.negotiation, move, settled)

    def _view(self, bargain: Bargain, turn: Turn, refusal: str | None) -> MyTurn:
        # What the exchange counts is rounded down; what can be counted exactly here is the larger.
        rounds = bargain.rules.rounds
        counted = turn.round / (rounds + 1.0) if rounds else 0.0
        standing = turn.standing if turn.standing is not None and self._can_accept(bargain, turn) else None
        refused = bargain.move if refusal is not None else None
        t = max(turn.t_ppm / PPM, counted)
        return MyTurn(bargain.negotiation, bargain.rules, turn.round, t, standing, refused, refusal)

    def _can_accept(self, bargain: Bargain, turn: Turn) -> bool:
        """As far as a party can tell: how much time has passed it leaves to the exchange."""
        standing = turn.standing
        if standing is None or standing.by == self.name or standing.offer_id == bargain.unacceptable:
            return False
        now = self._agent.log_time() if self._agent is not None else turn.act_by
        is_valid = (standing.valid_from is None or standing.valid_from <= now) and (
            standing.valid_until is None or now < standing.valid_until
        )
        in_round = all(holds(one, turn.round) for one in standing.conditions or () if one.attr == "round")
        return is_valid and in_round and self.name not in (standing.accepted_by or ())

    # Ends

    def _handle_receipt(self, bargain: Bargain, receipt: Receipt) -> None:
        disposition = receipt.first or receipt.disposition
        is_own_call = bargain.negotiation.startswith(f"{self.name}~") and bargain.turn is None
        if is_own_call and disposition not in ("ok", "out_of_turn"):
            self._close(bargain, TurnedDownError(disposition))

    def _handle_agreement(
        self, delivery: Delivery, bargain: Bargain | None, award: Award
    ) -> Coroutine[Any, Any, None] | None:
        canonical = json.dumps(dict(award.terms), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        if bargain is None:
            answer: Act = Refuse(reason="knows of no such bargain")
        elif hashlib.sha256(canonical.encode()).hexdigest() != award.terms_digest:
            answer = Refuse(reason="terms and digest differ")
        else:
            return self._answer_agreement(delivery, bargain, award)
        self._reply(delivery, answer)
        return None

    async def _answer_agreement(self, delivery: Delivery, bargain: Bargain, award: Award) -> None:
        async def may_agree(terms: Terms) -> bool:
            return bargain.plan.may_agree(terms)

        match await MAY_AGREE.answer(self.name, bargain.negotiation, may_agree, award.terms, None):
            case None:
                answer: Act = Refuse(reason="internal")
            case False:
                answer = Refuse(reason="may not agree to these terms")
            case True:
                answer = Confirm(award_no=award.award_no, terms_digest=award.terms_digest)
        self._reply(delivery, answer)

    def _handle_closing(self, bargain: Bargain, closing: Closing) -> Coroutine[Any, Any, None] | None:
        result = BargainResult(bargain.negotiation, closing.outcome, closing.agreement, closing.detail)
        self._close(bargain, result)
        on_close = self._on_close

        async def notify(_: str, ended: BargainResult) -> None:
            if on_close is not None:
                await on_close(ended)

        return run_notified("`on_close`", self.name, bargain.negotiation, notify if on_close else None, result)

    def _close(self, bargain: Bargain, result: BargainResult | LlmxError) -> None:
        self._bargains.pop(bargain.negotiation, None)
        if bargain.expiry is not None:
            bargain.expiry.cancel()
        if bargain.thinking is not None:
            bargain.thinking.cancel()
        if bargain.ended.done():
            return
        if isinstance(result, LlmxError):
            bargain.ended.set_exception(result)
        else:
            bargain.ended.set_result(result)

    def _reply(self, delivery: Delivery, act: Act) -> None:
        self._post(delivery.negotiation, act, in_reply_to=delivery.envelope.msg_id)

    def _post(
        self,
        negotiation: str,
        act: Act,
        on_settled: Callable[[Sent], None] | None = None,
        in_reply_to: str | None = None,
    ) -> None:
        if self._agent is None:
            return
        try:
            self._agent.post(negotiation, act, in_reply_to=in_reply_to, on_settled=on_settled)
        except LlmxError as error:
            logger.warning("%s: %s in %s is not sent: %s", self.name, act.act, negotiation, error)
