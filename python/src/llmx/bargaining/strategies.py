"""What a party does in its turn: concession in time, as the exchange's own scripted parties concede."""

from collections.abc import Sequence

from llmx.acts import Accept, End, Offer
from llmx.bargaining.bargainer import MyTurn
from llmx.bargaining.preferences import Preferences
from llmx.bargaining.space import Space

SLACK = 1e-4
"""How far below its aspiration a party already accepts and proposes."""

NEARLY = 1e-6
"""An outcome this little below that bound is proposed when it is the nearest to it."""


class TimeDependent:
    """Aspires to 1 - t^e between the least it could agree to and its best. It accepts what is worth its aspiration, otherwise
    it proposes the least of its outcomes that is. One instance serves one bargain."""

    def __init__(self, space: Space, preferences: Preferences, exponent: float = 4.0) -> None:
        self._space = space
        self._preferences = preferences
        self._exponent = exponent
        self._outside: set[int] = set()
        self._refused: set[int] = set()
        self._offered: set[int] = set()

    @staticmethod
    def boulware(space: Space, preferences: Preferences) -> "TimeDependent":
        """Concedes late."""
        return TimeDependent(space, preferences, 4.0)

    @staticmethod
    def linear(space: Space, preferences: Preferences) -> "TimeDependent":
        """Concedes steadily."""
        return TimeDependent(space, preferences, 1.0)

    @staticmethod
    def conceder(space: Space, preferences: Preferences) -> "TimeDependent":
        """Concedes early."""
        return TimeDependent(space, preferences, 0.25)

    async def __call__(self, turn: MyTurn) -> Offer | Accept | End:
        """One turn, again when the exchange has refused the move made before in it."""
        if turn.refused is not None and isinstance(turn.refused, Offer):
            outcome = self._space.outcome(turn.refused.terms)
            if outcome is None:
                return turn.end()
            self._offered.discard(outcome)
            (self._outside if turn.refusal == "mandate_violation" else self._refused).add(outcome)
            return self._instead_of(turn, outcome)
        aspiration = self.aspiration(turn.t)
        if aspiration is None:
            return turn.end()
        standing = self._space.outcome(turn.standing.terms) if turn.standing is not None else None
        is_enough = standing is not None and self._preferences.is_acceptable(standing)
        if standing is not None and is_enough and self._preferences.utilities[standing] >= aspiration:
            return turn.accept()
        outcome = self._proposal(aspiration)
        return self._offer(turn, outcome) if self._may_offer(turn, outcome) else self._instead_of(turn, outcome)

    def aspiration(self, t: float) -> float | None:
        """The least utility it accepts and proposes at relative time `t`; None when it may agree to nothing."""
        span = self._preferences.span()
        if span is None:
            return None
        least, most = span
        part: float = 1.0 - min(max(t, 0.0), 1.0) ** self._exponent
        return min(max((most - least) * part + least - SLACK, least), most)

    def _proposal(self, aspiration: float) -> int:
        ranking, utilities = self._preferences.ranking, self._preferences.utilities
        position = self._preferences.position_at_least(aspiration)
        above = ranking[position] if position < len(ranking) else None
        if position > 0:
            below = ranking[position - 1]
            distance = abs(utilities[below] - aspiration)
            is_nearer = above is None or distance < abs(utilities[above] - aspiration)
            if distance <= NEARLY and is_nearer:
                return below
        return ranking[-1] if above is None else above

    def _offer(self, turn: MyTurn, outcome: int) -> Offer:
        self._offered.add(outcome)
        return turn.offer(self._space.terms(outcome))

    def _may_offer(self, turn: MyTurn, outcome: int) -> bool:
        is_refused = outcome in self._outside or outcome in self._refused
        return not is_refused and not (turn.rules.forbid_repeat and outcome in self._offered)

    def _instead_of(self, turn: MyTurn, refused: int) -> Offer | End:
        """The nearest better outcome instead of one outside its mandate, otherwise the nearest worse one."""
        preferences = self._preferences
        at = preferences.position_at_least(preferences.utilities[refused])
        worse, better = list(reversed(preferences.ranking[:at])), preferences.ranking[at:]
        nearest = [better, worse] if refused in self._outside else [worse, better]
        for outcomes in nearest:
            outcome = self._first_possible(turn, outcomes)
            if outcome is not None:
                return self._offer(turn, outcome)
        return turn.end()

    def _first_possible(self, turn: MyTurn, outcomes: Sequence[int]) -> int | None:
        return next((outcome for outcome in outcomes if self._may_offer(turn, outcome)), None)
