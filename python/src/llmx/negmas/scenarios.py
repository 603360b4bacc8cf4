"""Scenarios of NegMAS as domain files, and back.

| utility function | is written as | there and back, a utility differs by |
|---|---|---|
| linear, weights in thousandths, values in millionths | `linear`, in integers | less than 0.000000001 |
| linear otherwise | `linear_real` | less than 0.000000001 |
| any other | `table`, in integers | less than 0.000001, rounded down |

The exchange itself counts in millionths, rounded down: what it computes is less by at most 0.000002. Weights and values that a
domain file takes as they are come back as they were. What is worth less than 0 or more than 1 has to be normalised before. A
reserved value below 0, or none, is written as 0; others are rounded down to millionths where the utilities are integers.

Integers and texts are values as they are; any other value becomes the text that Python prints. Names keep letters, digits, `-`
and `_`: everything else becomes `_`.
"""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

from negmas.inout import Scenario
from negmas.outcomes import CategoricalIssue, ContiguousIssue, make_issue, make_os
from negmas.preferences import AffineUtilityFunction, LinearAdditiveUtilityFunction, MappingUtilityFunction
from negmas.preferences.discounted import DiscountedUtilityFunction
from negmas.preferences.value_fun import AffineFun, TableFun

from llmx.bargaining.domain import ROUNDS_UNSAID
from llmx.bargaining.preferences import PPM, WEIGHT_SUM, holds
from llmx.bargaining.space import OUTCOMES_MAX
from llmx.codec import decode
from llmx.documents import Attribute, BargainRules, Mandate, Predicate, Terms, Utility

Outcome = tuple[Any, ...]
Values = Sequence[Sequence[Any]]
"""The values of each issue."""

ISSUES_MAX = 32
VALUES_MAX = 256
"""Most values an issue lists."""
TABLE_MAX = 1024
"""Most outcomes of which a mandate lists the utilities."""
EXACTLY = 1e-12
"""How far a number may be from the fraction that is written for it."""
ROUNDS_MAX = 1000
NAME_LEN_MAX = 64
NEARLY = 1e-9
"""How far weights may miss their sum of 1, and utilities leave 0 to 1, by rounding."""
RANGE_ROUNDING_PPM = 2
"""How much less a utility over ranges is than its weights and ends say, at most."""
RESERVED_NAMES = ("round", "elapsed_ms")


class ScenarioError(ValueError):
    """A scenario or domain file that has no counterpart. Says which part, and what to do."""


@dataclass(frozen=True, slots=True, eq=False)
class Translation:
    """A scenario and the domain file with the same outcomes and utilities."""

    scenario: Any
    document: dict[str, Any]
    """The domain file, to be written as JSON."""
    values: tuple[dict[Attribute, Any], ...]
    """Of each issue, the values in the scenario by what the domain file writes, in its order."""

    @property
    def rules(self) -> BargainRules:
        """The rules, as a call states them."""
        return decode(BargainRules, {"issues": self.document["issues"], **self.document["rules"]})

    def terms(self, outcome: Sequence[Any]) -> Terms:
        """The terms of an outcome of the scenario."""
        names = (issue["name"] for issue in self.document["issues"])
        return {name: _written(value) for name, value in zip(names, outcome, strict=True)}

    def outcome(self, terms: Terms) -> Outcome:
        """The outcome of the scenario with these terms.

        Raises `ScenarioError` when they are none of its.
        """
        found = []
        for issue, values in zip(self.document["issues"], self.values, strict=True):
            said = terms.get(issue["name"])
            if said not in values:
                raise ScenarioError(f"issue `{issue['name']}` has no value {said!r}: name one of the domain file")
            found.append(values[said])
        return tuple(found)

    def mandate(self, party: int) -> Mandate | None:
        """What holds a party to its utilities and reserved value. None where a mandate has no words for them: utilities in
        real numbers over more than 1024 outcomes."""
        said, ufun = self.document["parties"][party], self.scenario.ufuns[party]
        limits, reservation = _limits(said), _ppm(_reserved(ufun))
        if "linear" in said["utility"]:
            if any("at_min" in one for one in said["utility"]["linear"]):
                # Between the ends of a range the exchange rounds down: what the party may agree to is not to be refused.
                reservation = max(reservation - RANGE_ROUNDING_PPM, 0)
            return Mandate(utility=decode(Utility, said["utility"]), reservation=reservation, limits=limits)
        if math.prod(map(len, self.values)) > TABLE_MAX:
            return None
        table = tuple(
            _ppm(float(ufun(outcome))) for outcome in itertools.product(*(one.values() for one in self.values))
        )
        return Mandate(utility=Utility(table=table), reservation=reservation, limits=limits)


