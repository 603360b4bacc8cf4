"""Running an agent: connect, register, receive, act, acknowledge, repeat, connect again; and end cleanly."""

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from json import dumps
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol
from urllib.parse import quote

from llmx.acts import Act, CallAddress, Refuse
from llmx.backoff import gap_s, wait_s
from llmx.codec import UnreadableError, decode, encode
from llmx.deliveries import Delivery, OtherCall, Receipt, read_delivery
from llmx.documents import Registration
from llmx.errors import (
    EndedError,
    LlmxError,
    NotFoundError,
    RefusedError,
    TokenRefusedError,
    TokenUnavailableError,
    UnreachableError,
    refusal,
)
from llmx.gateways import Connection, Gateways
from llmx.limits import HANDLER_ACK_S, LEASE_S, SENDS_IN_FLIGHT_MAX, Limits
from llmx.session import Accepted, Inbox, Outcome, Session
from llmx.token import TokenSource, token_of

logger = logging.getLogger("llmx")

CONNECT_BASE_S, CONNECT_MAX_S = 0.5, 10.0
"""Between attempts to connect."""

STABLE_S = 5.0
"""A connection that lasted so long was no failure."""


class Participant(Protocol):
    """What an agent does. `handle` acts at once, or returns what is to be run."""

    @property
    def name(self) -> str:
        """The agent's id."""

    @property
    def registration(self) -> Registration | None:
        """How it registers; None: it is never called."""

    @property
    def limits(self) -> Limits:
        """Its bounds."""

    def attach(self, agent: "Agent") -> None:
        """The agent starts; through it the participant sends."""

    def handle(self, delivery: Delivery) -> Coroutine[Any, Any, None] | None:
        """A delivery that has not come before."""

    async def stop(self) -> None:
        """The agent ends: what is begun is to be ended, within `limits.end_s`."""


@dataclass(slots=True)
class Summary:
    """What an agent did, counted."""

    connections: int = 0
    deliveries: int = 0
    repeats: int = 0
    """Deliveries that came again; they were acknowledged again, and not handled."""
    unreadable: int = 0
    put_off: int = 0
    """Deliveries left to come again, because too many handlers were running."""
    transmitted: int = 0
    """Messages that left, repeats included."""
    accepted: int = 0
    refused: int = 0
    unanswered: int = 0
    acknowledgements: int = 0
    """Frames, of up to 256 ids."""


