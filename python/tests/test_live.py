"""The README's programs on the exchange itself, with gateways killed in every phase of a negotiation."""

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from llmx import (
    Api,
    Awarded,
    Close,
    ConflictError,
    Consent,
    ConsentRule,
    ForbiddenError,
    Gate,
    Group,
    Initiator,
    InvalidMessageError,
    NotFoundError,
    Offers,
    Registration,
    Report,
)
from llmx.gateways import Gateways
from llmx.token import Token

from .exchange import ROOT, Exchange, end, free_ports
from .faults import FaultyWay
from .readme import programs, write_programs

# 200 kill runs take a minute and a half, 200 bargains one.
pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

KILL_RUNS = int(os.environ.get("LLMX_KILL_RUNS", "2"))
"""Of each phase."""


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    folder = tmp_path_factory.mktemp("exchange")
    write_programs(folder)
    with Exchange(folder) as running:
        for agent in ("bob", "ann", "shop"):
            running.token_file(agent)
        yield running


def start(exchange: Exchange, program: str, *gateways: str) -> "subprocess.Popen[str]":
    """Starts a program of the README."""
    command = [sys.executable, "-u", program, *(gateways or exchange.urls)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=exchange.folder, stdout=pipe, stderr=subprocess.STDOUT, text=True)


async def until_present(initiator: Initiator, agent: str) -> None:
    """Waits until an agent is there."""
    api = Api(initiator.agent.gateways)
    async with asyncio.timeout(15):
        while agent not in [one.agent async for one in api.agents(present=True)]:
            await asyncio.sleep(0.05)


def test_the_programs_of_the_readme_are_as_short_as_it_says() -> None:
    lengths = {name: len([line for line in text.splitlines() if line.strip()]) for name, text in programs().items()}
    assert lengths.keys() == {"contractor.py", "initiator.py", "bargainer.py"}
    assert lengths["contractor.py"] <= 20
    assert lengths["initiator.py"] <= 20
    assert lengths["bargainer.py"] <= 30


@pytest.mark.parametrize("asked_by", [signal.SIGINT, signal.SIGTERM])
async def test_a_contractor_wins_reports_and_leaves(exchange: Exchange, asked_by: signal.Signals) -> None:
    contractor = start(exchange, "contractor.py")
    async with Initiator("ann", gateways=exchange.urls, token=exchange.token("ann")) as ann:
        await until_present(ann, "bob")
        calling = start(exchange, "initiator.py")
        printed, _ = await asyncio.to_thread(calling.communicate, timeout=20)
        assert re.fullmatch(
            r"award 1 to bob: \{.*'price': 50000000.*\}\nbob is done: left with the neighbour\nclosed: completed\n",
            printed,
        ), printed
        contractor.send_signal(asked_by)
        said, _ = contractor.communicate(timeout=15)
        assert contractor.returncode == 0, said
        assert "delivering for ann" in said
        known = [one.agent async for one in Api(ann.agent.gateways).agents()]
        assert "bob" not in known, "it has deregistered"


async def test_the_new_process_of_a_rolling_restart_stays_registered_when_the_old_one_ends(exchange: Exchange) -> None:
    old = start(exchange, "contractor.py")
    async with Initiator("ann", gateways=exchange.urls, token=exchange.token("ann")) as ann:
        await until_present(ann, "bob")
        new = start(exchange, "contractor.py")
        api, gateways = Api(ann.agent.gateways), Gateways(exchange.urls, "bob", Token(exchange.token("bob")))
        async with gateways as asking, asyncio.timeout(15):
            first = (await asking.request("GET", "/v1/agents/bob"))["instance"]
            while (await asking.request("GET", "/v1/agents/bob"))["instance"] == first:
                await asyncio.sleep(0.05)
        await asyncio.to_thread(end, old)
        assert (await api.agent("bob")).topics == ("courier",)
        call = await ann.call("topic://courier", task="deliver one parcel", reply_within_ms=5000)
        assert (await call.end()).outcome == "completed"
        await asyncio.to_thread(end, new)
        with pytest.raises(NotFoundError):
            await api.agent("bob")


async def test_a_bargainer_agrees_with_one_that_uses_no_library(exchange: Exchange) -> None:
    shop = start(exchange, "bargainer.py")
    async with Initiator("ann", gateways=exchange.urls, token=exchange.token("ann")) as ann:
        await until_present(ann, "shop")
    other = ROOT / "examples" / "python" / "bargainer.py"
    command = [sys.executable, str(other), exchange.urls[0], "ben", exchange.token("ben"), "buyer", "shop"]
    buyer = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert buyer.returncode == 0, buyer.stdout + buyer.stderr
    assert "agreement" in end(shop)


