"""A domain file: what is bargained about, by whom, under which rules."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llmx.bargaining.preferences import PPM, Preferences, evaluate, holds
from llmx.bargaining.space import Space
from llmx.codec import UnreadableError, decode
from llmx.documents import BargainRules, Concession, Mandate, Predicate, Utility

ROUNDS_UNSAID = 100
"""Rounds where neither rounds nor time is bounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """One party, as a file has it. Utilities in real numbers (`linear_real`, `table_real`) are not read here."""

    name: str
    utility: Utility
    reservation: int = 0
    limits: tuple[Predicate, ...] | None = None
    policy: str | None = None
    concession: str | Concession | None = None


class Domain:
    """What is bargained about: the outcomes, the parties in the order of their turns, the rules."""

    def __init__(self, name: str, space: Space, parties: Sequence[Party], rules: BargainRules) -> None:
        self.name = name
        self.space = space
        self.parties = tuple(parties)
        self.rules = rules

    @staticmethod
    def read(path: str | Path) -> "Domain":
        """Reads a file.

        Raises `UnreadableError` at the member that has another form.
        """
        return Domain.parse(json.loads(Path(path).read_text(encoding="utf-8")))

    @staticmethod
    def parse(document: Any) -> "Domain":
        """Reads a document."""
        rules = decode(BargainRules, {"issues": document["issues"], **document.get("rules", {})})
        if rules.rounds is None and rules.deadline_ms is None:
            rules = replace(rules, rounds=ROUNDS_UNSAID)
        parties = [decode(Party, party, f"/parties/{index}") for index, party in enumerate(document["parties"])]
        for index, party in enumerate(parties):
            if (party.utility.linear is None) == (party.utility.table is None):
                raise UnreadableError(f"/parties/{index}/utility", "`linear` or `table`, in parts per million")
        return Domain(document["name"], Space(rules.issues), parties, rules)

    def party(self, name: str) -> Party:
        """The party of this name."""
        return next(party for party in self.parties if party.name == name)

    def preferences(self, name: str) -> Preferences:
        """What a party wants."""
        party, space = self.party(name), self.space
        limits = party.limits or ()

        def is_allowed(outcome: int) -> bool:
            terms = space.terms(outcome)
            return all(holds(limit, terms.get(limit.attr)) for limit in limits)

        utilities = evaluate(party.utility, space)
        if not limits:
            return Preferences(utilities, party.reservation / PPM)
        return Preferences(utilities, party.reservation / PPM, is_allowed)

    def mandate(self, name: str) -> Mandate:
        """A party's sealed mandate."""
        party = self.party(name)
        return Mandate(
            policy=party.policy,
            utility=party.utility,
            reservation=party.reservation,
            limits=party.limits,
            concession="linear" if isinstance(party.concession, str) else party.concession,
        )