class Agent:
    """One participant at the exchange. `async with agent:` connects it, and ends it."""

    def __init__(
        self,
        participant: Participant,
        *,
        gateways: str | Iterable[str],
        token: TokenSource | None = None,
        token_file: str | Path | None = None,
    ) -> None:
        if not re.fullmatch("[A-Za-z0-9_-]{1,64}", participant.name):
            raise ValueError(f"{participant.name!r} is no agent's id: give 1 to 64 characters of A-Z a-z 0-9 _ -")
        self.participant = participant
        self.summary = Summary()
        self._token = token_of(token, token_file)
        self.gateways = Gateways(gateways, participant.name, self._token)
        self._session = Session(participant.name, participant.limits)
        self._inbox = Inbox(participant.limits.deliveries_remembered)
        self._clock = _Clock()
        self._wake = asyncio.Event()
        self._connected = asyncio.Event()
        self._handlers: set[asyncio.Task[None]] = set()
        self._driver: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._has_connected = False
        self._is_registered = False
        """Or may be: it has asked for it."""
        self._frames_received = 0
        self._is_ending = False

    async def __aenter__(self) -> "Agent":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end()

    # Sending

    def post(
        self,
        negotiation: str,
        act: Act,
        *,
        in_reply_to: str | None = None,
        address: CallAddress | None = None,
        on_settled: Callable[[Outcome], None] | None = None,
    ) -> None:
        """Queues a message, which is sent whatever becomes of the caller. Its end is reported to `on_settled`.

        Raises `OverloadedError` or `EndedError`, and `TypeError` for what no message can carry; nothing is sent then.
        """
        if not isinstance(act, Act):
            raise TypeError(
                f"{type(act).__name__} is no act; post `Offer(...)`, `Refuse(...)` or another of `llmx.acts`"
            )
        if self._driver is None or self._driver.done():
            raise EndedError("the agent does not run")

        def settle(outcome: Outcome) -> None:
            self._count(outcome)
            if on_settled is not None:
                try:
                    on_settled(outcome)
                except Exception:
                    logger.exception("%s: `on_settled` failed in %s", self.participant.name, negotiation)
            elif not isinstance(outcome, Accepted):
                logger.warning("%s: %s in %s: %s", self.participant.name, act.act, negotiation, outcome)

        self._session.write(negotiation, act, settle, in_reply_to=in_reply_to, address=address)
        self._wake.set()

    async def send(
        self,
        negotiation: str,
        act: Act,
        *,
        in_reply_to: str | None = None,
        address: CallAddress | None = None,
    ) -> Accepted:
        """Sends a message and waits until it is stored. Whoever is cancelled meanwhile has sent it all the same.

        Raises `RefusedError`, `UnansweredError`, `OverloadedError` or `EndedError`, and `TypeError` as `post` does.
        """
        settled: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def settle(outcome: Outcome) -> None:
            if not settled.done():
                settled.set_result(outcome)

        self.post(negotiation, act, in_reply_to=in_reply_to, address=address, on_settled=settle)
        outcome = await settled
        if isinstance(outcome, Accepted):
            return outcome
        raise outcome

    def refuse(self, delivery: Delivery, reason: str) -> None:
        """Declines a call that is of no interest, so that nobody waits. What cannot be sent is logged."""
        try:
            self.post(delivery.negotiation, Refuse(reason=reason), in_reply_to=delivery.envelope.msg_id)
        except LlmxError as error:
            logger.warning("%s: the refusal in %s is not sent: %s", self.participant.name, delivery.negotiation, error)

    def log_time(self) -> datetime:
        """The exchange's time, as far as deliveries have shown it."""
        return self._clock.now()

    def _count(self, outcome: Outcome) -> None:
        if isinstance(outcome, Accepted):
            self.summary.accepted += 1
        elif isinstance(outcome, RefusedError):
            self.summary.refused += 1
        else:
            self.summary.unanswered += 1

    # Start and end

    async def start(self) -> None:
        """Connects and registers.

        Raises `RefusedError` when the exchange refuses the agent, `UnreachableError` when it stays out of reach.
        """
        self.participant.attach(self)
        await self.gateways.__aenter__()
        self._driver = asyncio.create_task(self._drive(), name=f"llmx {self.participant.name}")
        connected = asyncio.create_task(self._connected.wait())
        try:
            await asyncio.wait({connected, self._driver}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            connected.cancel()
            if not self._connected.is_set():
                await self._close()
        if self._driver.done():
            self._driver.result()

    async def wait(self) -> None:
        """Waits until the agent ends by itself.

        Raises what it ends with: `RefusedError` or `UnreachableError`.
        """
        if self._driver is not None:
            await asyncio.shield(self._driver)

    async def end(self) -> None:
        """Ends cleanly: deregisters, lets handlers end, sends what is queued, acknowledges what was handled."""
        if self._is_ending:
            return
        self._is_ending = True
        try:
            async with asyncio.timeout(self.participant.limits.end_s):
                await self._deregister()
                await self.participant.stop()
                await self._flush()
        except TimeoutError:
            logger.warning(
                "%s: not everything ended in time; left undone: %s", self.participant.name, self.left_undone()
            )
        finally:
            await self._close()

    async def abort(self) -> None:
        """Ends at once: `left_undone` stays undone."""
        self._is_ending = True
        await self._close()

    def left_undone(self) -> str:
        """What would stay undone if the agent ended now, in words."""
        handlers, messages = len(self._handlers), self._session.unanswered_count
        left = [
            "its registration (until its lease ends, calls invite it)" if self._is_registered else "",
            f"{handlers} running handler{'s' * (handlers != 1)}" if handlers else "",
            f"{messages} unanswered message{'s' * (messages != 1)}" if messages else "",
        ]
        return ", ".join(filter(None, left)) or "nothing"

    async def _close(self) -> None:
        tasks = [*self._handlers, *([self._driver] if self._driver else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._session.abandon(EndedError("the agent has ended"))
        await self.gateways.__aexit__(None, None, None)

    def _registration(self) -> Registration | None:
        registration = self.participant.registration
        if registration is None:
            return None
        return self.gateways.named(registration)

    async def _register(self, registration: Registration, url: str) -> None:
        self._is_registered = True
        await self.gateways.request("PUT", f"/v1/agents/{self.participant.name}", encode(registration), url=url)

    async def _keep_registered(self, connection: Connection) -> None:
        """Registers again when another process of this agent, or its owner, has taken the registration away."""
        registration = self._registration()
        if registration is None:
            return
        lease_s = registration.lease_ms / 1000 if registration.lease_ms else LEASE_S
        while True:
            await asyncio.sleep(gap_s(1, lease_s, lease_s))
            try:
                await self.gateways.request("GET", f"/v1/agents/{self.participant.name}")
            except NotFoundError:
                if self._is_ending:
                    return
                logger.warning("%s: its registration was taken away; it registers again", self.participant.name)
                with suppress(LlmxError):
                    await self._register(registration, connection.url)
            except LlmxError as error:
                logger.info("%s: whether it is registered is not known: %s", self.participant.name, error)

    async def _deregister(self) -> None:
        registration = self._registration()
        if registration is None:
            return
        path = f"/v1/agents/{self.participant.name}?instance={quote(registration.instance or '')}"
        with suppress(LlmxError, TimeoutError):  # Then the registration lapses by itself.
            async with asyncio.timeout(self.participant.limits.end_s / 4):
                await self.gateways.request("DELETE", path)
                self._is_registered = False

    async def _flush(self) -> None:
        while self._handlers:
            await asyncio.wait(self._handlers)
        while self._driver is not None and not self._driver.done():
            if not self._session.unanswered_count and self._inbox.poll_timeout() is None:
                return
            await asyncio.sleep(0.005)

    # The connection

    async def _drive(self) -> None:
        await self._warn_of_present()
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            try:
                connection = await self._connect()
                began, received = loop.time(), self._frames_received
                over = await self._serve(connection)
            except (RefusedError, UnreachableError, TokenUnavailableError) as error:
                failures += 1
                if self._is_final(error) or failures >= self.participant.limits.connect_attempts_max:
                    raise
                logger.warning("%s: not connected: %s%s", self.participant.name, error, await self._old_token(error))
                said_ms = error.retry_after_ms if isinstance(error, RefusedError) else None
                await asyncio.sleep(wait_s(failures, CONNECT_BASE_S, CONNECT_MAX_S, said_ms))
                continue
            is_stable = loop.time() - began >= STABLE_S
            # `hello` alone is no use of a connection.
            was_useful = is_stable or self._frames_received > received + 1
            if isinstance(over, TokenRefusedError):
                if self._is_final(over):
                    raise over
                old_token = await self._old_token(over)
                # A gateway lets an expired token in while its leeway lasts, and ends the connection at once.
                was_useful = is_stable and not old_token
                logger.warning("%s: connection over: %s%s", self.participant.name, over, old_token)
            failures = 0 if was_useful else failures + 1
            # The first gap is none: another gateway takes over at once.
            if failures > 1:
                await asyncio.sleep(gap_s(failures - 1, CONNECT_BASE_S, CONNECT_MAX_S))

    async def _old_token(self, error: LlmxError) -> str:
        """Where another token would be, in words, when this one is refused and there is none yet; otherwise empty."""
        if isinstance(error, TokenRefusedError) and await self.gateways.has_token_of_before():
            return f"; {self._token.place} still holds the old token"
        return ""

    async def _warn_of_present(self) -> None:
        """Before it connects: its own stream would make it present."""
        name = self.participant.name
        known = await self.gateways.ask(f"/v1/agents/{name}") if self.participant.registration is not None else None
        if isinstance(known, dict) and known.get("present") is True:
            logger.warning(
                "%s is present already. Where another process runs it and goes on, give this one a name of its own: processes "
                "of one agent share its deliveries. One that was killed stays present until its lease ends",
                name,
            )

    async def _connect(self) -> Connection:
        connection = await self.gateways.connect()
        registration = self._registration()
        try:
            if registration is not None and not self._is_ending:
                # What ended the stream before may have taken it away.
                await self._register(registration, connection.url)
        except BaseException:
            await connection.close()
            raise
        self._has_connected = True
        return connection

    def _is_final(self, error: LlmxError) -> bool:
        """Whether trying again will not help. A token that is renewed may be another one by then, unless none was ever
        accepted: then key, issuer, audience or the source of the token are wrong."""
        if isinstance(error, TokenUnavailableError):
            return not self._has_connected
        if not isinstance(error, RefusedError) or error.can_pass:
            return False
        is_renewed = isinstance(error, TokenRefusedError) and self._token.is_renewed
        return not (is_renewed and self._has_connected)

    async def _serve(self, connection: Connection) -> LlmxError:
        """Until the connection is over: why."""
        self.summary.connections += 1
        self._connection = connection
        self._session.handle_connected()
        self._connected.set()
        writer = asyncio.create_task(self._write(connection))
        reader = asyncio.create_task(self._read(connection))
        keeper = asyncio.create_task(self._keep_registered(connection))
        try:
            done, _ = await asyncio.wait({writer, reader}, return_when=asyncio.FIRST_COMPLETED)
            over: LlmxError = UnreachableError(f"{connection.url}: the connection was left")
            for task in (writer, reader):  # The reader knows better why.
                error = task.exception() if task in done else over
                if error is not None and not isinstance(error, UnreachableError | TokenRefusedError):
                    raise error
                over = error or over
            logger.info("%s: connection over: %s", self.participant.name, over)
            return over
        finally:
            writer.cancel()
            reader.cancel()
            keeper.cancel()
            await asyncio.gather(writer, reader, keeper, return_exceptions=True)
            self._connection = None
            self._session.handle_disconnected()
            await connection.close()

    async def _write(self, connection: Connection) -> None:
        """Sends what is ready; acknowledgements leave with the next message, or when they are due."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            now = loop.time()
            if self._session.handle_timeout(now):
                raise UnreachableError(f"{connection.url}: an answer is overdue")
            frames = self._frames(now)
            for frame in frames:
                await connection.send(frame)
            if frames:
                continue
            times = (self._session.poll_timeout(), self._inbox.poll_timeout())
            due_at = min((at for at in times if at is not None), default=None)
            timer = loop.call_at(due_at, self._wake.set) if due_at is not None else None
            try:
                await self._wake.wait()
            finally:
                if timer is not None:
                    timer.cancel()
            # A handler that has just answered is about to have its delivery acknowledged: both leave together.
            await asyncio.sleep(0)

    def _frames(self, now: float) -> list[str]:
        messages = []
        while self._session.under_way_count < SENDS_IN_FLIGHT_MAX:
            message = self._session.poll_transmit(now)
            if message is None:
                break
            messages.append(f'{{"type":"message","id":"{message.number}","message":{message.document}}}')
        self.summary.transmitted += len(messages)
        frames = []
        while ids := self._inbox.poll_acks(now, is_writing=bool(messages)):
            self.summary.acknowledgements += 1
            frames.append(dumps({"type": "ack", "delivery_ids": ids}, separators=(",", ":")))
        return frames + messages

    async def _read(self, connection: Connection) -> None:
        while True:
            frame = await connection.receive()
            self._frames_received += 1
            match frame.get("type"):
                case "delivery":
                    self._receive(frame.get("delivery"))
                case "accepted":
                    self._answer(frame, _accepted(frame))
                case "refused":
                    self._answer(frame, refusal(frame.get("problem")))
                case _:
                    pass  # `hello`, and whatever later versions add.

    def _answer(self, frame: Mapping[str, Any], answer: Accepted | RefusedError | None) -> None:
        reference = frame.get("id")
        if isinstance(reference, str) and reference.isdigit():
            was_held_back = self._session.held_back
            self._session.handle_answer(asyncio.get_running_loop().time(), int(reference), answer)
            self._wake.set()
            if self._session.held_back is not None and was_held_back is None:
                logger.warning(
                    "%s: held back: %s; %d messages wait, and leave again when the exchange says",
                    self.participant.name,
                    self._session.held_back,
                    self._session.unanswered_count,
                )

    # Deliveries

    def _receive(self, document: Any) -> None:
        try:
            delivery = read_delivery(document)
        except UnreadableError as error:
            # Not acknowledged: the exchange reports it as undelivered rather than believing it received.
            self.summary.unreadable += 1
            logger.warning("%s: a delivery that cannot be read: %s", self.participant.name, error)
            return
        delivery_id = delivery.envelope.msg_id
        self._clock.note(delivery.envelope.ts)
        if not self._inbox.is_new(delivery_id):
            self.summary.repeats += 1
            self._acknowledge(delivery_id)
            return
        if len(self._handlers) >= self.participant.limits.handlers_max:
            self.summary.put_off += 1
            return
        self._inbox.note(delivery_id)
        self.summary.deliveries += 1
        for ridden in delivery.receipts:
            self._session.handle_receipt(ridden.ack_of)
            receipt = Receipt(ack_of=ridden.ack_of, disposition=ridden.disposition, offer_id=ridden.offer_id)
            self._handle(Delivery(delivery.envelope, receipt))
        if isinstance(delivery.payload, Receipt):
            self._session.handle_receipt(delivery.payload.ack_of)
        task = self._handle(delivery)
        if task is None:
            self._acknowledge(delivery_id)
        else:
            self._acknowledge_after(delivery_id, task)

    def _handle(self, delivery: Delivery) -> asyncio.Task[None] | None:
        if isinstance(delivery.payload, OtherCall):
            self.refuse(delivery, f"takes part in no {delivery.payload.protocol}")
            return None
        try:
            work = self.participant.handle(delivery)
            task = asyncio.create_task(work) if work is not None else None
        except Exception:
            logger.exception("%s: in %s", self.participant.name, delivery.negotiation)
            return None
        if task is None:
            return None
        self._handlers.add(task)
        task.add_done_callback(self._handler_done)
        return task

    def _handler_done(self, task: asyncio.Task[None]) -> None:
        self._handlers.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s: a handler failed", self.participant.name, exc_info=error)

    def _acknowledge(self, delivery_id: str) -> None:
        self._inbox.acknowledge(asyncio.get_running_loop().time(), delivery_id)
        self._wake.set()

    def _acknowledge_after(self, delivery_id: str, task: asyncio.Task[None]) -> None:
        """When its handler has ended, or runs so long that it would come again."""
        timer = asyncio.get_running_loop().call_later(HANDLER_ACK_S, self._acknowledge, delivery_id)

        def done(_: asyncio.Task[None]) -> None:
            if asyncio.get_running_loop().time() < timer.when() and not timer.cancelled():
                timer.cancel()
                self._acknowledge(delivery_id)

        task.add_done_callback(done)


def _accepted(frame: Mapping[str, Any]) -> Accepted | None:
    """Where a message stands; None when the answer cannot be read: it counts as none."""
    try:
        return decode(Accepted, frame)
    except UnreadableError:
        return None


class _Clock:
    """Log time: own time, and how far the log is ahead of it by what deliveries have shown."""

    def __init__(self) -> None:
        self._ahead: timedelta | None = None

    def note(self, log_time: datetime) -> None:
        """The log had reached this time."""
        ahead = log_time - datetime.now(UTC)
        self._ahead = ahead if self._ahead is None else max(ahead, self._ahead)

    def now(self) -> datetime:
        """The log's time now."""
        return datetime.now(UTC) + (self._ahead or timedelta())
