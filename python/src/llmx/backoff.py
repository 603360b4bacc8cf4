"""When to try again."""

import random

JITTER = 0.5
"""The share of a gap that is random, so that those which failed together do not come back together."""


def gap_s(attempt: int, base_s: float, max_s: float) -> float:
    """The gap after failed attempt number `attempt`, counted from 1."""
    ceiling: float = min(base_s * 2.0 ** min(attempt - 1, 31), max_s)
    return ceiling * (1 - JITTER * random.random())
