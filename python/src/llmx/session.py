"""What an agent has said and not been answered, and what it has received. Pure: time is an argument, nothing is sent here.

* Order. In one negotiation one message is on its way at a time: the next leaves when its predecessor is in the log, refused
  or given up. Messages of different negotiations do not wait for each other.
* Repeats. A message nobody answered leaves again with the same bytes, with growing gaps, a bounded number of times; a lost
  connection does not lose it. A receipt for it counts as an answer. What the exchange holds back leaves when it says, whatever
  becomes of the connection.
* Bounds. `Limits`; beyond them a message is refused here.
"""

import json
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from heapq import heappop, heappush
from typing import Any

from llmx.acts import Act, CallAddress
from llmx.backoff import wait_s
from llmx.codec import encode
from llmx.errors import LlmxError, OverloadedError, RefusedError, UnansweredError
from llmx.limits import ACK_WAIT_S, ACKS_TOGETHER_MAX, ACKS_WAITING_MAX, ANSWER_TIMEOUT_S, HELD_BACK_S, Limits


@dataclass(frozen=True, slots=True)
class Accepted:
    """Where a message stands in the log. Without `seq`: only its receipt has told that it is there."""

    msg_id: str
    negotiation: str
    seq: int | None = None
    policy: str | None = None


Outcome = Accepted | LlmxError
"""How sending a message ended."""


@dataclass(slots=True, eq=False)
class Message:
    """A message with everything that stays the same on every attempt."""

    number: int
    negotiation: str
    msg_id: str
    document: str
    on_settled: Callable[[Outcome], None]
    is_call: bool = False
    attempts: int = 0
    answer_by: float | None = None
    """When its answer counts as lost, while it is on its way."""
    retry_at: float | None = None
    refused_at: float | None = None
    """When it was first refused by what can pass."""
    is_held_back: bool = False
    """It waits because the exchange says so: until its turn, or as its agent sends too much."""
    may_be_logged: bool = False
    """An attempt has ended without a word that says that nothing was stored."""
    is_logged: bool = False
    """A receipt has come: it is in the log, whatever the way out says."""


