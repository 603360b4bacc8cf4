"""What an agent does whatever its strategy: acknowledging, repeating, going over gateways, ending."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import llmx
from llmx import (
    Agent,
    Api,
    Contractor,
    Delivery,
    EndedError,
    Inform,
    Initiator,
    InvalidMessageError,
    Job,
    Limits,
    Offer,
    OverloadedError,
    Refuse,
    RefusedError,
    Registration,
    TokenFileError,
    TokenRefusedError,
    TurnedDownError,
    UnansweredError,
    UnreachableError,
    UnsendableError,
)
from llmx.contractor import IncomingCall

from .fake_gateway import FakeGateway, cfp, closed, problem, refused

TERMS = {"price": 50_000_000}


def contractor(limits: Limits | None = None) -> Contractor:
    bob = Contractor("bob", topics=["courier"], limits=limits)

    @bob.on_call
    async def answer(call: IncomingCall) -> Offer | Refuse:
        return call.offer(TERMS)

    @bob.on_commit
    async def work(job: Job) -> Inform:
        return job.done()

    return bob


def initiator(*gateways: FakeGateway, **options: Any) -> Initiator:
    return Initiator("ann", gateways=[one.url for one in gateways], token="t", **options)


async def test_acknowledgements_are_collected_and_leave_together_never_one_per_delivery() -> None:
    async with FakeGateway() as gateway, initiator(gateway) as ann:
        ids = {await gateway.deliver(closed(), negotiation=f"x~{number}") for number in range(1000)}
        await gateway.until(lambda: gateway.acked() == ids)
        assert all(1 <= len(one) <= 256 for one in gateway.acks)
        assert len(gateway.acks) < 200, "collected for 60 ms at a time"
        assert ann.agent.summary.deliveries == 1000


async def test_an_acknowledgement_waits_sixty_milliseconds_for_a_message_to_leave_with() -> None:
    async with FakeGateway() as gateway, initiator(gateway):
        began = time.monotonic()
        await gateway.deliver(closed())
        await gateway.until(lambda: bool(gateway.acks))
        assert 0.050 < time.monotonic() - began < 1.0
    async with FakeGateway() as gateway, Agent(contractor(), gateways=gateway.url, token="t"):
        delivery_id = await gateway.deliver(cfp())
        await gateway.until(lambda: bool(gateway.messages))
        kinds = [json.loads(frame)["type"] for frame in gateway.frames]
        assert (kinds, gateway.acks) == (["ack", "message"], [[delivery_id]])


async def test_a_delivery_that_comes_again_is_acknowledged_again_and_not_handled_again() -> None:
    async with FakeGateway() as gateway, Agent(contractor(), gateways=gateway.url, token="t") as agent:
        for _ in range(5):
            await gateway.deliver(cfp(), delivery_id="a" * 32)
            await asyncio.sleep(0.03)
        await gateway.until(lambda: sum(len(ids) for ids in gateway.acks) == 5)
        assert len(gateway.messages) == 1
        assert (agent.summary.deliveries, agent.summary.repeats) == (1, 4)


async def test_a_slow_handler_does_not_make_its_delivery_come_again() -> None:
    bob = contractor()

    @bob.on_call
    async def answer(call: IncomingCall) -> Offer:
        await asyncio.sleep(1.5)
        return call.offer(TERMS)

    async with FakeGateway() as gateway, Agent(bob, gateways=gateway.url, token="t"):
        began = time.monotonic()
        delivery_id = await gateway.deliver(cfp())
        await gateway.until(lambda: gateway.acks == [[delivery_id]])
        assert 0.2 < time.monotonic() - began < 1.4
        assert not gateway.messages
        await gateway.until(lambda: bool(gateway.messages))
        await asyncio.sleep(0.1)
        assert gateway.acks == [[delivery_id]]


async def test_what_nobody_answered_leaves_again_byte_for_byte_over_another_gateway() -> None:
    async with FakeGateway() as first, FakeGateway() as second:
        gateways = [first, second]
        for gateway in gateways:
            gateway.answer = lambda _: None
        async with initiator(*gateways) as ann:
            calling = asyncio.create_task(ann.call("topic://courier", own_id="n1"))
            async with asyncio.timeout(15):
                while not first.messages and not second.messages:
                    await asyncio.sleep(0.01)
            dead, alive = gateways if first.messages else gateways[::-1]
            alive.answer = alive.accept
            await dead.stop()
            call = await calling
            assert call.negotiation == "ann~n1"
            assert alive.messages == dead.messages
            assert ann.agent.summary.connections == 2


@pytest.mark.parametrize("code", ["log_unavailable", "unavailable", "overloaded", "rate_limited", "internal"])
async def test_what_can_pass_is_repeated_not_before_it_was_asked_for(code: str) -> None:
    async with FakeGateway() as gateway, initiator(gateway) as ann:

        def answer(frame: dict[str, Any]) -> dict[str, Any] | None:
            if len(gateway.messages) < 3:
                return refused(frame, problem(code, 503, retry_after_ms=300))
            return gateway.accept(frame)

        gateway.answer = answer
        began = time.monotonic()
        await ann.call("topic://courier")
        assert len(gateway.messages) == 3
        assert gateway.messages[0] == gateway.messages[1] == gateway.messages[2]
        assert time.monotonic() - began > 0.6


async def test_an_agent_that_is_held_back_says_so_once_until_it_is_not(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeGateway() as gateway, initiator(gateway, limits=Limits(end_s=0.1)) as ann:
        document = problem("overloaded", 503, retry_after_ms=4000, detail="more calls than can end")
        for _ in range(2):
            gateway.answer = lambda frame: refused(frame, document)
            waiting = [asyncio.create_task(ann.call("topic://courier")) for _ in range(3)]
            await gateway.until(lambda: len(gateway.messages) == 3)
            await asyncio.sleep(0.05)
            for message in gateway.messages:
                await gateway.send(gateway.accept({"id": "0", "message": message}) or {})
                msg_id = message["envelope"]["msg_id"]
                await gateway.deliver({"act": "ack", "ack_of": msg_id, "disposition": "ok", "invited": 1})
            await asyncio.gather(*waiting)
            gateway.messages.clear()
    says = "ann: held back: overloaded: more calls than can end; "
    assert [one.startswith(says) for one in warned(caplog)] == [True, True]


async def test_a_request_waits_as_long_as_the_exchange_says(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[int | None] = []

    def noted(attempt: int, base_s: float, max_s: float, said_ms: int | None) -> float:
        said.append(said_ms)
        return 0.0

    monkeypatch.setattr("llmx.gateways.wait_s", noted)
    is_refused = True

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal is_refused
        if is_refused:
            is_refused = False
            return web.json_response(problem("rate_limited", 429, retry_after_ms=7000), status=429)
        return web.json_response({"policy": "high@1"})

    async with Server(answer) as server:
        ann = Initiator("ann", gateways=server.url, token="t")
        async with ann.agent.gateways as gateways:
            assert await Api(gateways).default_policy() == "high@1"
    assert said == [7000]


async def test_a_message_is_given_up_after_its_attempts() -> None:
    limits = Limits(attempts_max=3, retry_base_s=0.01)
    async with FakeGateway() as gateway, initiator(gateway, limits=limits) as ann:
        gateway.answer = lambda frame: refused(frame, problem("log_unavailable", 503))
        with pytest.raises(UnansweredError, match="log_unavailable"):
            await ann.call("topic://courier")
        assert len(gateway.messages) == 3


async def test_a_refusal_is_raised_with_all_its_document_says_and_not_repeated() -> None:
    async with FakeGateway() as gateway, initiator(gateway) as ann:
        document = problem("unknown_field", 422, pointer="/payload/prio", expected="only act")
        gateway.answer = lambda frame: refused(frame, document)
        with pytest.raises(InvalidMessageError) as caught:
            await ann.call("topic://courier")
        error = caught.value
        assert (error.code, error.title, error.status) == ("unknown_field", "A title", 422)
        assert (error.pointer, error.expected) == ("/payload/prio", "only act")
        assert len(gateway.messages) == 1


async def test_a_call_that_is_turned_down_is_followed_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmx.initiator.CALLS_MAX", 1)
    async with FakeGateway() as gateway, initiator(gateway) as ann:
        for own_id in ("c1", "c2"):
            call = await ann.call("topic://courier", own_id=own_id)
            receipt = {"act": "ack", "ack_of": gateway.messages[-1]["envelope"]["msg_id"], "disposition": "malformed"}
            await gateway.deliver(receipt, negotiation=call.negotiation)
            with pytest.raises(TurnedDownError, match="malformed"):
                await call.end()


async def test_a_gateway_that_is_down_is_passed_over_and_one_that_is_silent_too() -> None:
    silent = await asyncio.start_server(lambda *_: asyncio.sleep(60), "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    async with FakeGateway() as gateway:
        down = "http://127.0.0.1:9"
        began = time.monotonic()
        ann = Initiator("ann", gateways=[down, f"http://127.0.0.1:{port}", gateway.url], token="t")
        async with ann:
            await ann.call("topic://courier")
        assert time.monotonic() - began < 15
    silent.close()


async def test_a_token_is_asked_for_at_every_connection_and_an_expired_one_is_renewed(tmp_path: Path) -> None:
    file = tmp_path / "ann.jwt"
    file.write_text("first\n")
    async with FakeGateway() as gateway:
        gateway.refuse_token = lambda token: token == "expired"
        async with Initiator("ann", gateways=gateway.url, token_file=file) as ann:
            file.write_text("expired")
            await gateway.sockets[0].close(code=1008, message=b"the token has expired")
            await gateway.until(lambda: "expired" in gateway.tokens)
            file.write_text("second")
            await gateway.until(lambda: len(gateway.sockets) == 2)
            await ann.call("topic://courier")
            assert gateway.tokens[0] == "first"
            assert gateway.tokens[-1] == "second"


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


async def test_a_token_that_is_let_in_and_ended_at_once_is_shown_with_growing_gaps_and_its_place_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "ann.jwt"
    file.write_text("old")
    async with FakeGateway() as gateway:

        async def end_streams() -> None:
            """As a gateway whose handshake allows a leeway, on a connection that was of use."""
            while gateway.tokens[-1] == "old":
                await gateway.until(lambda: any(not one.closed for one in gateway.sockets), 60)
                await gateway.deliver(closed())
                for one in gateway.sockets:
                    await one.close(code=1008, message=b"the token has expired")

        async with Initiator("ann", gateways=gateway.url, token_file=file) as ann:
            ending = asyncio.create_task(end_streams())
            await asyncio.sleep(3)
            assert 2 <= len(gateway.sockets) <= 6
            assert f"the token has expired; the token file {file} still holds the old token" in warned(caplog)[-1]
            ending.cancel()
            file.write_text("new")
            await gateway.sockets[-1].close(code=1008, message=b"the token has expired")
            await gateway.until(lambda: gateway.tokens[-1] == "new")
            await ann.call("topic://courier")


async def test_a_token_that_was_renewed_in_time_is_shown_without_a_word_of_the_old_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "ann.jwt"
    file.write_text("old")
    async with FakeGateway() as gateway, Initiator("ann", gateways=gateway.url, token_file=file):
        file.write_text("new")
        await gateway.sockets[0].close(code=1008, message=b"the token has expired")
        await gateway.until(lambda: gateway.tokens[-1] == "new")
    assert not any("the old token" in one for one in warned(caplog))


async def test_a_token_that_stays_the_same_ends_the_agent_when_it_has_expired() -> None:
    async with FakeGateway() as gateway, initiator(gateway) as ann:
        await gateway.sockets[0].close(code=1008, message=b"the token has expired")
        with pytest.raises(TokenRefusedError, match="token_expired"):
            await ann.agent.wait()
        assert len(gateway.sockets) == 1


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("empty", "is empty"),
        ("missing", "cannot be read"),
        ("raises", "the function that gives the token failed: OSError: no way to the identity provider"),
        ("slow", "the function that gives the token gave none within 0.1 s"),
        ("none", "the function that gives the token gave NoneType; expected a token"),
    ],
)
async def test_a_token_that_cannot_be_renewed_for_a_moment_is_warned_of_and_asked_for_again(
    fault: str, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmx.token.TOKEN_TIMEOUT_S", 0.1)
    file, is_faulty = tmp_path / "ann.jwt", False
    file.write_text("t")

    async def token() -> str:
        if is_faulty and fault == "raises":
            raise OSError("no way to the identity provider")
        if is_faulty and fault == "slow":
            await asyncio.sleep(60)
        return "t" if not is_faulty else None  # type: ignore[return-value]

    is_file = fault in ("empty", "missing")
    source: dict[str, Any] = {"token_file": file} if is_file else {"token": token}
    async with FakeGateway() as gateway, Initiator("ann", gateways=gateway.url, **source) as ann:
        is_faulty = True
        file.write_text("") if fault == "empty" else file.unlink()
        await gateway.sockets[0].close()
        async with asyncio.timeout(15):
            while not any("not connected" in one for one in warned(caplog)):
                await asyncio.sleep(0.01)
        assert why in warned(caplog)[0]
        is_faulty = False
        file.write_text("t")
        await gateway.until(lambda: len(gateway.sockets) == 2)
        await ann.call("topic://courier")


async def test_a_function_that_takes_longer_than_a_connection_may_gives_its_token_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("llmx.gateways.CONNECT_TIMEOUT_S", 0.2)

    async def token() -> str:
        await asyncio.sleep(0.4)
        return "late"

    async with FakeGateway() as gateway, Initiator("ann", gateways=gateway.url, token=token):
        assert gateway.tokens == ["late"]


async def test_a_token_file_that_holds_no_token_and_an_address_that_is_none_are_named(tmp_path: Path) -> None:
    empty = tmp_path / "ann.jwt"
    empty.write_text("\n")
    async with FakeGateway() as gateway:
        for path, named in [(empty, "is empty"), (tmp_path / "none.jwt", "cannot be read")]:
            with pytest.raises(TokenFileError, match=named):
                await Initiator("ann", gateways=gateway.url, token_file=path).__aenter__()
    for address in ["nothing", "127.0.0.1:8080", "ftp://host"]:
        with pytest.raises(ValueError, match="give http://HOST:PORT"):
            Initiator("ann", gateways=address, token="t")


async def test_an_asynchronous_function_gives_tokens_too() -> None:
    async def token() -> str:
        await asyncio.sleep(0)
        return "asked"

    async with FakeGateway() as gateway, Initiator("ann", gateways=gateway.url, token=token):
        assert gateway.tokens == ["asked"]


async def test_a_token_that_was_never_accepted_ends_the_agent_and_is_not_taken_elsewhere() -> None:
    async with FakeGateway() as first, FakeGateway() as second:
        for gateway in (first, second):
            gateway.refuse_token = lambda _: True
        with pytest.raises(TokenRefusedError) as caught:
            async with initiator(first, second):
                pass
        assert caught.value.code == "token_expired"
        assert (len(first.tokens) == 0) != (len(second.tokens) == 0)


async def test_a_token_is_never_shown() -> None:
    agent = Agent(contractor(), gateways="http://127.0.0.1:9", token="secret")
    assert "secret" not in repr(agent._token) + repr(agent.gateways.__dict__)


async def test_nothing_is_half_sent_when_the_caller_is_cancelled() -> None:
    async with FakeGateway() as gateway, initiator(gateway) as ann:
        for number in range(50):
            calling = asyncio.create_task(ann.call("topic://courier", own_id=f"n{number}"))
            for _ in range(number % 5):
                await asyncio.sleep(0)
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)
        async with asyncio.timeout(10):
            while not ann.agent.summary.accepted or ann.agent._session.unanswered_count:
                await asyncio.sleep(0.01)
        named = [message["envelope"]["negotiation"] for message in gateway.messages]
        assert len(named) == len(set(named)), "each at most once, and whole"


async def test_the_end_deregisters_acknowledges_and_waits_for_answers() -> None:
    async with FakeGateway() as gateway:
        agent = Agent(contractor(), gateways=gateway.url, token="t")
        late: list[dict[str, Any]] = []

        def answer_later(frame: dict[str, Any]) -> None:
            late.append(frame)

        gateway.answer = answer_later
        async with agent:
            delivery_id = await gateway.deliver(cfp())
            await gateway.until(lambda: bool(late))
            asyncio.get_running_loop().call_later(
                0.2, lambda: asyncio.ensure_future(gateway.send(gateway.accept(late[0]) or {}))
            )
        paths = [(method, path) for method, path, _ in gateway.requests if method != "GET"]
        assert paths == [("PUT", "/v1/agents/bob"), ("DELETE", "/v1/agents/bob")]
        assert gateway.acked() == {delivery_id}
        assert agent.summary.accepted == 1
        with pytest.raises(EndedError):
            agent.post("x~y", Refuse())


async def test_an_agent_registers_anew_at_every_connection() -> None:
    async with FakeGateway() as gateway, Agent(contractor(), gateways=gateway.url, token="t"):
        await gateway.sockets[0].close()
        await gateway.until(lambda: len(gateway.requests) == 3)
        body = {"capabilities": [], "topics": ["courier"], "consent": {"default": "allow"}}
        body["instance"] = gateway.registered or "none"
        assert gateway.requests[1:] == [("PUT", "/v1/agents/bob", body)] * 2


async def test_the_old_process_of_a_rolling_restart_leaves_the_registration_of_the_new_one() -> None:
    async with FakeGateway() as gateway:
        old = Agent(contractor(), gateways=gateway.url, token="t")
        await old.start()
        before = gateway.registered
        async with Agent(contractor(), gateways=gateway.url, token="t") as new:
            await old.end()
            assert gateway.registered not in (None, before)
            changed = Registration(topics=("parcels",))
            await Api(new.gateways).register("bob", changed)
            assert "its registration" not in old.left_undone()
        assert gateway.registered is None


@pytest.mark.parametrize("lease_ms", [None, 200])
async def test_an_agent_that_is_registered_no_longer_registers_again_within_its_lease(
    lease_ms: int | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("llmx.agent.LEASE_S", 0.2 if lease_ms is None else 60.0)
    bob = contractor()
    bob.registration = Registration(lease_ms=lease_ms, instance="mine")
    async with FakeGateway() as gateway, Agent(bob, gateways=gateway.url, token="t"):
        for _ in range(2):
            gateway.registered = None
            await gateway.until(lambda: gateway.registered == "mine", 10)
    assert warned(caplog) == ["bob: its registration was taken away; it registers again"] * 2


async def test_a_gateway_that_ends_every_stream_at_once_is_not_asked_without_a_pause() -> None:
    async with FakeGateway() as gateway:

        async def end_streams() -> None:
            while True:
                await gateway.until(lambda: any(not one.closed for one in gateway.sockets), 60)
                await asyncio.gather(*(one.close() for one in gateway.sockets if not one.closed))

        ending = asyncio.create_task(end_streams())
        async with Initiator("ann", gateways=gateway.url, token="t"):
            await asyncio.sleep(1.5)
        ending.cancel()
        assert 2 <= len(gateway.sockets) <= 8


async def test_what_is_out_of_reach_is_given_up_after_the_attempts_that_were_asked_for() -> None:
    limits = Limits(connect_attempts_max=2)
    with pytest.raises(UnreachableError):
        async with Initiator("ann", gateways="http://127.0.0.1:9", token="t", limits=limits):
            pass


async def test_beyond_the_bounds_nothing_is_sent_and_deliveries_are_left_to_come_again() -> None:
    async with FakeGateway() as gateway, initiator(gateway, limits=Limits(unanswered_max=1, end_s=0.2)) as ann:
        gateway.answer = lambda _: None
        first = asyncio.create_task(ann.call("topic://courier"))
        await gateway.until(lambda: bool(gateway.messages))
        with pytest.raises(OverloadedError, match="unanswered_max"):
            await ann.call("topic://courier")
        first.cancel()
    bob, release = contractor(Limits(handlers_max=1)), asyncio.Event()

    @bob.on_call
    async def answer(call: IncomingCall) -> Offer:
        await release.wait()
        return call.offer(TERMS)

    async with FakeGateway() as gateway, Agent(bob, gateways=gateway.url, token="t") as agent:
        await gateway.deliver(cfp(), negotiation="alice~1")
        await gateway.deliver(cfp(), negotiation="alice~2", delivery_id="b" * 32)
        async with asyncio.timeout(15):
            while not agent.summary.put_off:
                await asyncio.sleep(0.01)
        release.set()
        await gateway.until(lambda: len(gateway.messages) == 1)
        assert "b" * 32 not in gateway.acked()
        await gateway.deliver(cfp(), negotiation="alice~2", delivery_id="b" * 32)
        await gateway.until(lambda: len(gateway.messages) == 2)


async def test_a_receipt_that_rides_on_another_delivery_counts_like_one_that_comes_alone() -> None:
    async with FakeGateway() as gateway, Agent(contractor(), gateways=gateway.url, token="t") as agent:
        gateway.answer = lambda frame: refused(frame, problem("log_unavailable", 503, retry_after_ms=60_000))
        await gateway.deliver(cfp())
        await gateway.until(lambda: bool(gateway.messages))
        offer_id = gateway.messages[0]["envelope"]["msg_id"]
        await asyncio.sleep(0.05)
        receipts = [{"ack_of": offer_id, "disposition": "ok", "offer_id": "o1-0"}]
        await gateway.deliver({"act": "reject", "reason": "outscored"}, receipts=receipts)
        async with asyncio.timeout(15):
            while not agent.summary.accepted:
                await asyncio.sleep(0.01)


async def test_a_delivery_of_a_later_version_is_not_acknowledged_and_hides_no_other() -> None:
    async with FakeGateway() as gateway, Agent(contractor(), gateways=gateway.url, token="t") as agent:
        await gateway.deliver({"act": "telepathy"}, delivery_id="c" * 32)
        known = await gateway.deliver(cfp(later_member=1))
        await gateway.until(lambda: gateway.acked() == {known})
        assert agent.summary.unreadable == 1


async def test_a_gateway_that_stops_answering_is_left_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmx.session.ANSWER_TIMEOUT_S", 0.2)
    async with FakeGateway() as first, FakeGateway() as second, initiator(first, second) as ann:
        silent, other = (first, second) if first.sockets else (second, first)
        silent.answer = lambda _: None
        await ann.call("topic://courier")
        assert silent.messages == other.messages


@pytest.mark.parametrize(
    "garbage", ["no json", "[1]", "[" * 100_000, "{}", '{"type":"accepted","id":"1"}', '{"type":7}']
)
async def test_what_no_gateway_would_say_ends_no_agent(garbage: str) -> None:
    async with FakeGateway() as gateway, initiator(gateway, limits=Limits(retry_base_s=0.01)) as ann:
        is_first = True
        tasks: list[asyncio.Task[None]] = []

        async def confuse() -> None:
            socket = gateway.sockets[-1]
            await socket.send_str(garbage)
            await asyncio.sleep(0.1)
            await socket.close()

        def answer(frame: dict[str, Any]) -> dict[str, Any] | None:
            nonlocal is_first
            if not is_first:
                return gateway.accept(frame)
            is_first = False
            tasks.append(asyncio.create_task(confuse()))
            return None

        gateway.answer = answer
        call = await ann.call("topic://courier")
        assert gateway.messages[0] == gateway.messages[-1]
        assert call.negotiation.startswith("ann~")


async def test_a_token_does_not_follow_a_redirect() -> None:
    seen: list[str] = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("Authorization", ""))
        return web.Response(status=500)

    async def redirect(request: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect(f"http://localhost:{other.port}{request.path}")

    async with Server(elsewhere) as other, Server(redirect) as gateway:
        ann = Initiator("ann", gateways=gateway.url, token="secret", limits=Limits(connect_attempts_max=1))
        with pytest.raises((RefusedError, UnreachableError)):
            await ann.agent.start()
    assert not any("secret" in one for one in seen)


@pytest.mark.parametrize("is_present", [True, False])
async def test_an_agent_that_is_present_already_is_warned_of_once(
    is_present: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeGateway() as gateway:
        gateway.answers["/v1/agents/bob"] = {"agent": "bob", "present": is_present}
        async with Agent(contractor(), gateways=gateway.url, token="t"):
            # Its own stream makes it present, so that it is asked about before.
            assert [method for method, _, _ in gateway.requests] == ["GET", "PUT"]
            await gateway.sockets[0].close()
            await gateway.until(lambda: len(gateway.sockets) == 2)
    warnings = [record.getMessage() for record in caplog.records if "present already" in record.getMessage()]
    assert len(warnings) == is_present


@pytest.mark.parametrize("reason", ["the bus has not answered for 4 s; check that nats-server runs", None, "silence"])
async def test_an_agent_says_why_a_gateway_is_not_ready(
    reason: str | None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmx.gateways.ASK_TIMEOUT_S", 0.1)

    async def unready() -> web.Response:
        if reason == "silence":
            await asyncio.sleep(60)
        if reason is None:
            return web.Response(body=b"\xff", status=500)
        return web.json_response(problem("unavailable", 503, detail=reason), status=503)

    async with FakeGateway() as gateway:
        gateway.unready = unready
        agent = Agent(contractor(), gateways=gateway.url, token="t")
        starting = asyncio.create_task(agent.start())
        async with asyncio.timeout(15):
            while not any("not connected" in one.getMessage() for one in caplog.records):
                await asyncio.sleep(0.01)
        gateway.unready = None
        await starting
        await agent.end()
    said = next(one.getMessage() for one in caplog.records if "not connected" in one.getMessage())
    is_said = reason not in (None, "silence")
    assert said == f"bob: not connected: unavailable: {reason if is_said else 'Invalid response status'}"


async def test_a_call_that_cannot_be_sent_is_not_kept_and_ends_nothing() -> None:
    async with FakeGateway() as gateway, initiator(gateway) as ann:
        with pytest.raises(UnsendableError, match=r"^/constraints/price: Decimal cannot be sent"):
            await ann.call("topic://courier", constraints={"price": Decimal(1)})  # type: ignore[dict-item]
        with pytest.raises(TypeError, match=r"^str is no act"):
            await ann.agent.send("ann~1", "offer")  # type: ignore[arg-type]
        assert not ann._calls
        await ann.call("topic://courier")


async def test_nothing_a_participant_does_ends_its_agent() -> None:
    class Odd(Initiator):
        def handle(self, delivery: Delivery) -> Any:
            return 7

    def fail(_: Any) -> None:
        raise ValueError("no idea")

    async with FakeGateway() as gateway, Odd("ann", gateways=gateway.url, token="t") as ann:
        delivery_id = await gateway.deliver(closed())
        ann.agent.post("ann~1", Refuse(), on_settled=fail)
        await gateway.until(lambda: gateway.acked() == {delivery_id})
        await ann.call("topic://courier")
        assert ann.agent.summary.connections == 1


class Server:
    """A web server with one handler."""

    def __init__(self, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        self.port = 0

    async def __aenter__(self) -> "Server":
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        server: Any = site._server
        self.port = server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"


RUN = """
import sys
from llmx import Contractor, run

