"""Negotiators and scenarios of NegMAS. Where NegMAS is not installed nothing of it is run, and that is said."""

import asyncio
import importlib.util
import itertools
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("negmas") is None:
    warnings.warn("NOT RUN: negotiators of NegMAS; pip install './python[negmas]' makes them run", stacklevel=1)
    pytest.skip("NOT RUN: negmas is not installed", allow_module_level=True)

from negmas.inout import Scenario
from negmas.outcomes import make_issue, make_os
from negmas.preferences import AffineUtilityFunction, LinearAdditiveUtilityFunction, MappingUtilityFunction
from negmas.preferences.discounted import ExpDiscountedUFun
from negmas.preferences.value_fun import AffineFun, TableFun
from negmas.sao import ResponseType, SAOMechanism, SAONegotiator, SAOResponse
from negmas.sao.negotiators import (
    AspirationNegotiator,
    BoulwareTBNegotiator,
    ConcederTBNegotiator,
    NaiveTitForTatNegotiator,
)

from llmx import Accept, Agent, Bargainer, Domain, End, MyTurn, Offer
from llmx.deliveries import Standing
from llmx.negmas import NegmasParty, ScenarioError, Translation, from_domain, from_scenario, load

from .fake_gateway import FakeGateway, cfp

DOMAINS = Path(__file__).parents[2] / "domains"
COLOURS = ("red", "green", "blue")


def scenario(*ufuns: dict[str, Any], issues: Any = None, kind: Any = LinearAdditiveUtilityFunction) -> Any:
    """A scenario of utility functions of one kind."""
    issues = issues or [make_issue((0, 10), "price"), make_issue(list(COLOURS), "colour")]
    space = make_os(issues, name="bicycle")
    made = [kind(outcome_space=space, **{"name": f"party{place}", **ufun}) for place, ufun in enumerate(ufuns)]
    return Scenario(outcome_space=space, ufuns=tuple(made))


def worth(
    weight: float, *, rising: bool = True, reserved: float = 0.0, colours: Any = (0.0, 0.25, 1.0)
) -> dict[str, Any]:
    """A linear function over price and colour."""
    price = AffineFun(0.1, 0.0) if rising else AffineFun(-0.1, 1.0)
    colour = TableFun(dict(zip(COLOURS, colours, strict=True)))
    return {"values": [price, colour], "weights": [weight, 1 - weight], "reserved_value": reserved}


def whole() -> Any:
    """A scenario that integers express."""
    return scenario(worth(0.7, reserved=0.3), worth(0.4, rising=False, reserved=0.2))


def difference(one: Any, other: Any) -> float:
    """The largest of a utility or reserved value."""
    outcomes = list(itertools.product(*(issue.all for issue in one.issues)))
    assert outcomes == list(itertools.product(*(issue.all for issue in other.issues)))
    found = [
        abs(float(mine(at)) - float(its(at)))
        for mine, its in zip(one.ufuns, other.ufuns, strict=True)
        for at in outcomes
    ]
    reserved = [
        abs(max(mine.reserved_value, 0.0) - its.reserved_value)
        for mine, its in zip(one.ufuns, other.ufuns, strict=True)
    ]
    return float(max(*found, *reserved))


def there_and_back(made: Any) -> Any:
    """The scenario that its domain file becomes."""
    return from_domain(json.loads(json.dumps(from_scenario(made).document))).scenario


def test_what_integers_express_is_written_in_integers_and_comes_back_the_same() -> None:
    document = from_scenario(whole(), rounds=20).document
    assert document["issues"] == [{"name": "price", "min": 0, "max": 10}, {"name": "colour", "values": list(COLOURS)}]
    assert document["parties"][0] == {
        "name": "party0",
        "utility": {
            "linear": [
                {"issue": "price", "weight": 700, "at_min": 0, "at_max": 1_000_000},
                {"issue": "colour", "weight": 300, "worth": [0, 250_000, 1_000_000]},
            ]
        },
        "reservation": 300_000,
    }
    back = from_domain(document)
    assert from_scenario(back.scenario, rounds=20).document == document
    assert difference(whole(), back.scenario) < 1e-15
    assert Domain.parse(document).preferences("party1").reservation == 0.2


