"""The outcome space, small enough to be listed."""

from collections.abc import Sequence
from math import prod

from llmx.documents import Attribute, Issue, Terms

OUTCOMES_MAX = 1_000_000
"""Most outcomes an agent lists. The exchange itself takes larger spaces, and never lists them."""


class Space:
    """The outcomes over some issues, numbered from 0, row-major: the last issue runs fastest."""

    def __init__(self, issues: Sequence[Issue]) -> None:
        """Raises `ValueError` when the outcomes are too many to be listed, or an issue has no values."""
        self.issues = tuple(issues)
        self.sizes = tuple(_size(issue) for issue in self.issues)
        self.size = prod(self.sizes)
        if not self.issues or self.size > OUTCOMES_MAX:
            raise ValueError(f"{self.size} outcomes; an agent lists at most {OUTCOMES_MAX}, over one issue or more")

    def terms(self, outcome: int) -> Terms:
        """The terms of an outcome."""
        if not 0 <= outcome < self.size:
            raise IndexError(f"there are {self.size} outcomes, none of number {outcome}")
        places = []
        for size in reversed(self.sizes):
            outcome, place = divmod(outcome, size)
            places.append(place)
        return {issue.name: value_at(issue, place) for issue, place in zip(self.issues, reversed(places), strict=True)}

    def outcome(self, terms: Terms) -> int | None:
        """The outcome with these terms; None unless they name a value of every issue, and nothing else."""
        if len(terms) != len(self.issues):
            return None
        outcome = 0
        for issue, size in zip(self.issues, self.sizes, strict=True):
            place = _place_of(issue, terms.get(issue.name))
            if place is None:
                return None
            outcome = outcome * size + place
        return outcome


def value_at(issue: Issue, place: int) -> Attribute:
    """The value of an issue at a place."""
    if issue.values is not None:
        return issue.values[place]
    return (issue.min or 0) + place


def _size(issue: Issue) -> int:
    if issue.values is not None:
        size = len(issue.values)
    elif issue.min is not None and issue.max is not None:
        size = issue.max - issue.min + 1
    else:
        size = 0
    if size < 1:
        raise ValueError(f"issue `{issue.name}` has no values")
    return size


def _place_of(issue: Issue, value: Attribute | None) -> int | None:
    if issue.values is not None:
        return next((place for place, one in enumerate(issue.values) if one == value), None)
    if isinstance(value, int) and (issue.min or 0) <= value <= (issue.max or 0):
        return value - (issue.min or 0)
    return None
