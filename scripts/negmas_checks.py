"""What scripts/check-negmas runs where NegMAS is installed."""

import asyncio
import copy
import itertools
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import numpy
from llmx import Agent, Bargainer, Offer, Plan
from llmx.errors import LlmxError
from llmx.negmas import NegmasParty, from_domain, from_scenario, load
from llmx.negmas.competitor import Draws
from negmas.inout import Scenario
from negmas.preferences.generators import generate_multi_issue_ufuns
from negmas.sao import SAOMechanism
from negmas.sao.negotiators import (
    AspirationNegotiator,
    BoulwareTBNegotiator,
    ConcederTBNegotiator,
    MiCRONegotiator,
    NaiveTitForTatNegotiator,
)
from tests.exchange import BINARY, ROOT, Exchange

try:
    from anl.anl2024.negotiators.builtins.micro import MiCRO
    from anl.anl2024.runner import mixed_scenarios
except ImportError:
    MiCRO, mixed_scenarios = MiCRONegotiator, None

DOMAINS, PAIRS_ALIKE_MIN = 20, 16
ROUNDS = 30
AT_A_TIME = 4
BARGAIN_S, CHECK_S = 60, 300
# What a utility may differ by: rounded down to parts per million, or as real numbers are computed.
IN_INTEGERS, IN_REALS = 1e-6, 1e-9
SIZES = [(5, 4, 3), (3, 3, 3, 3), (10, 6), (2, 4, 8), (7, 7), (4, 4, 4), (12, 5), (3, 2, 4, 3)]
# Kinds, and what they are made with: this one draws what it offers.
NEGOTIATORS = {
    BoulwareTBNegotiator: {},
    ConcederTBNegotiator: {},
    AspirationNegotiator: {"aspiration_type": "linear", "stochastic": True},
    NaiveTitForTatNegotiator: {},
    MiCRO: {},
}


def seeded(seed):
    random.seed(seed)
    numpy.random.seed(seed)


def generated(seed, sizes, **more):
    """A scenario of NegMAS's generator."""
    seeded(seed)
    names = tuple(f"issue{place}" for place in range(len(sizes)))
    ufuns = generate_multi_issue_ufuns(
        len(sizes), sizes=sizes, reserved_values=(0.1, 0.4), issue_names=names, os_name=f"generated{seed}", ufun_names=("first", "second"),
        **more,
    )
    return Scenario(outcome_space=ufuns[0].outcome_space, ufuns=ufuns)


def scenarios():
    """Where each comes from, the scenario, and in what it is stored on the way there and back."""
    for seed, sizes in enumerate(SIZES):
        yield "negmas, categorical", generated(seed, sizes, numeric=False), "xml"
    for seed, sizes in enumerate(SIZES[:6], 100):
        yield "negmas, integers", generated(seed, sizes, numeric=True), "yml"
    for seed, sizes in enumerate(SIZES[:2], 200):
        # NegMAS writes no such function to any file that it reads.
        yield "negmas, a table", generated(seed, sizes, numeric=False, linear=False), None
    seeded(300)
    of_anl = mixed_scenarios(4, 60) if mixed_scenarios else [generated(seed, SIZES[0], numeric=False) for seed in range(300, 304)]
    for scenario in of_anl:
        yield "anl" if mixed_scenarios else "negmas in place of anl", scenario, "xml"


def stored(scenario, form, folder):
    """The scenario as it is read again from files."""
    if form is None:
        return scenario
    folder.mkdir(parents=True)
    (scenario.to_genius_folder if form == "xml" else scenario.to_yaml)(folder)
    return load(folder)