REAL = {
    "weights between thousandths": scenario(worth(1 / 3), worth(2 / 3)),
    "values between millionths": scenario(worth(0.5, colours=(0.1, 1 / 7, 0.9)), worth(0.5)),
    "values beyond 1 and weights of another sum": scenario(
        {
            "values": [AffineFun(3.0, 0.0), TableFun(dict(zip(COLOURS, (1, 5, 10), strict=True)))],
            "weights": [0.02, 0.03],
        },
        worth(0.5),
    ),
    "a constant": scenario(
        {"weights": [0.05, 0.1], "bias": 0.2},
        {"weights": [-0.05, 0.1], "bias": 0.6},
        kind=AffineUtilityFunction,
        issues=[make_issue((0, 10), "a"), make_issue((0, 3), "b")],
    ),
    "an issue that rises and falls": scenario(
        *2
        * [{"values": [lambda x: 1 - (x - 4) ** 2 / 36, TableFun(dict.fromkeys(COLOURS, 0.5))], "weights": [0.6, 0.4]}]
    ),
}


@pytest.mark.parametrize("made", REAL.values(), ids=REAL.keys())
def test_other_linear_functions_are_written_in_real_numbers(made: Any) -> None:
    forms = [next(iter(party["utility"])) for party in from_scenario(made).document["parties"]]
    assert "linear_real" in forms
    assert difference(made, there_and_back(made)) < 1e-9


def test_any_other_function_is_a_table_rounded_down_to_millionths() -> None:
    outcomes = [(price, colour) for price in range(11) for colour in COLOURS]
    table = {outcome: (place % 7) / 7 for place, outcome in enumerate(outcomes)}
    made = scenario(*2 * [{"mapping": table, "reserved_value": 1 / 3}], kind=MappingUtilityFunction)
    back = there_and_back(made)
    assert 0 < difference(made, back) < 1e-6
    assert there_and_back(back).ufuns[0].mapping == back.ufuns[0].mapping


@pytest.mark.parametrize("name", ["car_purchase", "ecommerce", "scheduling", "service_level"])
def test_the_shipped_domains_are_scenarios_in_which_what_a_limit_excludes_is_worth_nothing(name: str) -> None:
    document = json.loads((DOMAINS / f"{name}.json").read_text(encoding="utf-8"))
    domain, translation = Domain.parse(document), from_domain(document)
    for place, party in enumerate(domain.parties):
        wanted, ufun = domain.preferences(party.name), translation.scenario.ufuns[place]
        for number in range(0, domain.space.size, 7):
            utility = float(ufun(translation.outcome(domain.space.terms(number))))
            if wanted.is_acceptable(number):
                assert wanted.utilities[number] == pytest.approx(utility, abs=2e-6)
            else:
                assert utility < wanted.reservation + 2e-6
        mandate = translation.mandate(place)
        assert mandate is not None
        assert mandate.limits == party.limits


def test_values_and_names_that_the_exchange_does_not_take_are_rewritten() -> None:
    issues = [make_issue((0.0, 1.0), "part of it"), make_issue([True, 3, "x"], "b")]
    weights = {"values": [AffineFun(0.5, 0.0), TableFun({True: 0.0, 3: 0.5, "x": 1.0})], "weights": [0.5, 0.5]}
    made = scenario(weights, weights, issues=issues)
    with pytest.raises(ScenarioError, match=r"`part of it` is real-valued or endless: `scenario.discretize"):
        from_scenario(made)
    translation = from_scenario(made.discretize(levels=3))
    assert translation.document["issues"] == [
        {"name": "part_of_it", "values": ["0.0", "0.5", "1.0"]},
        {"name": "b", "values": ["True", 3, "x"]},
    ]
    assert translation.terms((0.5, True)) == {"part_of_it": "0.5", "b": "True"}
    assert translation.outcome({"part_of_it": "0.5", "b": 3}) == (0.5, 3)