def load(folder: str | Path) -> Any:
    """Reads a scenario from a folder in the format of GENIUS (XML), GeniusWeb (JSON) or NegMAS (YAML, JSON).

    Raises `ScenarioError` where there is none.
    """
    scenario = Scenario.load(Path(folder)) if Path(folder).is_dir() else None
    if scenario is None:
        raise ScenarioError(
            f"{folder}: no scenario; name a folder with a domain and its utility functions, XML or YAML"
        )
    return scenario


def from_scenario(scenario: Any, *, rounds: int = ROUNDS_UNSAID, name: str | None = None) -> Translation:
    """Makes a domain file of a scenario; the first utility function is that of the party with the first turn.

    Raises `ScenarioError`.
    """
    if len(scenario.ufuns) != 2:
        raise ScenarioError(f"{len(scenario.ufuns)} parties: keep two utility functions, since two bargain")
    if not 1 <= rounds <= ROUNDS_MAX:
        raise ScenarioError(f"{rounds} rounds: from 1 to {ROUNDS_MAX}")
    issues = scenario.outcome_space.issues
    if not 1 <= len(issues) <= ISSUES_MAX:
        raise ScenarioError(f"{len(issues)} issues: from 1 to {ISSUES_MAX}")
    values = tuple(_values(issue) for issue in issues)
    parts = [_parts(ufun, values) for ufun in scenario.ufuns]
    is_range = [
        isinstance(issue, ContiguousIssue)
        and _is_consecutive(listed)
        and all(_is_straight(part[place][1]) for part in parts if part is not None)
        for place, (issue, listed) in enumerate(zip(issues, values, strict=True))
    ]
    names = _distinct([_name(issue.name, f"issue{place}") for place, issue in enumerate(issues)])
    said = [_issue(*one) for one in zip(names, values, is_range, strict=True)]
    parties = _distinct(
        [_name(Path(ufun.name or "").stem, f"party{place}") for place, ufun in enumerate(scenario.ufuns)]
    )
    document = {
        "name": (name or Path(scenario.name or "").name or "scenario")[:NAME_LEN_MAX],
        "issues": said,
        "parties": [
            {"name": party, **_party(ufun, values, said, part)}
            for party, ufun, part in zip(parties, scenario.ufuns, parts, strict=True)
        ],
        "rules": {"rounds": rounds},
    }
    return Translation(scenario, document, _by_written(values))


def from_domain(document: Mapping[str, Any]) -> Translation:
    """Makes a scenario of a domain file. What a party's `limits` exclude is worth 0 to it there. What a policy accepts for it
    (`policy`, `concession`) has no counterpart.

    Raises `ScenarioError`, and `UnreadableError` where an issue or rule has another form.
    """
    if len(document["parties"]) != 2:
        raise ScenarioError(f"/parties: {len(document['parties'])}; keep two, since two bargain")
    rules = decode(BargainRules, {"issues": document["issues"], **document.get("rules", {})})
    values: list[tuple[Any, ...]] = []
    for issue in rules.issues:
        values.append(
            tuple(issue.values) if issue.values is not None else tuple(range(issue.min or 0, (issue.max or 0) + 1))
        )
    made = [_made_issue(issue.name, listed) for issue, listed in zip(rules.issues, values, strict=True)]
    space = make_os(made, name=document["name"])
    names = [issue.name for issue in rules.issues]
    ufuns = tuple(_limited(party, _ufun(party, values, names, space), values, names) for party in document["parties"])
    scenario = Scenario(outcome_space=space, ufuns=ufuns, name=document["name"])
    bound = {} if rules.rounds is not None or rules.deadline_ms is not None else {"rounds": ROUNDS_UNSAID}
    return Translation(scenario, {**document, "rules": {**document.get("rules", {}), **bound}}, _by_written(values))


# Issues and their values


def _values(issue: Any) -> tuple[Any, ...]:
    if not issue.is_discrete() or not math.isfinite(issue.cardinality):
        raise ScenarioError(f"issue `{issue.name}` is real-valued or endless: `scenario.discretize(levels=10)`")
    if issue.cardinality > OUTCOMES_MAX:
        raise ScenarioError(f"issue `{issue.name}` has {issue.cardinality} values: at most {OUTCOMES_MAX}")
    return tuple(issue.all)


def _written(value: Any) -> Attribute:
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return value if isinstance(value, str) else str(value)


def _by_written(values: Values) -> tuple[dict[Attribute, Any], ...]:
    return tuple({_written(value): value for value in one} for one in values)


def _is_consecutive(values: Sequence[Any]) -> bool:
    first = _written(values[0])
    return isinstance(first, int) and list(values) == list(range(first, first + len(values)))


