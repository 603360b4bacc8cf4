"""What the agents of `examples/python` share."""

import asyncio
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from .fake_gateway import FakeGateway, problem
from .test_agent import Server

sys.path.append(str(Path(__file__).parents[2] / "examples" / "python"))


@pytest.mark.parametrize(
    ("code", "asked_ms", "waits"),
    [
        ("overloaded", [30, 30, 30, 30, 30, 30], lambda waited: min(waited) >= 0.03 and sum(waited) < 2),
        ("rate_limited", [1, 1, 1], lambda waited: waited[0] >= 0.2 and waited[1] >= 0.4 and waited[2] >= 0.8),
        ("log_unavailable", [700], lambda waited: waited[0] >= 0.7),
    ],
)
async def test_a_request_of_an_example_waits_as_long_as_the_exchange_says(
    code: str, asked_ms: list[int], waits: Callable[[list[float]], bool], capsys: pytest.CaptureFixture[str]
) -> None:
    came: list[float] = []

    async def answer(_: web.Request) -> web.StreamResponse:
        came.append(time.monotonic())
        if len(came) > len(asked_ms):
            return web.json_response({"negotiation": "ann~1"})
        return web.json_response(problem(code, 503, retry_after_ms=asked_ms[len(came) - 1]), status=503)

    exchange: Any = __import__("exchange")

    async with Server(answer) as server:
        ann = exchange.Exchange(server.url, "ann", "t")
        sent = await asyncio.to_thread(ann.send, "1", {"act": "cfp"})
    assert sent == {"negotiation": "ann~1"}
    assert waits([after - before for before, after in pairwise(came)])
    said = capsys.readouterr().err
    assert f"refuses for now ({code}): trying again" in said
    assert "answers again" in said


async def test_a_request_of_an_example_that_is_refused_all_the_time_says_so() -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(problem("overloaded", 503, retry_after_ms=50), status=503)

    exchange: Any = __import__("exchange")

    async with Server(answer) as server:
        ann = exchange.Exchange(server.url, "ann", "t")
        with pytest.raises(SystemExit, match=r"has refused POST /v1/messages for 0.2 s: overloaded"):
            await asyncio.to_thread(ann.request, "POST", "/v1/messages", {}, 0.2)


async def test_an_example_takes_away_the_registration_of_its_own_process_alone() -> None:
    exchange: Any = __import__("exchange")
    async with FakeGateway() as gateway:
        old, new = (exchange.Exchange(gateway.url, "bob", "t") for _ in range(2))
        for process in (old, new):
            await asyncio.to_thread(process.register, topics=["courier"])
        await asyncio.to_thread(old.__exit__, None)
        assert gateway.registered == new.instance
        await asyncio.to_thread(new.__exit__, None)
        assert gateway.registered is None
