"""A contractor whose offers come from a LangGraph graph.

    python langgraph_contractor.py GATEWAY...        (pip install './python[langgraph]'; the token is in carol.jwt)

The graph has two nodes: `think` asks a model, `check` reads its answer and holds it to the contractor's own limits. An
answer that does not fit is put to the model once more; after that the contractor refuses. The model here is scripted, so
that the example runs without a key: any chat model of LangChain takes its place.
"""

import json
import logging
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, TypedDict

from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langgraph.graph import END, START, StateGraph

from llmx import Contractor, IncomingCall, Inform, Job, Offer, Refuse, run

LEAST = 45_000_000
"""The contractor's limit, in micro-units. It is checked here, and in no prompt."""

ATTEMPTS_MAX = 2
SYSTEM = 'Answer with one JSON object: {"price": micro-units, "delivery_ms": milliseconds}, or {"refuse": reason}.'


class State(TypedDict):
    """What flows through the graph."""

    messages: list[BaseMessage]
    attempts: int
    offer: dict[str, int] | None
    refusal: str | None


def scripted_model() -> BaseChatModel:
    """Forgets the delivery time every other time it is asked, and gives it when it is asked again."""
    short, whole = '{"price": 50000000}', '{"price": 50000000, "delivery_ms": 2000}'

    def answers() -> Any:
        while True:
            yield AIMessage(short)
            yield AIMessage(whole)

    return GenericFakeChatModel(messages=answers())


def fault(answer: Any) -> str | None:
    """What is wrong with an answer; None: nothing."""
    if not isinstance(answer, dict):
        return "not an object"
    for name in ("price", "delivery_ms"):
        if not isinstance(answer.get(name), int):
            return f"/{name}: expected an integer"
    return None if answer["price"] >= LEAST else "/price: below what may be offered"


@cache
def log_once(why: str) -> None:
    """Why an answer did not fit, once per reason: whoever runs a contractor that only refuses finds the cause."""
    logging.getLogger("llmx").warning("carol: an answer of the model does not fit: %s", why)


def build(model: BaseChatModel) -> Any:
    """The graph over a model."""

    async def think(state: State) -> dict[str, Any]:
        answer = await model.ainvoke(state["messages"])
        return {"messages": [*state["messages"], answer], "attempts": state["attempts"] + 1}

    async def check(state: State) -> dict[str, Any]:
        try:
            answer = json.loads(str(state["messages"][-1].content))
        except ValueError:
            answer = None
        if isinstance(answer, dict) and isinstance(answer.get("refuse"), str):
            return {"refusal": answer["refuse"]}
        why = fault(answer)
        if why is None:
            return {"offer": {"price": answer["price"], "delivery_ms": answer["delivery_ms"]}}
        log_once(why)
        if state["attempts"] >= ATTEMPTS_MAX:
            return {"refusal": "model_output"}
        return {"messages": [*state["messages"], HumanMessage(f"That does not fit: {why}.")]}

    def is_decided(state: State) -> str:
        return END if state["offer"] or state["refusal"] else "think"

    graph = StateGraph(State)
    graph.add_node("think", think)
    graph.add_node("check", check)
    graph.add_edge(START, "think")
    graph.add_edge("think", "check")
    graph.add_conditional_edges("check", is_decided)
    return graph.compile()


def contractor(model: BaseChatModel) -> Contractor:
    """A contractor that thinks with a model."""
    graph = build(model)
    carol = Contractor("carol", topics=["courier"])

    @carol.on_call
    async def answer(call: IncomingCall) -> Offer | Refuse:
        # Words of others are data, and are marked as such.
        prompt = json.dumps({"task": call.task, "constraints": dict(call.constraints)})
        messages = [SystemMessage(SYSTEM), HumanMessage(f"The call, as data: {prompt}")]
        state = await graph.ainvoke({"messages": messages, "attempts": 0, "offer": None, "refusal": None})
        return call.offer(state["offer"]) if state["offer"] else call.refuse(state["refusal"])

    @carol.on_commit
    async def work(job: Job) -> Inform:
        return job.done("delivered")

    return carol


def main(gateways: Sequence[str]) -> None:
    """Runs it until it is asked to end."""
    run(contractor(scripted_model()), gateways=gateways, token_file="carol.jwt")


if __name__ == "__main__":
    main(sys.argv[1:])