def difference(one, other):
    """The largest of a utility or reserved value. A reserved value below 0 is as good as 0."""
    values = [[list(issue.all) for issue in scenario.issues] for scenario in (one, other)]
    if values[0] != values[1] or [issue.name for issue in one.issues] != [issue.name for issue in other.issues]:
        return float("inf")
    found = 0.0
    for mine, its in zip(one.ufuns, other.ufuns, strict=True):
        found = max(found, abs(max(mine.reserved_value, 0.0) - max(its.reserved_value, 0.0)))
        found = max(found, *(abs(float(mine(outcome)) - float(its(outcome))) for outcome in itertools.product(*values[0])))
    return found


def check_domains(home):
    """Whether all of them come back as they were."""
    passed, lab = 0, pathlib.Path(f"{BINARY}-lab")
    for number, (source, made, form) in enumerate(scenarios()):
        scenario, file = stored(made, form, home / f"{number}-there"), home / f"{number}.json"
        there = from_scenario(scenario, rounds=ROUNDS)
        file.write_text(json.dumps(there.document))
        back = stored(from_domain(json.loads(file.read_text())).scenario, form, home / f"{number}-back")
        forms = [next(iter(party["utility"])) for party in there.document["parties"]]
        most = IN_REALS if set(forms) == {"linear_real"} else IN_INTEGERS
        found = difference(scenario, back)
        refused = read_by(lab, file)
        passed += found <= most and not refused
        size = scenario.outcome_space.cardinality
        said = f"{size} outcomes, {form or 'in memory'}, {' and '.join(sorted(set(forms)))}: differs by {found:.1e}, at most {most:.0e}"
        print(f"domains {source:20} {'FAIL' if found > most or refused else 'PASS'}  {said}{refused}", flush=True)
    if not lab.exists():
        print(f"domains llmx-lab             NOT RUN  {lab.name} is missing: the exchange's own reader has not seen the files")
    print(f"domains {passed} of {DOMAINS} without a difference beyond the rounding")
    return passed == DOMAINS


def read_by(lab, file):
    """What the exchange's own reader finds wrong."""
    if not lab.exists():
        return ""
    told = subprocess.run([lab, "bargain", file, "--json"], capture_output=True, text=True, timeout=BARGAIN_S)
    return "" if told.returncode == 0 else f"; llmx-lab refuses it: {told.stderr.strip()[-200:]}"


def drawing_alone(kind, seed):
    """A negotiator of this kind whose draws are its own, as those of agents in two processes are."""

    class Seeded(kind):
        draws = Draws(seed)

        def __call__(self, state, dest=None):
            with self.draws:
                return super().__call__(state, dest=dest)

    return Seeded(name=kind.__name__, **NEGOTIATORS[kind])


