"""A NegMAS negotiator as the strategy of a party.

The party keeps a mechanism of NegMAS in which a stand-in says what the other party has said on the exchange, and waits while
it has not spoken. The negotiator is asked by that mechanism, so it sees the states, times and callbacks it knows. A round is a
step of NegMAS, and relative time is the same.

| in NegMAS | on the exchange |
|---|---|
| an offer, an acceptance | the same |
| the end of the negotiation, leaving, no offer (`None`), no response | `End` |
| `WAIT` | `End`: a turn is taken once |
| `time_limit` | `deadline_ms`, counted here from the first turn |

What stands no longer when the party is asked (withdrawn, expired) counts as no offer. A move that the exchange refuses, as one
outside the party's mandate, ends the bargain: a negotiator cannot take back what it has said.
"""

import asyncio
from typing import Any

from negmas.sao import ResponseType, SAOMechanism, SAONegotiator, SAOResponse

from llmx.acts import Accept, End, Offer
from llmx.bargaining import MyTurn, Plan
from llmx.documents import BargainRules
from llmx.negmas.scenarios import ScenarioError, Translation


class _StandIn(SAONegotiator):  # type: ignore[misc]
    """The other party: says what it is told to say."""

    answer = SAOResponse(ResponseType.WAIT, None)

    def __call__(self, state: Any, dest: str | None = None) -> Any:
        return self.answer

    def propose(self, state: Any, dest: str | None = None) -> Any:
        return self.answer.outcome


class _Rounds(SAOMechanism):  # type: ignore[misc]
    """A mechanism that counts rounds alone: it draws a number for each second that it sees pass."""

    @property
    def time(self) -> float:
        return 0.0


class NegmasParty:
    """A strategy: `Plan(NegmasParty(...))`. One instance serves one bargain.

    `party` is 0 for the one that calls the other and has the first turn, otherwise 1. The negotiator gets the utility function
    of that number.

    It decides in a thread, so that the agent goes on meanwhile. With `in_thread=False` it holds the agent up, but nothing else
    draws from Python's random numbers while it does: what it draws from a seed can be repeated.
    """

    def __init__(self, translation: Translation, party: int, negotiator: Any, *, in_thread: bool = True) -> None:
        """Raises `ScenarioError` when there is no such party."""
        if party not in (0, 1):
            raise ScenarioError(f"party {party}: 0, which has the first turn, or 1")
        self._translation = translation
        self._party = party
        self._negotiator = negotiator
        self._in_thread = in_thread
        self._other = _StandIn(name="other")
        self._mechanism: Any = None

    def plan(self) -> Plan:
        """The plan of a party that binds itself to its utilities and reserved value, where a mandate can say them."""
        return Plan(self, mandate=self._translation.mandate(self._party))

    async def __call__(self, turn: MyTurn) -> Offer | Accept | End:
        """One turn."""
        if turn.refusal is not None:
            return turn.end(f"refused: {turn.refusal}")
        return await asyncio.to_thread(self.move, turn) if self._in_thread else self.move(turn)

    def move(self, turn: MyTurn) -> Offer | Accept | End:
        """The same for who waits while the negotiator decides."""
        if self._mechanism is None:
            self._mechanism = self._start(turn.rules)
        if self._party == 1 or turn.round > 1:
            self._other.answer = self._said(turn)
        if self._party == 0 and turn.round > 1:
            # What the other said ends the round before.
            self._mechanism.step()
        if self._party == 0:
            self._other.answer = _StandIn.answer
        state = self._mechanism.step()
        if state.agreement is not None:
            return turn.accept()
        is_offered = state.running and state.current_proposer == self._negotiator.id and state.current_offer is not None
        return turn.offer(self._translation.terms(state.current_offer)) if is_offered else turn.end()

    def _start(self, rules: BargainRules) -> Any:
        seconds = rules.deadline_ms / 1000 if rules.deadline_ms is not None else None
        space, ufun = self._translation.scenario.outcome_space, self._translation.scenario.ufuns[self._party]
        kind = _Rounds if seconds is None else SAOMechanism
        mechanism = kind(outcome_space=space, n_steps=rules.rounds, time_limit=seconds, sync_calls=True)
        own = (self._negotiator, ufun)
        for negotiator, preferences in (own, (self._other, None)) if self._party == 0 else ((self._other, None), own):
            if not mechanism.add(negotiator, preferences=preferences):
                raise ScenarioError(f"negotiator {negotiator.name} does not enter: make a new one for each bargain")
        return mechanism

    def _said(self, turn: MyTurn) -> Any:
        if turn.standing is None:
            return SAOResponse(ResponseType.REJECT_OFFER, None, {"text": "what was offered stands no longer"})
        return SAOResponse(ResponseType.REJECT_OFFER, self._translation.outcome(turn.standing.terms))
