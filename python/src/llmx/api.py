"""The exchange's registers over HTTP: who is registered, groups, policies, what is visible of a negotiation."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from llmx.codec import decode, encode
from llmx.documents import Consent, Group, Policy, Registration
from llmx.gateways import Gateways


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAgent:
    """An agent as others see it."""

    agent: str
    present: bool
    capabilities: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    lease_ms: int | None = None
    durable: bool = False
    description: str | None = None


class Api:
    """Requests of one agent, at whichever of its gateways answers. `Agent.gateways` is one to use it with."""

    def __init__(self, gateways: Gateways) -> None:
        self._gateways = gateways

    async def register(self, name: str, registration: Registration) -> None:
        """Registers an agent, or changes its registration."""
        await self._gateways.request("PUT", f"/v1/agents/{quote(name)}", encode(self._gateways.named(registration)))

    async def deregister(self, name: str) -> None:
        """Takes a registration away."""
        await self._gateways.request("DELETE", f"/v1/agents/{quote(name)}")

    async def consent(self, name: str, consent: Consent) -> None:
        """Replaces the consent of an agent, and nothing else of its registration."""
        await self._gateways.request("PUT", f"/v1/agents/{quote(name)}/consent", encode(consent))

    async def agent(self, name: str) -> KnownAgent:
        """One agent."""
        return decode(KnownAgent, await self._gateways.request("GET", f"/v1/agents/{quote(name)}"))

    async def agents(
        self, *, topic: str | None = None, capability: str | None = None, present: bool | None = None
    ) -> AsyncIterator[KnownAgent]:
        """Who is registered, page by page."""
        asked = {"topic": topic, "capability": capability, "present": None if present is None else str(present).lower()}
        query = {name: value for name, value in asked.items() if value is not None}
        after: str | None = None
        while True:
            page = urlencode({**query, **({"after": after} if after else {})})
            document = await self._gateways.request("GET", f"/v1/agents?{page}")
            for one in document["agents"]:
                yield decode(KnownAgent, one)
            after = document.get("next")
            if after is None:
                return

    async def policies(self) -> list[Policy]:
        """The current version of every policy a call may name."""
        document = await self._gateways.request("GET", "/v1/policies")
        return [decode(Policy, one["policy"]) for one in document["policies"]]

    async def default_policy(self) -> str:
        """The policy of calls that name none."""
        name: str = (await self._gateways.request("GET", "/v1/policies/default"))["policy"]
        return name

    async def policy(self, name: str) -> Policy:
        """One policy by `name` or `name@version`."""
        document = await self._gateways.request("GET", f"/v1/policies/{quote(name, safe='@')}")
        return decode(Policy, document["policy"])

    async def put_policy(self, policy: Policy) -> None:
        """Publishes a version and makes it current; takes an administrator's token."""
        path = f"/v1/policies/{quote(policy.id, safe='@')}"
        await self._gateways.request("PUT", path, encode(policy))

    async def switch_default_policy(self, name: str) -> None:
        """The policy of calls that name none; takes an administrator's token."""
        await self._gateways.request("PUT", "/v1/policies/default", {"policy": name})

    async def group(self, group_id: str) -> Group:
        """One group."""
        return decode(Group, await self._gateways.request("GET", f"/v1/groups/{quote(group_id)}"))

    async def put_group(self, group: Group) -> None:
        """Puts a group; takes an administrator's token."""
        await self._gateways.request("PUT", f"/v1/groups/{quote(group.id)}", encode(group))

    async def negotiation(self, negotiation: str) -> Any:
        """What this agent may see of a negotiation it takes part in, as the gateway shows it."""
        return await self._gateways.request("GET", f"/v1/negotiations/{quote(negotiation, safe='~')}")
