"""The session, without a clock or a connection: order, repeats, receipts, bounds."""

import json
import random
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from llmx import Accepted, Cfp, LlmxError, Offer, Refuse, RefusedError, UnansweredError, UnsendableError
from llmx.acts import CallAddress
from llmx.backoff import wait_s
from llmx.errors import refusal
from llmx.limits import ACKS_TOGETHER_MAX, Limits
from llmx.session import Inbox, Message, Outcome, Session


class Sender:
    """A session and how its messages ended."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.session = Session("bob", limits or Limits())
        self.ended: list[tuple[str, Outcome]] = []

    def write(self, negotiation: str) -> Message:
        return self.session.write(negotiation, Refuse(), lambda outcome: self.ended.append((negotiation, outcome)))

    def call(self, negotiation: str) -> Message:
        address = CallAddress(to=("topic://courier",))
        return self.session.write(
            negotiation, Cfp(), lambda outcome: self.ended.append((negotiation, outcome)), address=address
        )

    def refuse(self, message: Message, now: float, code: str, retry_after_ms: int) -> float:
        """Refuses a message that leaves; how long it waits, which is until it may leave again."""
        assert self.leave(now) == [message]
        self.session.handle_answer(now, message.number, held_back(code, retry_after_ms))
        at = self.session.poll_timeout()
        if at is None:
            return 0.0
        self.session.handle_timeout(at)
        return at - now

    def leave(self, now: float = 0.0) -> list[Message]:
        found = []
        while message := self.session.poll_transmit(now):
            found.append(message)
        return found

    def accept(self, message: Message, now: float = 0.0) -> None:
        self.session.handle_answer(now, message.number, Accepted(message.msg_id, message.negotiation, 1))


def busy() -> RefusedError:
    return refusal({"code": "log_unavailable", "status": 503})


def test_in_one_negotiation_one_message_is_on_its_way_and_others_do_not_wait() -> None:
    sender = Sender()
    first, second, other = sender.write("a~1"), sender.write("a~1"), sender.write("a~2")
    assert sender.leave() == [first, other]
    sender.accept(other)
    assert sender.leave() == []
    sender.accept(first)
    assert sender.leave() == [second]


def test_numbers_rise_and_ids_differ() -> None:
    sender = Sender()
    envelopes = [json.loads(sender.write("a~1").document)["envelope"] for _ in range(100)]
    numbers = [envelope["seq"] for envelope in envelopes]
    assert numbers == sorted(set(numbers))
    assert len({envelope["msg_id"] for envelope in envelopes}) == 100
    assert Sender().session.seq > 1_700_000_000_000_000


def test_what_no_message_can_carry_is_named_and_leaves_nothing_behind() -> None:
    sender = Sender()
    for value, fault in [
        (
            Decimal("0.5"),
            "/terms/price: Decimal cannot be sent; expected an int (money is an integer number of micro-units)",
        ),
        (0.5, "/terms/price: float cannot be sent; expected an int (money is an integer number of micro-units)"),
        (
            timedelta(seconds=1),
            "/terms/price: timedelta cannot be sent; a duration is an integer number of milliseconds",
        ),
        ({1}, "/terms/price: set cannot be sent; expected a text, an integer, a list or a mapping"),
        (2**60, "/terms/price: an integer beyond 9007199254740991 (2**53 - 1) cannot be sent"),
        (-(2**53), "/terms/price: an integer beyond 9007199254740991 (2**53 - 1) cannot be sent"),
        ("\ud800", "/terms/price: a text with half a surrogate pair cannot be sent"),
        ({2: 1}, "/terms/price: int cannot be the name of a member; expected a text"),
    ]:
        terms: Any = {"price": value}
        with pytest.raises(UnsendableError) as caught:
            sender.session.write("a~1", Offer(terms=terms), lambda _: None)
        assert (str(caught.value), caught.value.pointer) == (fault, fault.partition(":")[0])
    with pytest.raises(UnsendableError, match=r"^/negotiation: "):
        sender.write("a~\ud800")
    assert sender.session.unanswered_count == 0
    assert sender.leave() == []


def test_a_receipt_lets_the_next_leave_and_ends_what_waits_for_a_retry() -> None:
    sender = Sender()
    first, second = sender.write("a~1"), sender.write("a~1")
    sender.leave()
    sender.session.handle_receipt(first.msg_id)
    assert sender.leave() == [second]
    sender.session.handle_answer(0.0, second.number, busy())
    sender.session.handle_receipt(second.msg_id)
    assert [type(outcome) for _, outcome in sender.ended] == [Accepted]
    sender.session.handle_disconnected()
    assert [outcome.seq for _, outcome in sender.ended if isinstance(outcome, Accepted)] == [None, None]
    assert sender.session.unanswered_count == 0


def test_gaps_grow_and_the_attempts_are_counted() -> None:
    sender = Sender(Limits(attempts_max=5))
    message = sender.write("a~1")
    now, gaps = 0.0, []
    for _ in range(5):
        assert sender.leave(now) == [message]
        sender.session.handle_answer(now, message.number, busy())
        at = sender.session.poll_timeout()
        if at is not None:
            gaps.append(at - now)
            sender.session.handle_timeout(at)
            now = at
    assert [0.1 * 2**n <= gap <= 0.2 * 2**n for n, gap in enumerate(gaps)] == [True] * 4
    assert isinstance(sender.ended[0][1], UnansweredError)


def held_back(code: str, retry_after_ms: int) -> RefusedError:
    return refusal({"code": code, "status": 503, "retry_after_ms": retry_after_ms})


@pytest.mark.parametrize("code", ["overloaded", "rate_limited", "unavailable"])
def test_what_was_only_ever_refused_ends_as_refused_and_what_may_be_in_the_log_does_not(code: str) -> None:
    for doubt in (None, "silence", "log_unavailable", "lost connection"):
        sender, now = Sender(Limits(attempts_max=20)), 0.0
        call = sender.call("bob~1")
        for attempt in range(20):
            if doubt is None or attempt != 7:
                now += sender.refuse(call, now, code, 100)
            elif doubt == "log_unavailable":
                now += sender.refuse(call, now, doubt, 100)
            else:
                assert sender.leave(now) == [call]
                if doubt == "silence":
                    sender.session.handle_answer(now, call.number, None)
                    now = sender.session.poll_timeout() or now
                    sender.session.handle_timeout(now)
                else:
                    sender.session.handle_disconnected()
                    sender.session.handle_connected()
        [(_, outcome)] = sender.ended
        assert isinstance(outcome, RefusedError if doubt is None else UnansweredError), doubt
        assert doubt or getattr(outcome, "code", None) == code


def test_a_call_waits_as_long_as_the_exchange_says_and_little_longer() -> None:
    sender, now = Sender(), 0.0
    call = sender.call("bob~1")
    for asked_ms in (100, 10_000, 50, 10_000, 2000, 100, 100, 100, 100, 100):
        waited_s = sender.refuse(call, now, "overloaded", asked_ms)
        assert asked_ms / 1000 <= waited_s + 1e-9 <= asked_ms / 1000 * 1.1 + 1e-6
        now += waited_s


def test_what_goes_beyond_a_rate_waits_with_growing_gaps_and_not_less_than_is_said() -> None:
    sender, now = Sender(Limits(retry_base_s=0.2, retry_max_s=10.0)), 0.0
    message = sender.write("a~1")
    gaps = [sender.refuse(message, now, "rate_limited", asked_ms) for asked_ms in (1, 1, 1, 1, 1, 20_000)]
    assert all(0.1 * 2**n <= gap <= 0.2 * 2**n for n, gap in enumerate(gaps[:5])), (
        "who repeats at once is over it again"
    )
    assert gaps[5] >= 20.0, "no bound of its own is below what the exchange says"
    assert wait_s(1, 0.1, 5.0, 10_000) >= 10.0
    assert wait_s(1, 0.1, 5.0, 10**12) == 60.0


def test_a_new_connection_does_not_bring_what_was_told_to_wait_sooner() -> None:
    sender = Sender()
    calls = [sender.call(f"bob~{number}") for number in range(5)]
    other = sender.write("a~1")
    sender.leave(0.0)
    for call in calls:
        sender.session.handle_answer(0.0, call.number, held_back("overloaded", 4000))
    sender.session.handle_answer(0.0, other.number, busy())
    sender.session.handle_disconnected()
    sender.session.handle_connected()
    assert sender.leave(1.0) == [other]
    sender.accept(other, 1.0)
    assert (sender.session.poll_timeout() or 0.0) >= 4.0
    sender.session.handle_timeout(3.9)
    assert sender.leave(3.9) == []
    sender.session.handle_timeout(4.5)
    assert sorted(message.number for message in sender.leave(4.5)) == [call.number for call in calls]


def test_whatever_is_lost_every_message_ends_once_with_the_same_bytes_and_in_order() -> None:
    for seed in range(300):
        play(random.Random(seed))


def play(draw: random.Random) -> None:
    """Random losses, delays, refusals and lost connections; then a time in which everything is answered."""
    sender, now = Sender(Limits(attempts_max=10_000)), 0.0
    written = [sender.write(f"a~{draw.randrange(4)}") for _ in range(draw.randrange(1, 20))]
    left: dict[int, set[str]] = {}
    under_way: list[Message] = []
    log: list[Message] = []

    def store(message: Message) -> None:
        if message not in log:
            log.append(message)

    for step in range(400):
        now += draw.random()
        is_calm = step > 200
        for message in sender.leave(now):
            left.setdefault(message.number, set()).add(message.document)
            under_way.append(message)
        sender.session.handle_timeout(now)
        draw.shuffle(under_way)
        for message in under_way[: None if is_calm else draw.randrange(3)]:
            under_way.remove(message)
            fate = 0 if is_calm else draw.randrange(5)
            if fate in (0, 1, 2):
                store(message)
            if fate == 0:
                sender.accept(message, now)
            elif fate == 1:
                sender.session.handle_receipt(message.msg_id)
            elif fate == 3:
                sender.session.handle_answer(now, message.number, busy())
        if not is_calm and draw.randrange(10) == 0:
            under_way.clear()
            sender.session.handle_disconnected()
            sender.session.handle_connected()
    assert len(sender.ended) == len(written)
    assert not any(isinstance(outcome, LlmxError) for _, outcome in sender.ended)
    assert all(len(documents) == 1 for documents in left.values())
    for negotiation in {message.negotiation for message in written}:
        numbers = [message.number for message in log if message.negotiation == negotiation]
        assert numbers == sorted(numbers), "no message overtakes another of its negotiation"
    assert sender.session.poll_timeout() is None


def test_acknowledgements_leave_with_a_message_or_when_due_or_when_full() -> None:
    inbox = Inbox(10)
    inbox.acknowledge(0.0, "a")
    assert inbox.poll_acks(0.059, is_writing=False) == []
    assert inbox.poll_acks(0.001, is_writing=True) == ["a"]
    assert inbox.poll_timeout() is None
    for number in range(ACKS_TOGETHER_MAX + 1):
        inbox.acknowledge(1.0, str(number))
    assert len(inbox.poll_acks(1.0, is_writing=False)) == ACKS_TOGETHER_MAX
    assert inbox.poll_acks(1.0, is_writing=False) == []
    assert inbox.poll_acks(1.06, is_writing=False) == [str(ACKS_TOGETHER_MAX)]


def test_the_latest_deliveries_are_remembered() -> None:
    inbox = Inbox(3)
    for number in range(5):
        inbox.note(str(number))
    assert [number for number in range(5) if not inbox.is_new(str(number))] == [2, 3, 4]
