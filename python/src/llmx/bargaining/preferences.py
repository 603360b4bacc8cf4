"""What outcomes are worth to a party, 0 to 1, and which it may agree to."""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from llmx.bargaining.space import Space
from llmx.documents import Attribute, IssueWorth, Predicate, Utility

PPM = 1_000_000
WEIGHT_SUM = 1000


def holds(predicate: Predicate, value: Attribute | None) -> bool:
    """Whether a predicate holds of a value. Texts are only equal or not; of an absent value only `ne` holds."""
    constant = predicate.value
    if isinstance(value, int) and isinstance(constant, int):
        return {
            "eq": value == constant,
            "ne": value != constant,
            "lt": value < constant,
            "le": value <= constant,
            "gt": value > constant,
            "ge": value >= constant,
        }[predicate.op]
    is_equal = isinstance(value, str) and value == constant
    return is_equal if predicate.op == "eq" else predicate.op == "ne" and not is_equal


def evaluate(utility: Utility, space: Space) -> list[float]:
    """The utility of every outcome. The exchange comes to the same numbers."""
    if utility.table is not None:
        return [worth / PPM for worth in utility.table]
    worths = {one.issue: one for one in utility.linear or ()}
    sums = [0]
    for issue, size in zip(space.issues, space.sizes, strict=True):
        one = worths.get(issue.name)
        parts = [one.weight * _worth(one, place, size) if one else 0 for place in range(size)]
        sums = [total + part for total in sums for part in parts]
    return [(total // WEIGHT_SUM) / PPM for total in sums]


def _worth(one: IssueWorth, place: int, size: int) -> int:
    if one.worth is not None:
        return one.worth[place] if place < len(one.worth) else 0
    at_min, at_max = one.at_min or 0, one.at_max or 0
    if size < 2:
        return at_min
    return (at_min * (size - 1 - place) + at_max * place) // (size - 1)


class Preferences:
    """One utility per outcome, and the utility of no agreement. What is worth less is not acceptable, nor what hard limits
    exclude."""

    def __init__(
        self, utilities: Sequence[float], reservation: float = 0.0, is_allowed: Callable[[int], bool] = lambda _: True
    ) -> None:
        self.utilities = utilities
        self.reservation = reservation
        allowed = [outcome for outcome in range(len(utilities)) if is_allowed(outcome)]
        acceptable = [outcome for outcome in allowed if utilities[outcome] >= reservation]
        self.ranking = sorted(acceptable, key=lambda outcome: utilities[outcome])
        """Outcomes it may agree to, worst first; equal ones in the order of their numbers."""
        self._ranked = [utilities[outcome] for outcome in self.ranking]
        self._acceptable = frozenset(acceptable)
        self._worst = min((utilities[outcome] for outcome in allowed), default=0.0)

    def is_acceptable(self, outcome: int) -> bool:
        """Whether the party may agree to an outcome."""
        return outcome in self._acceptable

    def span(self) -> tuple[float, float] | None:
        """The least utility it could agree to and the greatest; None when it may agree to nothing."""
        if not self.ranking:
            return None
        return max(self._worst, self.reservation), self._ranked[-1]

    def position_at_least(self, utility: float) -> int:
        """The position in the ranking of the first outcome worth at least this much."""
        return bisect_left(self._ranked, utility)
