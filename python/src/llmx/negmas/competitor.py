"""A class of NegMAS negotiators as a competitor of `llmx-lab tournament`, which starts this module and asks it line by line.

| asked | answered |
|---|---|
| nothing: it was started | `{"ready": VERSION AND CLASS}` |
| `{"domain": N, "document": DOMAIN}` | `{"ready": NAME}` |
| `{"id": N, "start": START, "turn": TURN}` | `{"offer": TERMS}`, `{"accept": true}` or `{"end": true}` |

`START`, with the first turn of bargain `N`, is `{"domain": N, "party": 0 or 1, "seed": N}`; then null. `TURN` is
`{"round": N, "t": X, "standing": TERMS or null}`. In place of any answer comes `{"failed": TEXT}`. A bargain is forgotten when
another one of its party starts. What negotiators print goes to standard error, and the process ends with its input.

Bargains have no clock here. Each negotiator takes its numbers from Python's and NumPy's shared generators as if it were alone.
"""

import dataclasses
import importlib
import json
import os
import queue
import random
import sys
import threading
import time
from types import TracebackType
from typing import Any, TextIO

import negmas
import numpy

from llmx.acts import Accept, Offer
from llmx.bargaining import MyTurn
from llmx.deliveries import Standing
from llmx.documents import BargainRules
from llmx.negmas.party import NegmasParty
from llmx.negmas.scenarios import Translation, from_domain

BUILT_IN = "negmas.sao.negotiators"
END_S = 5.0
"""How long what was asked last may take once nobody waits for it any more."""


class Draws:
    """The random numbers of one negotiator: others do not take from them."""

    def __init__(self, seed: int) -> None:
        self._own: tuple[Any, Any] = (
            random.Random(seed).getstate(),
            numpy.random.RandomState(seed % 2**32).get_state(),
        )

    def __enter__(self) -> None:
        self._others = (random.getstate(), numpy.random.get_state())
        self._set(self._own)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._own = (random.getstate(), numpy.random.get_state())
        self._set(self._others)

    def _set(self, states: tuple[Any, Any]) -> None:
        random.setstate(states[0])
        numpy.random.set_state(states[1])


def negotiator_class(name: str) -> Any:
    """The class of this name, in NegMAS where it names no module.

    Raises `ValueError` when there is none.
    """
    module, _, cls = name.rpartition(".")
    found = getattr(importlib.import_module(module or BUILT_IN), cls, None)
    if not (isinstance(found, type) and issubclass(found, negmas.Negotiator)):
        raise ValueError(f"{module or BUILT_IN} has no negotiator {cls}")
    return found


@dataclasses.dataclass
class Seat:
    """A negotiator in a bargain."""

    bargain: int
    party: NegmasParty
    rules: BargainRules
    draws: Draws


class Competitor:
    """Negotiators of one class, one for each bargain."""

    def __init__(self, name: str) -> None:
        self._class = negotiator_class(name)
        # One that cannot be made is known before anything is played.
        self._class(name="first")
        self._domains: dict[int, Translation] = {}
        self._seats: dict[int, Seat] = {}

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What is answered to a line."""
        if "document" in asked:
            self._domains[asked["domain"]] = from_domain(asked["document"])
            return {"ready": asked["document"]["name"]}
        if asked["start"] is not None:
            self._take_seat(asked["id"], **asked["start"])
        return self._move(next(seat for seat in self._seats.values() if seat.bargain == asked["id"]), **asked["turn"])

    def _take_seat(self, bargain: int, domain: int, party: int, seed: int) -> None:
        translation, draws = self._domains[domain], Draws(seed)
        with draws:
            made = NegmasParty(translation, party, self._class(name=self._class.__name__), in_thread=False)
        rules = dataclasses.replace(translation.rules, deadline_ms=None)
        self._seats[party] = Seat(bargain, made, rules, draws)

    def _move(self, seat: Seat, round: int, t: float, standing: dict[str, Any] | None) -> dict[str, Any]:  # noqa: A002
        stands = Standing(offer_id="", by="", terms=standing, terms_digest="") if standing is not None else None
        with seat.draws:
            move = seat.party.move(MyTurn(str(seat.bargain), seat.rules, round, t, stands))
        if isinstance(move, Offer):
            return {"offer": move.terms}
        return {"accept": True} if isinstance(move, Accept) else {"end": True}


def read(lines: "queue.Queue[str | None]", asked: TextIO) -> None:
    """Passes lines on. Behind the last one the process ends, a while later even where a negotiator still computes."""
    for line in asked:
        lines.put(line)
    lines.put(None)
    time.sleep(END_S)
    os._exit(0)


def main() -> None:
    """Answers until its input ends."""
    # Nothing that a negotiator does to its own input and output is heard by whoever asks.
    asked, answered = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=read, args=(lines, asked), daemon=True).start()

    def say(answer: dict[str, Any]) -> None:
        answered.write(json.dumps(answer) + "\n")
        answered.flush()

    def failed(error: BaseException) -> None:
        say({"failed": f"{type(error).__name__}: {error}"})

    try:
        competitor = Competitor(sys.argv[1])
    except (Exception, SystemExit) as error:  # noqa: BLE001  Whatever a module of others raises.
        failed(error)
        return
    say({"ready": f"negmas {negmas.__version__} {sys.argv[1]}"})
    while (line := lines.get()) is not None:
        try:
            say(competitor.answer(json.loads(line)))
        except (Exception, SystemExit) as error:  # noqa: BLE001  Whatever a negotiator of others raises.
            failed(error)


if __name__ == "__main__":
    main()
