"""When to try again."""

import random

JITTER = 0.5
"""The share of a gap that is random, so that those which failed together do not come back together."""

SAID_JITTER = 0.1
"""The share that is added at random to a wait that is a turn: never less, as that would be refused again."""

SAID_WAIT_S_MAX = 60.0
"""The longest wait that is believed: six times what a gateway says."""


def wait_s(attempt: int, base_s: float, max_s: float, said_ms: int | None, *, is_turn: bool = False) -> float:
    """How long to wait after failed attempt number `attempt`: a gap of one's own, and not less than the exchange says.

    Where the exchange says when its turn comes, it is that, and no gap of one's own.
    """
    said_s = min((said_ms or 0) / 1000, SAID_WAIT_S_MAX)
    if is_turn and said_s > 0:
        return said_s * (1 + SAID_JITTER * random.random())
    return max(gap_s(attempt, base_s, max_s), said_s)


def gap_s(attempt: int, base_s: float, max_s: float) -> float:
    """The gap after failed attempt number `attempt`, counted from 1."""
    ceiling: float = min(base_s * 2.0 ** min(attempt - 1, 31), max_s)
    return ceiling * (1 - JITTER * random.random())