class Pair:
    """Two negotiators and what they bargain about."""

    def __init__(self, number, kinds):
        self.number, self.kinds, self.seed = number, kinds, 1000 + 2 * number
        self.scenario = generated(number // 5, SIZES[number // 5], numeric=number % 2 == 1)
        self.names = [kind.__name__ for kind in kinds]
        self.draws = bool({AspirationNegotiator, MiCRO} & set(kinds))

    def negotiators(self):
        return [drawing_alone(kind, self.seed + place) for place, kind in enumerate(self.kinds)]

    def alone(self, negotiators):
        """The offers, and the agreement, in NegMAS."""
        scenario = copy.deepcopy(self.scenario)
        mechanism = SAOMechanism(outcome_space=scenario.outcome_space, n_steps=ROUNDS)
        for negotiator, ufun in zip(negotiators, scenario.ufuns, strict=True):
            mechanism.add(negotiator, preferences=ufun)
        mechanism.run()
        places = {negotiator.id: place for place, negotiator in enumerate(negotiators)}
        return [(places[who], tuple(offer)) for who, offer in mechanism.trace], mechanism.agreement

    async def exchanged(self, exchange):
        """The same over the exchange, and what it has refused."""
        offers, refusals, plans = [], [], []
        for place, negotiator in enumerate(self.negotiators()):
            translation = from_scenario(copy.deepcopy(self.scenario), rounds=ROUNDS)
            party = NegmasParty(translation, place, negotiator, in_thread=not self.draws)

            async def move(turn, party=party, place=place, translation=translation):
                made = await party(turn)
                if turn.refusal is not None:
                    refusals.append(f"{self.names[place]}: {turn.refusal}")
                if isinstance(made, Offer):
                    offers.append((turn.round, place, translation.outcome(made.terms)))
                return made

            plans.append(Plan(move, mandate=translation.mandate(place)))
        names = [f"{side}-{self.number}" for side in ("a", "b")]
        called = Bargainer(names[1])
        calling = Bargainer(names[0])

        @called.on_invitation
        async def join(_):
            return plans[1]

        async with (
            Agent(called, gateways=exchange.urls, token=exchange.token(names[1])),
            Agent(calling, gateways=exchange.urls, token=exchange.token(names[0])),
            asyncio.timeout(BARGAIN_S),
        ):
            bargain = await opened(calling, names[1], translation.rules, plans[0])
            result = await bargain.end()
        agreement = translation.outcome(result.agreement.terms) if result.agreement else None
        return [(place, outcome) for _, place, outcome in sorted(offers, key=lambda one: one[:2])], agreement, refusals


async def opened(calling, other, rules, plan):
    """A bargain, once the other is there to be called."""
    while True:
        try:
            return await calling.open(f"agent://{other}", rules=rules, plan=plan)
        except LlmxError:
            await asyncio.sleep(0.05)


def reason(alone, exchanged, refusals):
    """Where the two part."""
    pairs = itertools.zip_longest(alone[0], exchanged[0])
    at = next((at for at, (one, other) in enumerate(pairs) if one != other), None)
    where = f"agreement {alone[1]} alone, {exchanged[1]} over the exchange" if at is None else f"offer {at + 1} is another"
    return f"{where}; refused: {', '.join(refusals) or 'nothing'}"


async def check_pairs(home):
    """Whether enough of them come to the same offers and ends, and none beyond its limits."""
    at_a_time = asyncio.Semaphore(AT_A_TIME)
    pairs = [Pair(number, kinds) for number, kinds in enumerate(itertools.product(NEGOTIATORS, repeat=2))]
    alone = [pair.alone(pair.negotiators()) for pair in pairs]

    async def over(exchange, pair):
        async with at_a_time:
            ends[pair.number] = await pair.exchanged(exchange)

    ends = [None] * len(pairs)
    with Exchange(home) as exchange:
        # A thread would take from the numbers of those that draw.
        for draws in (False, True):
            await asyncio.gather(*(over(exchange, pair) for pair in pairs if pair.draws == draws))
    alike = inside = agreements = offers = shared = 0
    for pair, expected, (*found, refusals) in zip(pairs, alone, ends, strict=True):
        is_alike, agreement = list(expected) == found, found[1]
        utilities = [float(ufun(agreement)) for ufun in pair.scenario.ufuns] if agreement else []
        is_inside = all(one >= ufun.reserved_value for one, ufun in zip(utilities, pair.scenario.ufuns, strict=False))
        alike, inside, agreements, offers = alike + is_alike, inside + is_inside, agreements + bool(agreement), offers + len(found[0])
        # As a script of NegMAS is seeded: both negotiators and the mechanism take from one sequence.
        seeded(pair.seed)
        shared += list(pair.alone([kind(**NEGOTIATORS[kind]) for kind in pair.kinds])) == found
        end = f"agreement worth {utilities[0]:.3f} and {utilities[1]:.3f}" if agreement else "no agreement"
        said = f"{len(found[0])} offers, {end}" if is_alike else f"not alike: {reason(expected, found, refusals)}"
        said += "" if is_inside else "; below a reserved value"
        kinds = " against ".join(pair.names)
        print(f"pairs   {kinds:52} seed {pair.seed}  {'PASS' if is_alike and is_inside else 'FAIL'}  {said}", flush=True)
    print(f"pairs   {alike} of {len(pairs)} alike offer by offer ({offers} offers), at least {PAIRS_ALIKE_MIN}; {agreements} agreements")
    print(f"pairs   {shared} of {len(pairs)} are alike too where both draw from one sequence in NegMAS alone")
    return alike >= PAIRS_ALIKE_MIN and inside == len(pairs)


def check_example(home):
    """Whether two processes of the example agree."""
    with Exchange(home) as exchange:
        started = []
        for name, *other in (["shop"], ["ann", "shop"]):
            exchange.token_file(name)
            program, domain = ROOT / "python/examples/negmas_party.py", ROOT / "domains/ecommerce.json"
            command = [sys.executable, program, exchange.urls[0], name, home / f"{name}.jwt", domain, *other]
            started.append(subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True))
            # The other one is to be there when it is called.
            started[-1].stdout.readline()
        said = []
        for process in started:
            try:
                said.append(process.communicate(timeout=BARGAIN_S)[0].strip())
            except subprocess.TimeoutExpired:
                process.kill()
                said.append("does not end")
    is_agreed = said[0] == said[1] and said[0].startswith("agreement {")
    print(f"example {'PASS' if is_agreed else 'FAIL'}  {said[0] if is_agreed else said}")
    return is_agreed


