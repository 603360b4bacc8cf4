"""Bargains between a Python party and the Rust SDK's, on the exchange: offer by offer as the exchange's core plays them."""

import asyncio
import json
import os
import random
import subprocess
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llmx import (
    Accept,
    Agent,
    Bargainer,
    BargainResult,
    Domain,
    End,
    Invitation,
    LlmxError,
    MyTurn,
    Offer,
    Plan,
    TimeDependent,
)

from .exchange import BINARY, ROOT, Exchange

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

RUNS = int(os.environ.get("LLMX_BARGAINS", "8"))
RUST = Path(os.environ.get("LLMX_BARGAINER", ROOT / "target" / "debug" / "examples" / "bargainer"))
"""The example `bargainer` of the Rust SDK (cargo build --examples)."""
AT_A_TIME = 4
OTHERS = ("boulware", "linear", "conceder", "tit-for-tat")
"""The strategies of the Rust SDK that draw nothing."""

if not RUST.exists():
    warnings.warn(f"NOT RUN: bargains against the Rust SDK; {RUST} is missing (cargo build --examples)", stacklevel=1)
    pytest.skip(f"NOT RUN: {RUST} is missing", allow_module_level=True)


@dataclass(frozen=True)
class Case:
    """Who bargains about what. The Python party plays `boulware`."""

    number: int
    domain: str
    rounds: int
    side: int
    others: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.number}: {self.domain}, {self.rounds} rounds, party {self.side} against {self.others}"


def cases() -> list[Case]:
    """Every domain, side and strategy, with rounds that differ."""
    draw, found = random.Random(1), []
    domains = sorted(file.stem for file in (ROOT / "domains").glob("*.json"))
    for number in range(RUNS):
        domain = domains[number % len(domains)]
        parties = len(json.loads((ROOT / "domains" / f"{domain}.json").read_text(encoding="utf-8"))["parties"])
        others = tuple(draw.choice(OTHERS) for _ in range(parties - 1))
        # The Rust example calls one other: among three, the Python party calls.
        side = number // len(domains) % 2 if parties == 2 else 0
        found.append(Case(number, domain, draw.randrange(3, 26), side, others))
    return found


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    with Exchange(tmp_path_factory.mktemp("bargains")) as running:
        yield running


async def test_a_python_party_comes_to_the_outcomes_of_the_rust_strategy_it_repeats(exchange: Exchange) -> None:
    at_a_time = asyncio.Semaphore(AT_A_TIME)

    async def play(case: Case) -> str | None:
        async with at_a_time:
            return await play_one(exchange, case)

    faults = [fault for fault in await asyncio.gather(*map(play, cases())) if fault is not None]
    assert faults == []


async def play_one(exchange: Exchange, case: Case) -> str | None:
    """What differs between the bargain on the exchange and in the core; None: nothing."""
    file = exchange.folder / f"domain-{case.number}.json"
    document = json.loads((ROOT / "domains" / f"{case.domain}.json").read_text(encoding="utf-8"))
    document["rules"]["rounds"] = case.rounds
    file.write_text(json.dumps(document), encoding="utf-8")
    strategies = list(case.others)
    strategies.insert(case.side, "boulware")
    expected = await asyncio.to_thread(core, file, strategies)
    names = [party["name"] for party in document["parties"]]
    agents = [f"{name}-{case.number}" for name in names]
    party = Party(file, names, agents, case.side)
    async with Agent(party.bargainer, gateways=exchange.urls, token=exchange.token(agents[case.side])):
        processes = []
        try:
            # The first party calls the others, so it starts last.
            for index in reversed(range(len(agents))):
                if index != case.side:
                    called = agents[1:2] if index == 0 else []
                    processes.append(rust(exchange, agents[index], file, names[index], strategies[index], *called))
                    if not called:
                        await until_ready(party, agents[index])
            async with asyncio.timeout(90):
                result = await (party.open(agents[1:]) if case.side == 0 else party.ended)
        finally:
            for process in processes:
                process.kill()
                process.wait()
    return difference(case, party, result, expected)


def core(file: Path, strategies: list[str]) -> Any:
    """The same bargain in the exchange's core alone."""
    named = [part for flag, strategy in zip("abc", strategies, strict=False) for part in (f"--{flag}", strategy)]
    command = [f"{BINARY}-lab", "bargain", str(file), *named, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def rust(exchange: Exchange, agent: str, *arguments: str | Path) -> "subprocess.Popen[bytes]":
    """A party of the Rust SDK: its domain file, party, strategy, and whom it calls."""
    command: list[str | Path] = [RUST, exchange.urls[0], agent, exchange.token(agent), *arguments]
    with (exchange.folder / f"{agent}.log").open("wb") as log:
        return subprocess.Popen(command, cwd=exchange.folder, stdout=log, stderr=log)


async def until_ready(party: "Party", agent: str) -> None:
    """Waits until an agent is there to be called."""
    path = f"/v1/agents/{agent}"
    async with asyncio.timeout(30):
        while True:
            try:
                if (await party.agent.gateways.request("GET", path))["present"]:
                    return
            except LlmxError:
                await asyncio.sleep(0.05)


class Party:
    """The Python side: `boulware`, and what it offered."""

    def __init__(self, file: Path, names: list[str], agents: list[str], side: int) -> None:
        self.domain = Domain.read(file)
        self.name = names[side]
        self.bargainer = Bargainer(agents[side])
        self.offers: list[Any] = []
        self.ended: asyncio.Future[BargainResult] = asyncio.get_running_loop().create_future()
        self.bargainer.on_invitation(self.join)
        self.bargainer.on_close(self.close)

    @property
    def agent(self) -> Agent:
        """The agent it runs as."""
        agent = self.bargainer._agent
        assert agent is not None
        return agent

    def plan(self) -> Plan:
        """Its strategy, bound by its mandate, and writing down what it offers."""
        preferences = self.domain.preferences(self.name)
        strategy = TimeDependent.boulware(self.domain.space, preferences)

        async def move(turn: MyTurn) -> Offer | Accept | End:
            made = await strategy(turn)
            if isinstance(made, Offer):
                self.offers.append(self.domain.space.outcome(made.terms))
            return made

        return Plan(move, mandate=self.domain.mandate(self.name))

    async def join(self, invitation: Invitation) -> Plan:
        """Takes part."""
        return self.plan()

    async def close(self, result: BargainResult) -> None:
        """The end."""
        if not self.ended.done():
            self.ended.set_result(result)

    async def open(self, others: list[str]) -> BargainResult:
        """Calls the others and waits for the end."""
        to = [f"agent://{other}" for other in others]
        bargain = await self.bargainer.open(*to, rules=self.domain.rules, plan=self.plan())
        return await bargain.end()


def difference(case: Case, party: Party, result: BargainResult, expected: Any) -> str | None:
    """Compares agreement, round, step, and every offer of the Python party."""
    offered = [one["outcome"] for one in expected["trace"] if one["party"] == case.side]
    agreement = result.agreement
    found: dict[str, Any] = {"end": result.outcome, "outcome": None, "offers": party.offers}
    wanted: dict[str, Any] = {"end": expected["end"], "outcome": expected.get("outcome"), "offers": offered}
    if agreement is not None:
        found |= {
            "outcome": party.domain.space.outcome(agreement.terms),
            "round": agreement.round,
            "steps": agreement.step,
        }
        wanted |= {"round": expected["rounds"], "steps": expected["steps"]}
    return None if found == wanted else f"{case}: {found}, in the core {wanted}"