def _issue(name: str, values: tuple[Any, ...], is_range: bool) -> dict[str, Any]:
    written = [_written(value) for value in values]
    if name in RESERVED_NAMES or (name == "price" and any(isinstance(value, str) for value in written)):
        raise ScenarioError(
            f"issue `{name}`: rename it; `price` has integers, {' and '.join(RESERVED_NAMES)} are taken"
        )
    if is_range:
        return {"name": name, "min": written[0], "max": written[-1]}
    if len(written) > VALUES_MAX:
        raise ScenarioError(
            f"issue `{name}` lists {len(written)} values: at most {VALUES_MAX}, or make their worth linear"
        )
    if len(set(written)) < len(written):
        raise ScenarioError(f"issue `{name}` has values that are written alike: give each a text of its own")
    return {"name": name, "values": written}


def _made_issue(name: str, values: Sequence[Any]) -> Any:
    if _is_consecutive(values):
        return make_issue((values[0], values[-1]), name=name)
    if all(isinstance(value, int) for value in values):
        return make_issue(list(values), name=name)
    return CategoricalIssue(list(values), name=name)


def _name(name: str | None, otherwise: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name or otherwise)[:NAME_LEN_MAX]


def _distinct(names: list[str]) -> list[str]:
    return [f"{name[: NAME_LEN_MAX - 3]}_{at}" if name in names[:at] else name for at, name in enumerate(names)]


# Utilities

Part = tuple[float, list[float]]
"""What an issue contributes: its weight, and the worth of each value."""


def _parts(ufun: Any, values: Values) -> list[Part] | None:
    """Weights that add up to 1 and worths from 0 to 1, of a linear function; None of another."""
    if isinstance(ufun, DiscountedUtilityFunction) or not ufun.is_stationary():
        raise ScenarioError(f"utility function `{ufun.name}` changes with time: `scenario.remove_discounting()`")
    if not isinstance(ufun, LinearAdditiveUtilityFunction | AffineUtilityFunction):
        return None
    if isinstance(ufun, LinearAdditiveUtilityFunction):
        listed = zip(ufun.weights, ufun.values, values, strict=True)
        parts = [(float(weight), [float(worth(value)) for value in one]) for weight, worth, one in listed]
        if _is_normal(parts, float(ufun(tuple(one[0] for one in values)))):
            return parts
    return _normal(ufun, values)


def _is_normal(parts: list[Part], first: float) -> bool:
    """Whether they are as a domain file has them, and give the first outcome its utility (there is no constant beside them)."""
    weights = [weight for weight, _ in parts]
    is_sum = abs(sum(weights) - 1) <= NEARLY and min(weights) >= 0
    is_plain = abs(sum(weight * worths[0] for weight, worths in parts) - first) <= NEARLY
    return is_sum and is_plain and all(0 <= worth <= 1 for _, worths in parts for worth in worths)


def _normal(ufun: Any, values: Values) -> list[Part]:
    """From what changing one issue alone adds to the utility."""
    first = tuple(one[0] for one in values)
    base, count = float(ufun(first)), len(values)
    added = []
    for at, one in enumerate(values):
        added.append([float(ufun((*first[:at], value, *first[at + 1 :]))) - base for value in one])
    least = base + sum(map(min, added))
    _check_range(ufun, least, base + sum(map(max, added)))
    # What every outcome is worth at least, and what the best lacks of 1, is shared by the issues.
    shared = [[one - min(part) + max(least, 0.0) / count for one in part] for part in added]
    spare = max(0.0, 1 - sum(map(max, shared))) / count
    parts = [(max(part) + spare, part) for part in shared]
    return [(weight, [min(one / weight, 1.0) if weight else 0.0 for one in part]) for weight, part in parts]


def _check_range(ufun: Any, least: float, most: float) -> None:
    if least < -NEARLY or most > 1 + NEARLY:
        said = f"utility function `{ufun.name}` goes from {least:.6g} to {most:.6g}"
        raise ScenarioError(f"{said}: bring it into 0 to 1, `scenario.normalize()`")


def _is_straight(worths: Sequence[float]) -> bool:
    """Whether it is linear between its ends."""
    last = max(len(worths) - 1, 1)
    return all(
        abs(one - worths[0] - (worths[-1] - worths[0]) * at / last) <= NEARLY / 10 for at, one in enumerate(worths)
    )


def _party(ufun: Any, values: Values, issues: list[dict[str, Any]], parts: list[Part] | None) -> dict[str, Any]:
    reserved = _reserved(ufun)
    if parts is None:
        return {"utility": {"table": _table(ufun, values)}, "reservation": _ppm(reserved)}
    linear: list[dict[str, Any]] = []
    for issue, (weight, worths) in zip(issues, parts, strict=True):
        said = {"worth": worths} if "values" in issue else {"at_min": worths[0], "at_max": worths[-1]}
        linear.append({"issue": issue["name"], "weight": weight, **said})
    if not all(_is_whole(one) for one in linear):
        return {"utility": {"linear_real": linear}, "reservation": reserved}
    return {"utility": {"linear": [_in_integers(one) for one in linear]}, "reservation": _ppm(reserved)}


