"""Bargaining: alternating offers among two or more parties.

| module | question it answers |
|---|---|
| `space` | which outcomes are there, and which terms is outcome 7? |
| `preferences` | what is an outcome worth to a party, and which may it agree to? |
| `strategies` | offer, accept or end? |
| `domain` | what is bargained about, by whom, under which rules? (a file) |
| `bargainer` | how does an agent take part on the exchange? |

Outcomes are numbered from 0, row-major: the last issue runs fastest.
"""

from llmx.bargaining.bargainer import Bargain, Bargainer, BargainResult, Invitation, MyTurn, Plan, Strategy
from llmx.bargaining.domain import Domain, Party
from llmx.bargaining.preferences import Preferences
from llmx.bargaining.space import Space
from llmx.bargaining.strategies import TimeDependent

__all__ = [
    "Bargain",
    "BargainResult",
    "Bargainer",
    "Domain",
    "Invitation",
    "MyTurn",
    "Party",
    "Plan",
    "Preferences",
    "Space",
    "Strategy",
    "TimeDependent",
]