def refused() -> dict[str, tuple[Any, str]]:
    """What has no counterpart, and what is said of it."""
    wide = scenario(
        {"weights": [1.0, 1.0]},
        {"weights": [1.0, 1.0]},
        kind=AffineUtilityFunction,
        issues=[make_issue(11, "a"), make_issue(4, "b")],
    )
    names = {name: make_issue(["x", "y"], name) for name in ("price", "round")}
    half = {"values": [TableFun({"x": 0.0, "y": 1.0})], "weights": [1.0]}

    def over(issue: Any, ufun: Any = None, kind: Any = AffineUtilityFunction) -> Any:
        return scenario(*2 * [ufun or {"weights": [0.0]}], issues=[issue], kind=kind)

    discounted = whole()
    discounted.ufuns = (ExpDiscountedUFun(discounted.ufuns[0], discount=0.9, name="p"), discounted.ufuns[1])
    alike = scenario(
        *2 * [{"values": [TableFun({1.5: 0.0, "1.5": 1.0})], "weights": [1.0]}], issues=[make_issue([1.5, "1.5"], "a")]
    )
    return {
        "three parties": (scenario(worth(0.5), worth(0.5), worth(0.5)), "3 parties: keep two"),
        "out of range": (wide, r"goes from 0 to 13: .*normalize\(\)"),
        "a price in words": (scenario(half, half, issues=[names["price"]]), "`price`: rename it"),
        "a name of the exchange": (scenario(half, half, issues=[names["round"]]), "`round`: rename it"),
        "a range with a name of the exchange": (over(make_issue(5, "round")), "`round`: rename it"),
        "more values than can be listed": (over(make_issue(10**9, "a")), "1000000000 values: at most 1000000"),
        "uneven worths of more values than a file lists": (
            over(
                make_issue(300, "a"),
                {"values": [lambda x: (x / 299) ** 2], "weights": [1.0]},
                LinearAdditiveUtilityFunction,
            ),
            "lists 300 values: at most 256",
        ),
        "discounting": (discounted, r"changes with time: `scenario.remove_discounting\(\)`"),
        "values written alike": (alike, "written alike: give each a text"),
        "a reserved value above 1": (scenario(worth(0.5, reserved=1.5), worth(0.5)), "reserved value 1.5: at most 1"),
    }


@pytest.mark.parametrize("case", refused().values(), ids=refused().keys())
def test_what_has_no_counterpart_is_refused_with_what_to_do(case: tuple[Any, str]) -> None:
    with pytest.raises(ScenarioError, match=case[1]):
        from_scenario(case[0])


def test_domain_files_without_a_counterpart_are_refused(tmp_path: Path) -> None:
    three = json.loads((DOMAINS / "three_party.json").read_text(encoding="utf-8"))
    with pytest.raises(ScenarioError, match="/parties: 3; keep two"):
        from_domain(three)
    document = from_scenario(whole()).document
    document["parties"][0] |= {"limits": [{"attr": "price", "op": "le", "value": 5}], "reservation": 0}
    with pytest.raises(ScenarioError, match="raise its `reservation` above 0"):
        from_domain(document)
    with pytest.raises(ScenarioError, match="no scenario; name a folder"):
        load(tmp_path / "absent")
    with pytest.raises(ScenarioError, match="from 1 to 1000"):
        from_scenario(whole(), rounds=0)


GENIUS = """<utility_space number_of_issues="1"><objective index="1" type="objective" name="any">
<issue index="1" type="discrete" vtype="discrete" name="colour">
<item index="1" value="red" {0}/><item index="2" value="green" {1}/><item index="3" value="blue" {2}/>
</issue><weight index="1" value="1.0"/></objective></utility_space>"""


def test_a_scenario_of_genius_is_read_and_brought_into_range(tmp_path: Path) -> None:
    template = f"<negotiation_template>{GENIUS.format('', '', '')}</negotiation_template>"
    (tmp_path / "domain.xml").write_text(template.replace('<weight index="1" value="1.0"/>', ""))
    for name, worths in (("buyer", (0, 5, 10)), ("seller", (8, 4, 0))):
        (tmp_path / f"{name}.xml").write_text(GENIUS.format(*(f'evaluation="{one}"' for one in worths)))
    read = load(tmp_path)
    with pytest.raises(ScenarioError, match=r"`buyer.*goes from 0 to 10: .*normalize"):
        from_scenario(read)
    read.normalize(common_range=False)
    parties = from_scenario(read).document["parties"]
    assert {party["name"]: party["utility"]["linear"][0]["worth"] for party in parties} == {
        "buyer": [0, 500_000, 1_000_000],
        "seller": [1_000_000, 500_000, 0],
    }