bob = Contractor(sys.argv[1])

@bob.on_call
async def answer(call):
    return call.refuse()

@bob.on_commit
async def work(job):
    return job.done()

source = {"token_file": sys.argv[2]} if sys.argv[2].endswith(".jwt") else {"token": sys.argv[2]}
run(bob, gateways=sys.argv[3:], **source)
"""


@pytest.mark.parametrize(
    ("name", "token", "gateways", "ends"),
    [
        ("bob", "t", [], (2, "bob: give the address of at least one gateway")),
        (
            "bob",
            "t",
            ["localhost:8080"],
            (2, "bob: 'localhost:8080' is no address of a gateway: give http://HOST:PORT"),
        ),
        (
            "bob",
            "",
            ["HERE"],
            (2, "bob: the token is empty, or has characters that no token has; `llmx token AGENT` prints one"),
        ),
        ("bob", "two\nlines", ["HERE"], (2, "bob: the token is empty, or has characters that no token has")),
        ("bob", "EMPTY.jwt", ["HERE"], (2, "EMPTY.jwt is empty; `llmx token AGENT > ")),
        ("bob", "MISSING.jwt", ["HERE"], (2, "MISSING.jwt cannot be read: ")),
        ("bob", "refused", ["HERE"], (1, "bob: token_expired: a detail")),
        ("bob smith", "t", ["HERE"], (2, "bob smith: 'bob smith' is no agent's id: give 1 to 64 characters")),
    ],
)
async def test_a_run_that_cannot_begin_says_why_in_one_line(
    name: str, token: str, gateways: list[str], ends: tuple[int, str], tmp_path: Path
) -> None:
    (tmp_path / "EMPTY.jwt").write_text("\n")
    async with FakeGateway() as gateway:
        gateway.refuse_token = lambda presented: presented == "refused"
        urls = [gateway.url if url == "HERE" else url for url in gateways]
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-c", RUN, name, token, *urls, cwd=tmp_path, stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(10):
            _, printed = await program.communicate()
    [said] = printed.decode().splitlines()
    assert program.returncode == ends[0]
    assert ends[1] in said


async def test_space_around_a_token_does_not_belong_to_it() -> None:
    for source in ("t\n", lambda: " t\n"):
        async with FakeGateway() as gateway, Initiator("ann", gateways=gateway.url, token=source):
            assert gateway.tokens == ["t"]


def test_the_version_is_that_of_the_package() -> None:
    assert llmx.__version__ == version("llmx")


SLOW = """
import asyncio, sys
from llmx import Contractor, run

