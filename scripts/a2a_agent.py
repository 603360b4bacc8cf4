"""Agents on the server of PyPI a2a-sdk, as it is published, for scripts/a2a_contractors.py: each knows no more of the exchange than
docs/a2a.md says of being hired, and notes what it hears and says, a JSON line each, with the moment on the machine's monotonic clock."""

import argparse
import asyncio
import json
import time

import uvicorn
from a2a.helpers.proto_helpers import get_data_parts, new_data_part, new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette

CARD = "/.well-known/agent-card.json"


class Contractor(AgentExecutor):
    def __init__(self, name, arguments):
        self.name, self.arguments = name, arguments

    def note(self, context, what):
        line = {"at": time.monotonic(), "agent": self.name, "task": context.task_id, "context": context.context_id, "what": what}
        print(json.dumps(line), file=self.arguments.notes, flush=True)

    async def execute(self, context, event_queue):
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        [told] = (data["payload"] for data in get_data_parts(context.message.parts))
        self.note(context, told["act"])
        await self.answer(context, task, told)

    async def answer(self, context, task, told):
        async def say(payload):
            self.note(context, payload["act"])
            await task.requires_input(task.new_agent_message([new_data_part(payload)]))

        if told["act"] == "cfp":
            await asyncio.sleep(self.arguments.offer_s)
            # A context is hexadecimal digits that nobody foresees, and the same again for the same call.
            price = self.arguments.price + int(context.context_id[:16], 16) % self.arguments.spread
            await say({"act": "offer", "terms": {"price": price, "delivery_ms": 0}})
        elif told["act"] == "accept":
            await say({"act": "confirm", "award_no": int(told["award_no"])})
        else:
            await task.start_work()
            await asyncio.sleep(self.arguments.work_s)
            price = int(told["terms"]["price"])
            await task.add_artifact([new_text_part(f"{self.name} has carried it out for {price}")])
            self.note(context, "done")
            await task.complete()

    async def cancel(self, context, event_queue):
        self.note(context, "CancelTask")
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def routes(contractor, origin):
    """Where the contractor is asked: below its name."""
    card = AgentCard(
        name=contractor.name, description="carries parcels", version="1", capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["application/json", "text/plain"], default_output_modes=["application/json", "text/plain"],
        skills=[AgentSkill(id="carry", name="carry", description="carries a parcel", tags=["courier"])],
        supported_interfaces=[
            AgentInterface(url=f"{origin}/{contractor.name}", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
    )
    handler = DefaultRequestHandler(agent_executor=contractor, task_store=InMemoryTaskStore(), agent_card=card)
    at = f"/{contractor.name}"
    return [*create_agent_card_routes(card, card_url=at + CARD), *create_jsonrpc_routes(handler, at)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--notes", type=argparse.FileType("a"), required=True)
    parser.add_argument("--price", type=int, default=1_000_000, help="the lowest it asks, in micro-units")
    parser.add_argument("--spread", type=int, default=1, help="how much higher it goes, by what it is called to")
    parser.add_argument("--offer-s", type=float, default=0, help="until it offers")
    parser.add_argument("--work-s", type=float, default=0, help="until its work is done")
    parser.add_argument("names", nargs="+", metavar="NAME")
    arguments = parser.parse_args()
    origin = f"http://127.0.0.1:{arguments.port}"
    contractors = [Contractor(name, arguments) for name in arguments.names]
    application = Starlette(routes=[route for contractor in contractors for route in routes(contractor, origin)])
    uvicorn.run(application, host="127.0.0.1", port=arguments.port, log_level="warning")


if __name__ == "__main__":
    main()
