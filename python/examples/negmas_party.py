"""A negotiator of NegMAS bargains over a scenario of its own format, or a domain file of the exchange.

    python negmas_party.py http://127.0.0.1:8080 shop shop.jwt domains/ecommerce.json
    python negmas_party.py http://127.0.0.1:8080 ann ann.jwt domains/ecommerce.json shop

The second calls the first, which waits for it, and has the first turn: it is the first party of the file.
"""

import asyncio
import json
import sys
from pathlib import Path

from negmas.sao.negotiators import BoulwareTBNegotiator

from llmx import Agent, Bargainer, BargainResult, Invitation, Plan, Refuse
from llmx.negmas import NegmasParty, Translation, from_domain, from_scenario, load


def read(path: Path) -> Translation:
    """A domain file, or a folder with a scenario in XML or YAML."""
    if path.suffix == ".json":
        return from_domain(json.loads(path.read_text(encoding="utf-8")))
    return from_scenario(load(path))


async def play(gateway: str, name: str, token_file: str, translation: Translation, *other: str) -> BargainResult:
    """One bargain, from the call to its end."""
    bargainer = Bargainer(name)
    plan = NegmasParty(translation, 0 if other else 1, BoulwareTBNegotiator()).plan()
    ended: asyncio.Future[BargainResult] = asyncio.get_running_loop().create_future()

    @bargainer.on_invitation
    async def join(invitation: Invitation) -> Plan | Refuse:
        is_known = invitation.rules.issues == translation.rules.issues and not other and bargainer.open_count == 0
        return plan if is_known else invitation.refuse("takes part in one bargain, over its own scenario")

    @bargainer.on_close
    async def close(result: BargainResult) -> None:
        ended.set_result(result)

    async with Agent(bargainer, gateways=[gateway], token_file=token_file):
        print("ready", flush=True)
        if other:
            await bargainer.open(f"agent://{other[0]}", rules=translation.rules, plan=plan)
        return await ended


def main(gateway: str, name: str, token_file: str, path: str, *other: str) -> None:
    """Says how it ended."""
    result = asyncio.run(play(gateway, name, token_file, read(Path(path)), *other))
    print(f"{result.outcome} {dict(result.agreement.terms) if result.agreement else {}}")


if __name__ == "__main__":
    main(*sys.argv[1:])