def check_tests(home):
    """The tests of the package that need NegMAS."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_negmas.py"]
    told = subprocess.run(command, cwd=ROOT / "python", capture_output=True, text=True, env=os.environ | {"TMPDIR": str(home)})
    print(f"tests   {'PASS' if told.returncode == 0 else 'FAIL'}  {told.stdout.strip().splitlines()[-1]}")
    if told.returncode != 0:
        print(told.stdout)
    return told.returncode == 0


def check_tournament(home):
    """Whether eight competitors, five of them ours, are ranked over ten domains, and alike from the same seeds."""
    lab = pathlib.Path(f"{BINARY}-lab")
    if not lab.exists():
        print(f"tournament NOT RUN  {lab.name} is missing")
        return True
    negmas = [f"{kind.__module__}.{kind.__name__}" for kind in (BoulwareTBNegotiator, AspirationNegotiator, MiCRO)]
    shipped = [ROOT / f"domains/{name}.json" for name in ("ecommerce", "scheduling", "service_level")]
    # Their rounds bound it; time stands still in a tournament.
    command = [lab, "tournament", *shipped, "--generated", "7", "--strategies", "boulware,linear,conceder,tit-for-tat,random"]
    command += ["--negmas", ",".join(negmas), "--python", sys.executable, "--seeds", "3"]
    told, files = [], []
    for run in ("one", "other"):
        told.append(subprocess.run([*command, "--out", home / run], capture_output=True, text=True, timeout=CHECK_S))
        files.append({path.relative_to(home / run): path.read_bytes() for path in (home / run).rglob("*") if path.is_file()})
    is_alike = [run.returncode for run in told] == [0, 0] and files[0] == files[1] and pathlib.Path("cells/domain-10/bargains.jsonl") in files[0]
    print(f"tournament {'PASS' if is_alike else 'FAIL'}  8 competitors, 10 domains, 3 seeds, twice: {len(files[0])} files, byte for byte")
    print(told[0].stdout if is_alike else "\n".join(run.stdout + run.stderr for run in told))
    return is_alike


PARTS = {
    "domains": check_domains,
    "pairs": lambda home: asyncio.run(check_pairs(home)),
    "example": check_example,
    "tournament": check_tournament,
    "tests": check_tests,
}


def is_late(*_):
    raise TimeoutError(f"does not end within {CHECK_S} s")


def main():
    passed = True
    # Raised where it waits, so that the exchange is ended too.
    signal.signal(signal.SIGALRM, is_late)
    for part in sys.argv[1:]:
        signal.alarm(CHECK_S)
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="check-negmas-") as home:
            passed &= PARTS[part](pathlib.Path(home))
        print(f"{part:7} took {time.monotonic() - began:.1f} s", flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
