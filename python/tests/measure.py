"""What one process of the SDK does: `python -m tests.measure [NEGOTIATIONS]`.

A process of its own plays a gateway without an exchange: it calls, awards, and tells the contractor that its awards
bind. Printed are messages and deliveries a second, of wall time and of the contractor's processor time, and what 1000
open negotiations take of memory.
"""

import asyncio
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from llmx import Agent, Contractor, IncomingCall, Inform, Job, Offer

from .fake_gateway import FakeGateway, award, cfp, committed, delivery

OPEN_AT_A_TIME = 200
TERMS = {"price": 50_000_000, "delivery_ms": 2000}


def contractor() -> Contractor:
    """One that answers at once."""
    bob = Contractor("bob", topics=["courier"])

    @bob.on_call
    async def answer(call: IncomingCall) -> Offer:
        return call.offer(TERMS)

    @bob.on_commit
    async def work(job: Job) -> Inform:
        return job.done()

    return bob


class Player:
    """The other side, in a process of its own."""

    def __init__(self, gateway: FakeGateway, negotiations: int, to_the_end: bool) -> None:
        self.gateway, self.negotiations, self.to_the_end = gateway, negotiations, to_the_end
        self.called = self.answered = 0
        self.ended = asyncio.Event()
        gateway.answer = self.answer
        self.out: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def play(self) -> None:
        """Calls, and answers until every negotiation is where it shall be."""
        await self.gateway.until(lambda: bool(self.gateway.sockets), 30)
        socket = self.gateway.sockets[-1]
        for _ in range(min(OPEN_AT_A_TIME, self.negotiations)):
            self.call()
        while not self.ended.is_set() or not self.out.empty():
            frame = await self.out.get()
            await socket.send_str(json.dumps(frame))

    def call(self) -> None:
        """One more."""
        self.called += 1
        self.say(cfp(), f"alice~{self.called}")

    def say(self, payload: dict[str, Any], negotiation: str) -> None:
        """Queues a delivery."""
        self.out.put_nowait({"type": "delivery", "delivery": delivery(payload, negotiation=negotiation)})

    def answer(self, frame: dict[str, Any]) -> dict[str, Any] | None:
        """What follows from a message."""
        message = frame["message"]
        negotiation, act = message["envelope"]["negotiation"], message["payload"]["act"]
        if act == "offer" and self.to_the_end:
            self.say(award(TERMS), negotiation)
        elif act == "confirm":
            self.say(committed(message["envelope"]["msg_id"]), negotiation)
        else:
            if self.to_the_end:
                self.say({"act": "closed", "outcome": "completed", "digest": "0" * 64}, negotiation)
            self.answered += 1
            if self.called < self.negotiations:
                self.call()
            elif self.answered >= self.negotiations:
                self.ended.set()
        return self.gateway.accept(frame)


def other_side(pipe: Connection, negotiations: int, to_the_end: bool) -> None:
    """Runs a player, and says where and when it is done."""

    async def main() -> None:
        async with FakeGateway() as gateway:
            pipe.send(gateway.url)
            player = Player(gateway, negotiations, to_the_end)
            playing = asyncio.create_task(player.play())
            await player.ended.wait()
            pipe.send("done")
            await asyncio.to_thread(pipe.recv)
            playing.cancel()

    asyncio.run(main())


async def measure(negotiations: int, to_the_end: bool, note: Callable[[Contractor], Any]) -> dict[str, Any]:
    """One run."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=other_side, args=(there, negotiations, to_the_end), daemon=True)
    process.start()
    url = await asyncio.to_thread(here.recv)
    bob = contractor()
    rss = resident_bytes()
    async with Agent(bob, gateways=url, token="t") as agent:
        began, cpu = time.monotonic(), time.process_time()
        await asyncio.to_thread(here.recv)
        took, cpu = time.monotonic() - began, time.process_time() - cpu
        summary = agent.summary
        found = {
            "negotiations": negotiations,
            "messages_per_s": round(summary.transmitted / took),
            "messages_per_cpu_s": round(summary.transmitted / cpu),
            "deliveries_per_cpu_s": round(summary.deliveries / cpu),
            "deliveries_per_acknowledgement": round(summary.deliveries / max(summary.acknowledgements, 1), 1),
            "bytes_grown": resident_bytes() - rss,
            **note(bob),
        }
    here.send("end")
    process.join(10)
    return found


def resident_bytes() -> int:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


async def main() -> None:
    """Memory first: what was freed before would hide it."""
    negotiations = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    base = resident_bytes()
    open_ones = await measure(1000, False, lambda bob: {"open": bob.open_count, "process_bytes": resident_bytes()})
    print(json.dumps({"base_bytes": base, **open_ones}, indent=1))  # noqa: T201
    print(json.dumps(await measure(negotiations, True, lambda _: {}), indent=1))  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main())