@pytest.mark.parametrize(
    ("caller", "before", "says"),
    [("lead.py", [], "closed: not_formed"), ("panelist.py", ["42"], "no_answer")],
)
async def test_nobody_waits_for_a_contractor_that_is_called_to_a_team_or_asked_by_a_panel(
    exchange: Exchange, caller: str, before: list[str], says: str
) -> None:
    contractor = start(exchange, "contractor.py")
    async with Initiator("ann", gateways=exchange.urls, token=exchange.token("ann")) as ann:
        await until_present(ann, "bob")
    path = str(ROOT / "examples" / "python" / caller)
    command = [sys.executable, path, exchange.urls[0], "lea", exchange.token("lea"), *before, "bob"]
    began = time.monotonic()
    calling = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert says in calling.stdout, calling.stdout + calling.stderr
    assert time.monotonic() - began < 4.0, "it would wait for five seconds"
    await asyncio.to_thread(end, contractor)


async def test_refusals_of_a_gateway_are_typed(exchange: Exchange) -> None:
    async with Initiator("ann", gateways=exchange.urls, token=exchange.token("ann")) as ann:
        with pytest.raises(InvalidMessageError) as nobody:
            await ann.call("agent://nobody-there")
        assert nobody.value.code == "no_recipient"
        with pytest.raises(InvalidMessageError) as unknown:
            await ann.call("topic://courier", policy="mediun")
        assert (unknown.value.code, unknown.value.pointer) == ("unknown_policy", "/payload/policy")
        assert unknown.value.expected
        api = Api(ann.agent.gateways)
        with pytest.raises(NotFoundError):
            await api.agent("nobody-there")
        with pytest.raises(ForbiddenError) as forbidden:
            await api.switch_default_policy("high")
        assert forbidden.value.code == "unauthorized"


async def test_registers_are_read_and_written(exchange: Exchange) -> None:
    consent = Consent(default="deny", rules=(ConsentRule(effect="allow", counterpart="ann"),))
    registration = Registration(topics=("courier",), capabilities=("bicycle",), consent=consent, description="by hand")
    admin = exchange.token("ann", "--admin")
    async with Initiator("ann", gateways=exchange.urls, token=admin, registration=registration) as ann:
        api = Api(ann.agent.gateways)
        known = await api.agent("ann")
        assert (known.present, known.topics, known.capabilities) == (True, ("courier",), ("bicycle",))
        await api.consent("ann", Consent(default="allow"))
        assert "ann" in [one.agent async for one in api.agents(topic="courier", capability="bicycle")]
        medium = await api.policy("medium")
        quick = replace(medium, id="quick@1", close=Close(k_valid=1))
        await api.put_policy(quick)
        stored = await api.policy("quick@1")
        assert (stored.id, stored.weights, stored.close and stored.close.k_valid) == ("quick@1", medium.weights, 1)
        assert {"quick@1", "medium@1"} <= {one.id for one in await api.policies()}
        assert (await api.default_policy()).startswith("medium")
        with pytest.raises(ConflictError):
            await api.put_policy(replace(quick, close=Close(k_valid=2)))
        await api.put_group(Group(id="fleet", members=("ann", "bob")))
        assert (await api.group("fleet")).members == ("ann", "bob")


async def test_an_initiator_that_decides_itself_chooses_among_the_offers(exchange: Exchange) -> None:
    async with Initiator("ann", gateways=exchange.urls, token=exchange.token("ann", "--admin")) as ann:
        api = Api(ann.agent.gateways)
        await api.put_policy(replace(await api.policy("medium"), id="mine@1", decider="initiator", decide_ms=20_000))
        contractor = start(exchange, "contractor.py")
        await until_present(ann, "bob")
        call = await ann.call("agent://bob", policy="mine@1", gates=[Gate(attr="price", max=60_000_000)])
        assert call.policy == "mine@1"
        chosen = ""
        async for event in call:
            if isinstance(event, Offers):
                chosen = event.offers[0].contractor
                await call.accept(event.offers[0].offer_id)
        assert (chosen, (await call.end()).outcome) == ("bob", "completed")
        assert (await api.negotiation(call.negotiation))["awards"][0]["contractor"] == "bob"
        await asyncio.to_thread(end, contractor)