def turn(translation: Translation, step: int, terms: Any = None, refusal: str | None = None) -> MyTurn:
    """A turn, with an offer that stands."""
    standing = Standing(offer_id="o", by="other", terms=terms, terms_digest="1" * 64) if terms is not None else None
    return MyTurn("n", translation.rules, step // 2 + 1, 0.0, standing, refusal=refusal)


async def alternate(translation: Translation, negotiators: list[Any]) -> tuple[list[Any], Any]:
    """Offers and agreement of two parties that take turns."""
    parties = [NegmasParty(translation, place, one) for place, one in enumerate(negotiators)]
    offers: list[Any] = []
    for step in range(2 * (translation.rules.rounds or 0)):
        terms = translation.terms(offers[-1]) if offers else None
        match await parties[step % 2](turn(translation, step, terms)):
            case Offer() as offer:
                offers.append(translation.outcome(offer.terms))
            case Accept():
                return offers, offers[-1]
            case End():
                break
    return offers, None


KINDS = [BoulwareTBNegotiator, ConcederTBNegotiator, AspirationNegotiator, NaiveTitForTatNegotiator]


@pytest.mark.parametrize(
    "kinds", list(itertools.product(KINDS, repeat=2)), ids=lambda kinds: " ".join(kind.__name__ for kind in kinds)
)
async def test_two_parties_make_the_offers_of_their_negotiators_alone(kinds: list[Any]) -> None:
    mechanism = SAOMechanism(outcome_space=whole().outcome_space, n_steps=12)
    for kind, ufun in zip(kinds, whole().ufuns, strict=True):
        mechanism.add(kind(), preferences=ufun)
    mechanism.run()
    found = await alternate(from_scenario(whole(), rounds=12), [kind() for kind in kinds])
    assert found == (mechanism.offers, mechanism.agreement)


class Says(SAONegotiator):  # type: ignore[misc]
    """Says one thing, and remembers what it was asked."""

    def __init__(self, response: Any, outcome: Any = None) -> None:
        super().__init__()
        self.said = SAOResponse(response, outcome)
        self.asked: list[Any] = []

    def __call__(self, state: Any, dest: str | None = None) -> Any:
        self.asked = [state.relative_time, state.current_offer]
        return self.said

    def propose(self, state: Any, dest: str | None = None) -> Any:
        return self.said.outcome


ENDS = [
    ResponseType.END_NEGOTIATION,
    ResponseType.LEAVE,
    ResponseType.NO_RESPONSE,
    ResponseType.REJECT_OFFER,
    ResponseType.WAIT,
]


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("response", ENDS)
async def test_what_is_neither_an_offer_nor_an_acceptance_ends_the_bargain(place: int, response: Any) -> None:
    translation = from_scenario(whole(), rounds=3)
    terms = {"price": 1, "colour": "red"} if place else None
    assert isinstance(await NegmasParty(translation, place, Says(response))(turn(translation, place, terms)), End)


async def test_what_stands_no_longer_is_no_offer_and_a_refused_move_ends_the_bargain() -> None:
    translation = from_scenario(whole(), rounds=3)
    negotiator = Says(ResponseType.REJECT_OFFER, (5, "blue"))
    party = NegmasParty(translation, 1, negotiator, in_thread=False)
    assert await party(turn(translation, 1, {"price": 1, "colour": "red"})) == Offer(
        terms={"price": 5, "colour": "blue"}
    )
    assert negotiator.asked == [0.25, (1, "red")]
    assert await party(turn(translation, 3)) == Offer(terms={"price": 5, "colour": "blue"})
    assert negotiator.asked == [0.5, None]
    ended = await party(turn(translation, 3, refusal="mandate_violation"))
    assert ended == End(reason="refused: mandate_violation")


async def test_where_time_alone_bounds_a_bargain_the_negotiator_sees_time() -> None:
    document = {**from_scenario(whole()).document, "rules": {"deadline_ms": 60_000}}
    translation, negotiator = from_domain(document), Says(ResponseType.REJECT_OFFER, (5, "blue"))
    asked = turn(translation, 0)
    assert asked.rules.rounds is None
    assert isinstance(await NegmasParty(translation, 0, negotiator)(asked), Offer)
    assert 0 <= negotiator.asked[0] < 0.5


async def test_a_party_is_one_of_two_and_a_negotiator_serves_one_bargain() -> None:
    translation, used = from_scenario(whole()), BoulwareTBNegotiator()
    with pytest.raises(ScenarioError, match="party 2"):
        NegmasParty(translation, 2, used)
    await NegmasParty(translation, 0, used)(turn(translation, 0))
    with pytest.raises(ScenarioError, match="a new one for each bargain"):
        await NegmasParty(translation, 0, used)(turn(translation, 0))


def test_a_mandate_says_utilities_where_it_has_words_for_them() -> None:
    mandate = from_scenario(scenario(worth(1 / 3, reserved=1 / 3), worth(0.5))).mandate(0)
    assert mandate is not None
    assert mandate.utility is not None
    assert mandate.utility.table is not None
    assert (mandate.reservation, len(mandate.utility.table), mandate.utility.table[-1]) == (333_333, 33, 1_000_000)
    large = [make_issue((0, 999), "a"), make_issue((0, 9), "b")]
    weights = {"weights": [1 / 3 / 999, 2 / 3 / 9]}
    assert from_scenario(scenario(weights, weights, issues=large, kind=AffineUtilityFunction)).mandate(0) is None


async def test_a_negotiator_takes_its_turn_in_a_bargain_it_is_called_to() -> None:
    translation = from_scenario(whole(), rounds=9)
    bob = Bargainer("bob")

    @bob.on_invitation
    async def join(_: Any) -> Any:
        return NegmasParty(translation, 1, BoulwareTBNegotiator()).plan()

    rules = {"issues": translation.document["issues"], "rounds": 9, "step_ms": 1000}
    async with FakeGateway() as gateway, Agent(bob, gateways=gateway.url, token="t"):
        await gateway.deliver(cfp(bargain={"parties": ["alice", "bob"], "rules": rules}))
        await gateway.until(lambda: len(gateway.messages) == 1)
        assert gateway.messages[0]["payload"]["mandate"]["reservation"] == 199_998
        standing = {
            "offer_id": "o1-0",
            "by": "alice",
            "terms": {"price": 10, "colour": "red"},
            "terms_digest": "1" * 64,
        }
        later = "2099-01-01T00:00:00Z"
        asked = {
            "act": "turn",
            "party": "bob",
            "round": 1,
            "step": 1,
            "act_by": later,
            "ends_by": later,
            "t_ppm": 100_000,
        }
        await gateway.deliver({**asked, "standing": standing})
        async with asyncio.timeout(5):
            await gateway.until(lambda: len(gateway.messages) == 2)
        assert gateway.messages[1]["payload"] == {"act": "offer", "terms": {"price": 0, "colour": "blue"}}


def answers(cls: str, *lines: dict[str, Any]) -> list[dict[str, Any]]:
    """What a competitor answers to each line, its first words before them."""
    command = [sys.executable, "-m", "llmx.negmas.competitor", cls]
    asked = "".join(json.dumps(line) + "\n" for line in lines)
    told = subprocess.run(command, check=True, input=asked, capture_output=True, text=True, timeout=60)
    return [json.loads(line) for line in told.stdout.splitlines()]


def test_a_competitor_answers_line_by_line_and_alike_for_one_seed() -> None:
    domain = json.loads((DOMAINS / "ecommerce.json").read_text())
    told = {"domain": 3, "document": domain}
    turn = {"round": 1, "t": 1 / 41, "standing": None}
    best = {"price": 60, "delivery_days": 1, "return_days": 60}

    def first(number: int, party: int, seed: int = 7, **more: Any) -> dict[str, Any]:
        return {"id": number, "start": {"domain": 3, "party": party, "seed": seed}, "turn": {**turn, **more}}

    said = answers(
        "BoulwareTBNegotiator",
        told,
        first(1, 0),
        first(2, 1, standing={"price": 92, "delivery_days": 7, "return_days": 14}),
        {"id": 1, "start": None, "turn": {"round": 2, "t": 2 / 41, "standing": best}},
        first(3, 0),
        {"id": 1, "start": None, "turn": turn},
        {"domain": 4, "document": {**domain, "parties": domain["parties"][:1]}},
    )
    assert said[0]["ready"].startswith("negmas 0.16")
    assert said[1:3] == [{"ready": "ecommerce"}, {"offer": best}]
    # The best of all for the shop is accepted, or answered by another offer; what is best for the customer is accepted.
    assert set(said[3]) <= {"offer", "accept"}
    assert said[4] == {"accept": True}
    # Bargain 1 is over, since 3 has its party.
    assert said[5] == {"offer": best}
    assert "StopIteration" in said[6]["failed"]
    assert "keep two" in said[7]["failed"]
    drawn = [answers("RandomNegotiator", told, first(1, 0, seed))[2] for seed in (7, 7, 8)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Nobody", "ValueError: negmas.sao.negotiators has no negotiator Nobody"),
        ("json.JSONDecoder", "ValueError: json has no negotiator JSONDecoder"),
        ("nowhere.Nobody", "ModuleNotFoundError: No module named 'nowhere'"),
        (".json.Nobody", "TypeError: the 'package' argument is required to perform a relative import for '.json'"),
        ("SAORandomSyncController", "ValueError: negmas.sao.negotiators has no negotiator SAORandomSyncController"),
    ],
)
def test_a_class_that_is_no_negotiator_is_refused(name: str, reason: str) -> None:
    assert answers(name) == [{"failed": reason}]