bob = Contractor("bob")

@bob.on_call
async def answer(call):
    await asyncio.sleep(60)

@bob.on_commit
async def work(job):
    return job.done()

run(bob, gateways=sys.argv[1:], token="t")
"""


@pytest.mark.parametrize(
    ("signals", "left"),
    [
        ([signal.SIGINT, signal.SIGINT], "1 running handler"),
        ([signal.SIGTERM, signal.SIGTERM, signal.SIGINT], "1 running handler"),
        ([signal.SIGINT], None),
    ],
)
async def test_a_second_signal_ends_at_once_and_says_in_one_line_what_is_left_undone(
    signals: list[signal.Signals], left: str | None
) -> None:
    async with FakeGateway() as gateway:
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SLOW, gateway.url, stderr=asyncio.subprocess.PIPE
        )
        if left is not None:
            delivery_id = await gateway.deliver(cfp())
            await gateway.until(lambda: gateway.acked() == {delivery_id})
        else:
            await gateway.until(lambda: any(method == "PUT" for method, _, _ in gateway.requests))
        program.send_signal(signals[0])
        await gateway.until(lambda: gateway.requests[-1][0] == "DELETE")
        await asyncio.sleep(0.2)
        if left is not None:
            # Stopped meanwhile: a third one that came after it has ended would find the interpreter without handlers.
            for number in (signal.SIGSTOP, *signals[1:], signal.SIGCONT):
                program.send_signal(number)
        async with asyncio.timeout(5):
            _, printed = await program.communicate()
        said = printed.decode().splitlines()
        if left is None:
            assert (program.returncode, said) == (0, [])
        else:
            assert (program.returncode, len(said)) == (1, 1), said
            assert said[0].endswith(f"bob: ends at once; left undone: {left}")


async def test_two_signals_at_once_leave_the_registration_and_say_so() -> None:
    async with FakeGateway() as gateway:
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SLOW, gateway.url, stderr=asyncio.subprocess.PIPE
        )
        await gateway.deliver(closed())
        await gateway.until(lambda: bool(gateway.acks))
        for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            program.send_signal(number)
        async with asyncio.timeout(5):
            _, printed = await program.communicate()
        said = printed.decode().splitlines()
        assert (program.returncode, len(said)) == (1, 1), said
        assert "left undone: its registration" in said[0]