def _is_whole(part: Mapping[str, Any]) -> bool:
    worths = part["worth"] if "worth" in part else (part["at_min"], part["at_max"])
    scaled = [(part["weight"], WEIGHT_SUM), *((worth, PPM) for worth in worths)]
    return all(abs(one - round(one * scale) / scale) <= EXACTLY for one, scale in scaled)


def _in_integers(part: Mapping[str, Any]) -> dict[str, Any]:
    scaled = {name: round(part[name] * PPM) for name in ("at_min", "at_max") if name in part}
    if "worth" in part:
        scaled["worth"] = [round(one * PPM) for one in part["worth"]]
    return {"issue": part["issue"], "weight": round(part["weight"] * WEIGHT_SUM), **scaled}


def _table(ufun: Any, values: Values) -> list[int]:
    count = math.prod(map(len, values))
    if count > OUTCOMES_MAX:
        raise ScenarioError(f"{count} outcomes and a utility function that is not linear: keep at most {OUTCOMES_MAX}")
    utilities = [float(ufun(outcome)) for outcome in itertools.product(*values)]
    _check_range(ufun, min(utilities), max(utilities))
    return [_ppm(utility) for utility in utilities]


def _reserved(ufun: Any) -> float:
    reserved = float(ufun.reserved_value) if ufun.reserved_value is not None else 0.0
    if reserved > 1:
        raise ScenarioError(f"utility function `{ufun.name}` has the reserved value {reserved:.6g}: at most 1")
    return reserved if reserved > 0 else 0.0


def _ppm(utility: float) -> int:
    """Parts per million, rounded down as the exchange does: decimal fractions of six digits keep them all."""
    scaled = min(max(utility, 0.0), 1.0) * PPM
    return round(scaled) if abs(scaled - round(scaled)) < 1e-6 else math.floor(scaled)


def _ufun(party: Mapping[str, Any], values: Values, names: list[str], space: Any) -> Any:
    (form, said), reserved = next(iter(party["utility"].items())), party.get("reservation", 0)
    scale = 1 if form.endswith("_real") else PPM
    named = {"name": party["name"], "reserved_value": reserved / scale, "outcome_space": space}
    if form in ("table", "table_real"):
        table = {outcome: worth / scale for outcome, worth in zip(itertools.product(*values), said, strict=True)}
        return MappingUtilityFunction(table, **named)
    if form not in ("linear", "linear_real"):
        raise ScenarioError(f"utility `{form}` of `{party['name']}`: linear, linear_real, table or table_real")
    by_issue = {one["issue"]: one for one in said}
    nothing = {"weight": 0, "at_min": 0, "at_max": 0}
    parts = [by_issue.get(name, nothing) for name in names]
    weights = [part["weight"] / (WEIGHT_SUM if form == "linear" else 1) for part in parts]
    worths = [_worths(part, one, scale) for part, one in zip(parts, values, strict=True)]
    return LinearAdditiveUtilityFunction(values=worths, weights=weights, **named)


def _limits(party: Mapping[str, Any]) -> tuple[Predicate, ...] | None:
    return tuple(decode(Predicate, one) for one in party.get("limits") or ()) or None


def _limited(party: Mapping[str, Any], ufun: Any, values: Values, names: list[str]) -> Any:
    """The same function, but that what the limits exclude is worth nothing."""
    limits = _limits(party)
    if limits is None:
        return ufun
    if ufun.reserved_value <= 0:
        raise ScenarioError(f"`limits` of `{party['name']}`: raise its `reservation` above 0, which they are worth")

    def keeps(outcome: Outcome) -> bool:
        terms = dict(zip(names, outcome, strict=True))
        return all(holds(limit, terms.get(limit.attr)) for limit in limits)

    table = {outcome: float(ufun(outcome)) if keeps(outcome) else 0.0 for outcome in itertools.product(*values)}
    named = {"name": party["name"], "reserved_value": ufun.reserved_value, "outcome_space": ufun.outcome_space}
    return MappingUtilityFunction(table, **named)


def _worths(part: Mapping[str, Any], values: Sequence[Any], scale: int) -> Any:
    if "worth" in part:
        return TableFun(dict(zip(values, (one / scale for one in part["worth"]), strict=True)))
    if not _is_consecutive(values):
        return TableFun(dict.fromkeys(values, part["at_min"] / scale))
    slope = (part["at_max"] - part["at_min"]) / scale / max(len(values) - 1, 1)
    return AffineFun(slope, bias=part["at_min"] / scale - slope * values[0])