class Killing:
    """Kills the gateway that the contractor is connected to, in a phase, and starts it again after the negotiation."""

    def __init__(self, exchange: Exchange, ways: list[FaultyWay], draw: random.Random) -> None:
        self.exchange, self.ways, self.draw = exchange, ways, draw
        self.phase: str | None = None
        self.killed: int | None = None
        for number, way in enumerate(ways):
            way.on_frame = lambda direction, frame, number=number: self.handle(number, direction, frame)  # type: ignore[misc]

    def handle(self, number: int, direction: str, frame: dict[str, Any]) -> None:
        """A frame is about to pass."""
        payload = (frame.get("delivery") or frame.get("message") or {}).get("payload", {})
        phase = {
            ("up", "offer"): "before_award",
            ("down", "accept"): "before_confirmation",
            ("down", "ack"): "working" if payload.get("disposition") == "committed" else None,
        }.get((direction, payload.get("act", "")))
        if phase is not None and phase == self.phase:
            self.phase = None
            asyncio.get_running_loop().call_later(self.draw.random() * 0.03, self.kill, number)

    def kill(self, number: int) -> None:
        """Now."""
        self.killed = number
        self.exchange.kill_gateway(number)

    async def heal(self) -> None:
        """The killed gateway is started again."""
        async with asyncio.timeout(10):
            while self.killed is None:
                await asyncio.sleep(0.01)
        await asyncio.to_thread(self.exchange.start_gateway, self.killed)
        self.killed = None


@asynccontextmanager
async def faulty_ways(exchange: Exchange, draw: random.Random) -> AsyncIterator[list[FaultyWay]]:
    """A faulty way to each gateway."""
    ports = free_ports(2)
    async with FaultyWay(exchange.urls[0], ports[0], draw) as one, FaultyWay(exchange.urls[1], ports[1], draw) as other:
        yield [one, other]


@pytest.mark.parametrize("phase", ["before_call", "before_award", "before_confirmation", "working"])
async def test_no_act_is_lost_or_doubled_when_a_gateway_is_killed(exchange: Exchange, phase: str) -> None:
    draw = random.Random(f"{phase}")
    async with faulty_ways(exchange, draw) as ways:
        killing = Killing(exchange, ways, draw)
        contractor = start(exchange, "contractor.py", *(way.url for way in ways))
        async with Initiator("ann", gateways=exchange.urls, token=exchange.token("ann")) as ann:
            await until_present(ann, "bob")
            ended = [await one_run(ann, killing, phase) for _ in range(KILL_RUNS)]
        said = await asyncio.to_thread(end, contractor)
    assert Counter(ended) == {("bob", "done", "completed"): KILL_RUNS}, said
    assert said.count("delivering for ann") == KILL_RUNS, "each award is worked on once"
    judge(ways)


async def one_run(ann: Initiator, killing: Killing, phase: str) -> tuple[str, str, str]:
    """One call with a kill in it: who was awarded, what it reported, how it ended."""
    if phase == "before_call":
        killing.kill(next(number for number, way in enumerate(killing.ways) if way.open))
        await asyncio.sleep(killing.draw.random() * 0.05)
    else:
        killing.phase = phase
    async with asyncio.timeout(60):
        call = await ann.call("agent://bob", task="deliver one parcel", reply_within_ms=20_000, policy="medium")
        contractor = reported = ""
        async for event in call:
            if isinstance(event, Awarded):
                contractor = event.contractor
            elif isinstance(event, Report):
                reported = event.kind
        closing = await call.end()
        await killing.heal()
    return contractor, reported, closing.outcome


def judge(ways: list[FaultyWay]) -> None:
    """No second act for a delivery; a repeat has the same bytes; acknowledgements are not one per delivery."""
    acts: dict[str, set[str]] = defaultdict(set)
    documents: dict[str, set[str]] = defaultdict(set)
    for way in ways:
        for message in way.sent:
            acts[message["envelope"]["in_reply_to"]].add(message["envelope"]["msg_id"])
            documents[message["envelope"]["msg_id"]].add(str(message))
    assert all(len(ids) == 1 for ids in acts.values())
    assert all(len(one) == 1 for one in documents.values())
    delivered = [one["envelope"]["msg_id"] for way in ways for one in way.delivered]
    assert len(documents) == 3 * KILL_RUNS, "an offer, a confirmation and a report for each award"
    assert set(acts) <= set(delivered)
    assert all(1 <= count <= 256 for way in ways for count in way.ack_frames)
