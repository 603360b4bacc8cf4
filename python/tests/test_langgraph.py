"""The example with LangGraph. Where LangGraph is not installed it is not run, and that is said."""

import importlib
import importlib.util
import sys
import warnings
from pathlib import Path

import pytest

from llmx import Agent

from .fake_gateway import FakeGateway, award, cfp, committed

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

if importlib.util.find_spec("langgraph") is None:
    warnings.warn("NOT RUN: the example with LangGraph; pip install './python[langgraph]' makes it run", stacklevel=1)
    pytest.skip("NOT RUN: langgraph is not installed", allow_module_level=True)


async def test_a_graph_makes_the_offer_and_a_wrong_answer_of_the_model_is_repaired() -> None:
    example = importlib.import_module("langgraph_contractor")
    carol = example.contractor(example.scripted_model())
    async with FakeGateway() as gateway, Agent(carol, gateways=gateway.url, token="t"):
        terms = {"price": 50_000_000, "delivery_ms": 2000}
        await gateway.deliver(cfp(constraints={"weight_g": 900}))
        await gateway.until(lambda: len(gateway.messages) == 1)
        assert gateway.messages[0]["payload"] == {"act": "offer", "terms": terms, "round": 1}
        await gateway.deliver(award(terms))
        await gateway.until(lambda: len(gateway.messages) == 2)
        await gateway.deliver(committed("m"))
        await gateway.until(lambda: len(gateway.messages) == 3)
        assert gateway.messages[2]["payload"] == {"act": "inform", "kind": "done", "result": "delivered"}


async def test_a_model_that_never_fits_makes_no_offer_and_its_limit_holds_and_why_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    example = importlib.import_module("langgraph_contractor")
    example.log_once.cache_clear()
    for answer in ('{"price": 1, "delivery_ms": 2000}', "I would rather not.", "[]"):
        model = example.GenericFakeChatModel(messages=iter([answer] * example.ATTEMPTS_MAX))
        async with FakeGateway() as gateway, Agent(example.contractor(model), gateways=gateway.url, token="t"):
            await gateway.deliver(cfp())
            await gateway.until(lambda gateway=gateway: len(gateway.messages) == 1)  # type: ignore[misc]
            assert gateway.messages[0]["payload"] == {"act": "refuse", "reason": "model_output", "round": 1}
    assert [
        one.getMessage().removeprefix("carol: an answer of the model does not fit: ") for one in caplog.records
    ] == [
        "/price: below what may be offered",
        "not an object",
    ]
