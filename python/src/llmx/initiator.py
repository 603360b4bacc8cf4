"""An initiator: opens calls and follows them to their end."""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from llmx.acts import Accept, CallAddress, Cancel, Cfp, Scope
from llmx.agent import Agent
from llmx.codec import texts
from llmx.deliveries import (
    Awarded,
    Call,
    Closing,
    ContractorFailure,
    Delivery,
    Misunderstanding,
    Offers,
    Receipt,
    Report,
    StandingBid,
)
from llmx.documents import Auction, Gate, Registration, Terms
from llmx.errors import EndedError, LlmxError, OverloadedError, TurnedDownError
from llmx.limits import Limits
from llmx.token import TokenSource

EVENTS_MAX = 256
"""Events of one call that wait to be read: several times what the longest contract net gives. The oldest give way."""

CALLS_MAX = 65_536
"""Calls open at a time. The exchange ends each by its hard deadline."""

CallEvent = Receipt | Awarded | Offers | StandingBid | Report | ContractorFailure | Misunderstanding | Closing
"""What happens to a call. The receipt says how many are invited; the closing comes last."""


class OpenCall:
    """A call. `async for event in call` follows it, `await call.end()` waits for its end."""

    def __init__(self, initiator: "Initiator", negotiation: str) -> None:
        self.negotiation = negotiation
        self.policy: str | None = None
        """The policy it runs under, where the exchange has said so."""
        self.closing: Closing | None = None
        self.dropped = 0
        """Events that gave way because nobody read them."""
        self._initiator = initiator
        self._events: deque[CallEvent] = deque()
        self._error: LlmxError | None = None
        self._changed = asyncio.Event()
        self._has_receipt = False

    async def __aiter__(self) -> AsyncIterator[CallEvent]:
        while True:
            while self._events:
                yield self._events.popleft()
            if self._error is not None:
                raise self._error
            if self.closing is not None:
                return
            self._changed.clear()
            await self._changed.wait()

    async def end(self) -> Closing:
        """Waits for the end.

        Raises `TurnedDownError` when the exchange did not open the call, `EndedError` when the agent ends before.
        """
        async for _ in self:
            pass
        assert self.closing is not None
        return self.closing

    async def accept(self, offer_id: str) -> None:
        """Chooses an offer, where the policy lets the initiator decide."""
        await self._initiator.agent.send(self.negotiation, Accept(offer_id=offer_id))

    async def cancel(self, reason: str | None = None) -> None:
        """Calls the negotiation off."""
        await self._initiator.agent.send(self.negotiation, Cancel(reason=reason))

    def handle(self, event: CallEvent) -> None:
        """Something happened."""
        if isinstance(event, Receipt) and not self._handle_receipt(event):
            return
        if isinstance(event, Closing):
            self.closing = event
        if len(self._events) >= EVENTS_MAX:
            self._events.popleft()
            self.dropped += 1
        self._events.append(event)
        self._changed.set()

    def _handle_receipt(self, receipt: Receipt) -> bool:
        """The receipt of the call itself counts, and no later one."""
        if self._has_receipt:
            return False
        disposition = receipt.first or receipt.disposition
        if disposition != "ok":
            self._has_receipt = True
            self.fail(TurnedDownError(disposition))
        elif receipt.invited is not None:
            self._has_receipt = True
            return True
        return False

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes."""
        return self._error is not None

    def fail(self, error: LlmxError) -> None:
        """Nothing more comes."""
        self._error = error
        self._changed.set()


class Initiator:
    """An agent that calls. `async with Initiator(…) as ann:` connects it."""

    def __init__(
        self,
        name: str,
        *,
        gateways: str | Iterable[str],
        token: TokenSource | None = None,
        token_file: str | Path | None = None,
        registration: Registration | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.name = name
        self.registration = registration
        self.limits = limits or Limits()
        self.agent = Agent(self, gateways=gateways, token=token, token_file=token_file)
        self._calls: dict[str, OpenCall] = {}

    async def __aenter__(self) -> "Initiator":
        await self.agent.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.agent.end()
        for call in self._calls.values():
            call.fail(EndedError("the agent has ended"))

    async def call(
        self,
        *to: str,
        task: str | None = None,
        policy: str | None = None,
        reply_within_ms: int | None = None,
        requires: Sequence[str] = (),
        capabilities: Sequence[str] = (),
        constraints: Terms | None = None,
        gates: Sequence[Gate] = (),
        currency: str | None = None,
        auction: Auction | None = None,
        ttl_s: int | None = None,
        absent: bool | None = None,
        own_id: str | None = None,
    ) -> OpenCall:
        """Calls agents, topics or groups for offers, or to an auction, and returns when the call is in the log.

        Raises `RefusedError` and what else `Agent.send` raises. Once it has begun, the call is made even if the caller is
        cancelled.
        """
        cfp = Cfp(
            task=task,
            policy=policy,
            reply_within_ms=reply_within_ms,
            requires=texts("requires", requires) or None,
            constraints=constraints,
            gates=tuple(gates) or None,
            currency=currency,
            auction=auction,
        )
        address = CallAddress(
            to=to, capabilities=texts("capabilities", capabilities) or None, scope=Scope(ttl=ttl_s, absent=absent)
        )
        return await self.open(cfp, address, own_id=own_id)

    async def open(self, cfp: Cfp, address: CallAddress, *, own_id: str | None = None) -> OpenCall:
        """Makes a call from its documents. `own_id` names the negotiation; without one it is drawn."""
        if len(self._calls) >= CALLS_MAX:
            raise OverloadedError(f"{CALLS_MAX} calls are open: wait for some to end")
        negotiation = f"{self.name}~{own_id or secrets.token_hex(12)}"
        call = OpenCall(self, negotiation)
        # What happens may be delivered before the call's own answer comes.
        self._calls[negotiation] = call
        try:
            accepted = await self.agent.send(negotiation, cfp, address=address)
        except (LlmxError, TypeError):
            self._calls.pop(negotiation, None)
            raise
        call.policy = accepted.policy
        return call

    def forget(self, call: OpenCall) -> None:
        """Follows a call no longer; it goes on in the exchange."""
        self._calls.pop(call.negotiation, None)

    def attach(self, agent: Agent) -> None:
        """The agent starts."""

    def handle(self, delivery: Delivery) -> Coroutine[Any, Any, None] | None:
        """A delivery that has not come before."""
        call = self._calls.get(delivery.negotiation)
        if isinstance(delivery.payload, Call):
            self.agent.refuse(delivery, "takes no calls")
        elif call is not None and isinstance(delivery.payload, CallEvent):
            call.handle(delivery.payload)
            if isinstance(delivery.payload, Closing) or call.is_over:
                del self._calls[delivery.negotiation]
        return None

    async def stop(self) -> None:
        """Calls go on in the exchange."""