@dataclass(slots=True)
class Session:
    """See the module. `now` is any clock in seconds that never goes back."""

    agent: str
    limits: Limits = field(default_factory=Limits)
    seq: int = field(default_factory=lambda: time.time_ns() // 1000)
    """Rises from message to message, and from start to start, as the clock does."""
    _last: int = 0
    _messages: dict[int, Message] = field(default_factory=dict)
    _number_by_msg_id: dict[str, int] = field(default_factory=dict)
    _queues: dict[str, deque[int]] = field(default_factory=dict)
    """Numbers by negotiation; the front one is on its way, waits for its retry, or is ready."""
    _ready: deque[int] = field(default_factory=deque)
    _under_way: dict[int, Message] = field(default_factory=dict)
    """In the order in which they left."""
    _retries: list[tuple[float, int]] = field(default_factory=list)
    _held_back: set[int] = field(default_factory=set)
    """Those that were refused by what can pass."""
    held_back: RefusedError | None = None
    """Why one of them waits for long, until none waits any more."""

    def write(
        self,
        negotiation: str,
        act: Act,
        on_settled: Callable[[Outcome], None],
        *,
        in_reply_to: str | None = None,
        address: CallAddress | None = None,
    ) -> Message:
        """Writes a message and queues it.

        Raises `OverloadedError` when too many are unanswered, `UnsendableError` at a member that no message can carry; nothing
        is sent then.
        """
        if len(self._messages) >= self.limits.unanswered_max:
            raise OverloadedError(f"{self.limits.unanswered_max} messages wait for an answer (limits.unanswered_max)")
        self._last += 1
        # Nobody can guess it: the digest of a sealed mandate covers it.
        msg_id = secrets.token_hex(12)
        envelope = self._envelope(msg_id, negotiation, in_reply_to, address)
        body = {"envelope": envelope, "payload": encode(act)}
        # As the log will have it, which gateways check sooner.
        document = json.dumps(body, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
        message = Message(self._last, negotiation, msg_id, document, on_settled, is_call=address is not None)
        self._messages[message.number] = message
        self._number_by_msg_id[msg_id] = message.number
        queue = self._queues.setdefault(negotiation, deque())
        queue.append(message.number)
        if len(queue) == 1:
            self._ready.append(message.number)
        return message

    def _envelope(
        self, msg_id: str, negotiation: str, in_reply_to: str | None, address: CallAddress | None
    ) -> Mapping[str, Any]:
        self.seq += 1
        # A call names the initiator's own part of the id; the exchange forms the whole.
        named = negotiation.partition("~")[2] if address else negotiation
        envelope = {
            "msg_id": msg_id,
            "ts": encode(datetime.now(UTC)),
            "from": f"agent://{self.agent}",
            "negotiation": encode(named, "/negotiation"),
            "seq": self.seq,
        }
        if in_reply_to is not None:
            envelope["in_reply_to"] = in_reply_to
        if address is not None:
            envelope.update(encode(address))
        return envelope

    def poll_transmit(self, now: float) -> Message | None:
        """The next message to leave, if any may."""
        while self._ready:
            message = self._messages.get(self._ready.popleft())
            # A receipt can settle a message while it waits here.
            if message is not None:
                message.attempts += 1
                message.answer_by = now + ANSWER_TIMEOUT_S
                self._under_way[message.number] = message
                return message
        return None

    def poll_timeout(self) -> float | None:
        """When `handle_timeout` wants to be called."""
        oldest = next(iter(self._under_way.values()), None)
        times = [oldest.answer_by if oldest else None, self._retries[0][0] if self._retries else None]
        return min((at for at in times if at is not None), default=None)

    def handle_timeout(self, now: float) -> bool:
        """Makes ready what is to leave again. True when an answer is overdue: the connection may be dead."""
        while self._retries and self._retries[0][0] <= now:
            at, number = heappop(self._retries)
            message = self._messages.get(number)
            if message is not None and message.retry_at == at:
                message.retry_at = None
                self._ready.append(number)
        is_overdue = False
        while (oldest := next(iter(self._under_way.values()), None)) and (oldest.answer_by or 0.0) <= now:
            is_overdue = True
            self.handle_answer(now, oldest.number, None)
        return is_overdue

    def handle_connected(self) -> None:
        """A connection is up: what waits for a retry leaves now, unless it was told to wait."""
        waiting, self._retries = sorted(self._retries, key=lambda retry: retry[1]), []
        for at, number in waiting:
            message = self._messages.get(number)
            if message is None or message.retry_at != at:
                continue
            if message.is_held_back:
                heappush(self._retries, (at, number))
            else:
                message.retry_at = None
                self._ready.append(number)

    def handle_disconnected(self) -> None:
        """The connection is lost: what is on its way leaves again over the next one."""
        orphans = list(self._under_way.values())
        self._under_way.clear()
        for message in sorted(orphans, key=lambda one: one.number):
            message.answer_by = None
            message.may_be_logged = True
            if message.is_logged:
                self._settle(message, Accepted(message.msg_id, message.negotiation))
            else:
                self._ready.append(message.number)

    def handle_answer(self, now: float, number: int, answer: Accepted | RefusedError | None) -> None:
        """A gateway's answer to a message, or none."""
        message = self._messages.get(number)
        if message is None:
            return
        self._under_way.pop(number, None)
        message.answer_by = None
        message.may_be_logged |= answer is None or (isinstance(answer, RefusedError) and not answer.is_certain)
        if isinstance(answer, Accepted):
            self._settle(message, answer)
        elif message.is_logged:
            self._settle(message, Accepted(message.msg_id, message.negotiation))
        elif answer is not None and not answer.can_pass:
            self._settle(message, answer)
        elif message.attempts >= self.limits.attempts_max:
            why = f"nobody has answered in {message.attempts} attempts"
            unanswered = UnansweredError(f"{why} (last: {answer})" if answer else why)
            self._settle(message, unanswered if answer is None or message.may_be_logged else answer)
        elif message.retry_at is None:
            self._retry(now, message, answer)

    def _retry(self, now: float, message: Message, answer: RefusedError | None) -> None:
        limits, code = self.limits, answer.code if answer else None
        said_ms = answer.retry_after_ms if answer else None
        # Of calls the exchange knows when it can take them; whatever else it says is the same for everybody.
        is_turn = code == "overloaded" and message.is_call
        message.retry_at = now + wait_s(
            message.attempts, limits.retry_base_s, limits.retry_max_s, said_ms, is_turn=is_turn
        )
        message.is_held_back = bool(said_ms) and code in ("overloaded", "rate_limited")
        heappush(self._retries, (message.retry_at, message.number))
        if answer is not None:
            message.refused_at = now if message.refused_at is None else message.refused_at
            self._held_back.add(message.number)
            if self.held_back is None and message.retry_at - message.refused_at >= HELD_BACK_S:
                self.held_back = answer

    def handle_receipt(self, ack_of: str) -> None:
        """The message is in the log. Its successors may leave; if it waited for a retry, that ends it."""
        message = self._messages.get(self._number_by_msg_id.get(ack_of, 0))
        if message is None:
            return
        message.is_logged = True
        if message.answer_by is None:
            self._settle(message, Accepted(message.msg_id, message.negotiation))
        else:
            self._advance(message)

    @property
    def unanswered_count(self) -> int:
        """Messages without an answer."""
        return len(self._messages)

    @property
    def under_way_count(self) -> int:
        """Messages that have left and wait for their answer."""
        return len(self._under_way)

    def abandon(self, error: LlmxError) -> None:
        """Ends everything that is unanswered, as when the agent ends."""
        for message in list(self._messages.values()):
            self._settle(message, error)

    def _settle(self, message: Message, outcome: Outcome) -> None:
        del self._messages[message.number]
        del self._number_by_msg_id[message.msg_id]
        self._under_way.pop(message.number, None)
        self._held_back.discard(message.number)
        if not self._held_back:
            self.held_back = None
        message.retry_at = None
        self._advance(message)
        message.on_settled(outcome)

    def _advance(self, message: Message) -> None:
        """Lets the next message of the negotiation leave when this one was on its way."""
        queue = self._queues.get(message.negotiation)
        if not queue or queue[0] != message.number:
            return
        queue.popleft()
        if queue:
            self._ready.append(queue[0])
        else:
            del self._queues[message.negotiation]


@dataclass(slots=True)
class Inbox:
    """Deliveries that have come, and those to be acknowledged."""

    remembered_max: int
    _known: dict[str, None] = field(default_factory=dict)
    """Oldest first."""
    _handled: deque[str] = field(default_factory=lambda: deque(maxlen=ACKS_WAITING_MAX))
    _due_at: float | None = None

    def is_new(self, delivery_id: str) -> bool:
        """Whether a delivery has not come before."""
        return delivery_id not in self._known

    def note(self, delivery_id: str) -> None:
        """Remembers a delivery."""
        self._known[delivery_id] = None
        if len(self._known) > self.remembered_max:
            del self._known[next(iter(self._known))]

    def acknowledge(self, now: float, delivery_id: str) -> None:
        """Queues an acknowledgement. It leaves with the next message, or soon."""
        self._handled.append(delivery_id)
        if self._due_at is None:
            self._due_at = now + ACK_WAIT_S

    def poll_timeout(self) -> float | None:
        """When the acknowledgements leave at the latest."""
        return self._due_at

    def poll_acks(self, now: float, *, is_writing: bool) -> list[str]:
        """The ids of one acknowledgement that leaves now, if one does."""
        is_due = self._due_at is not None and (is_writing or self._due_at <= now)
        if not is_due and len(self._handled) < ACKS_TOGETHER_MAX:
            return []
        ids = [self._handled.popleft() for _ in range(min(len(self._handled), ACKS_TOGETHER_MAX))]
        if not self._handled:
            self._due_at = None
        return ids
