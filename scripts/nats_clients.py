"""Part `nats` of scripts/check-bridges: PyPI nats-py and synadia-ai-agents, as they are published, against `llmx bridge --nats` of an
exchange of real processes with two scripted contractors.

Runs in the virtual environment that has them, and prints a JSON line for each check when it has ended, as scripts/mcp_checks.py does."""

import argparse
import asyncio
import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import sys
import time

import nats
from synadia_ai.agents import Agents, PromptExtras, ProtocolError

from a2a_contractors import carry_out
from free_ports import free_port
from testbed import LLMX, START_S, Failed, Keys, Site, expect

CONTRACTORS = ["contractor-0", "contractor-1"]
OWNER, SESSION = "acme", "main"
WAIT_MS, ANSWER_S = 5000, 10  # of a request
REQUESTS = 12  # until a call has ended
TOO_LONG = 65 * 1024
IDLE, AT_ONCE = 4000, 64  # participants of which nothing is asked, opened so many at a time
SETTLE_S, MEASURED_S = 10, 20  # until they rest, and while they do
EACH_BYTES_MAX, CORE_MAX = 64 * 1024, 0.2


class Exchange:
    """An exchange, its contractors, and a bridge on its NATS."""

    def __init__(self, stack, home):
        self.keys = Keys(home)
        self.site = Site(stack, home / "site", self.keys)
        [gateway], self.nats = self.site.urls, f"nats://{self.site.nats}"
        more = ["--nats", self.nats, "--agents-service", f"{OWNER}.{SESSION}"]
        contractors = ["contractors", "--count", str(len(CONTRACTORS)), "--key", self.keys.signing_key]
        for name, command in (("contractors", contractors), ("bridge", ["bridge", *more])):
            address = self.site.addresses[name] = f"127.0.0.1:{free_port()}"
            service = self.site.start(name, [LLMX, *command, "--gateway", gateway, "--listen", address])
            self.site.ready(service)
        self.bridge = service

    def token(self, agent):
        return {"Llmx-Token": self.keys.token(agent)}


def cfp(own_id):
    return {
        "id": own_id, "task": "carry a parcel", "to": [f"agent://{name}" for name in CONTRACTORS], "policy": "high",
        "wait_ms": WAIT_MS,
    }


async def followed(call, own_id):
    """A call to its end: the contractor, the outcome, and how many requests that took."""
    told = await call("call_for_offers", cfp(own_id))
    negotiation, requests, after = told["negotiation"], 1, told["cursor"]
    while not told["view"].get("outcome"):
        if requests == REQUESTS:
            raise Failed(f"no end after {requests} requests: {json.dumps(told)[:2000]}")
        told = await call("follow", {"negotiation": negotiation, "after": after, "wait_ms": WAIT_MS})
        requests, after = requests + 1, told["cursor"]
    expect(told["view"]["outcome"], "completed", "outcome")
    return told["view"]["awards"][0]["contractor"], requests


async def nats_py(exchange):
    client = await nats.connect(exchange.nats)

    async def request(subject, body, headers=None):
        return await client.request(subject, body, timeout=ANSWER_S, headers=headers)

    async def call(tool, arguments):
        answer = await request(f"llmx.{tool}", json.dumps(arguments).encode(), exchange.token("alice"))
        told = json.loads(answer.data)
        expect((answer.headers or {}).get("Nats-Service-Error-Code"), None, f"{tool}: {told}")
        return told

    try:
        info = json.loads((await request("$SRV.INFO.llmx", b"")).data)
        for endpoint in info["endpoints"]:
            expect(json.loads(endpoint["metadata"]["schema"])["type"], "object", f"schema of {endpoint['name']}")
        contractor, requests = await followed(call, "by-nats")
        codes = []
        for headers, body in ((None, b"{}"), (exchange.token("alice"), b"x" * TOO_LONG)):
            codes.append((await request("llmx.inbox", body, headers)).headers["Nats-Service-Error-Code"])
        expect(codes, ["401", "413"], "codes")
        asked, deadline = 0, time.monotonic() + ANSWER_S
        # A request is counted behind its reply.
        while asked < requests + 2 and time.monotonic() < deadline:
            stats = json.loads((await request("$SRV.STATS.llmx", b"")).data)
            asked = sum(endpoint["num_requests"] for endpoint in stats["endpoints"])
        expect(asked, requests + 2, "requests of $SRV.STATS")
    finally:
        await client.close()
    return f"{len(info['endpoints'])} endpoints with a schema each; {contractor} awarded and done after {requests} requests; 401, 413"


class Token:
    """Puts a token into each prompt."""

    def __init__(self, headers):
        self.headers = headers

    async def before_prompt(self, _):
        return PromptExtras(headers=self.headers)


async def synadia(exchange):
    client = await nats.connect(exchange.nats)
    acks = 0

    async def prompted(agent, text):
        nonlocal acks
        answer = None
        async for chunk in agent.prompt(text):
            acks += getattr(chunk, "status", None) == "ack"
            answer = getattr(chunk, "text", answer)
        return json.loads(answer)

    async def refused(agent, text, code):
        try:
            await prompted(agent, text)
        except ProtocolError as error:
            return expect(f"service error {code}:" in str(error), True, f"{text!r}: {error}")
        raise Failed(f"{text!r} is accepted")

    try:
        agents = Agents(nc=client, interceptors=[Token(exchange.token("bianca"))])
        [found] = await agents.discover()
        expect((found.agent, found.owner, found.session_name), ("llmx", OWNER, SESSION), "who is found")
        status = await found.status()
        expect((status.instance_id, status.interval_s), (found.instance_id, 30), "status")
        call = lambda tool, arguments: prompted(found, json.dumps({"tool": tool, "arguments": arguments}))  # noqa: E731
        contractor, prompts = await followed(call, "by-prompt")
        expect(acks >= prompts, True, f"{acks} acknowledgements of {prompts} prompts")
        await refused(found, "hire somebody", 422)
        await refused(found, json.dumps({"tool": "buy"}), 404)
        [bare] = await Agents(nc=client).discover()
        await refused(bare, json.dumps({"tool": "inbox"}), 401)
        # This client sends none itself where the endpoint takes none.
        inbox, attached = client.new_inbox(), b'{"prompt": "{}", "attachments": [{}]}'
        answers = await client.subscribe(inbox)
        await client.publish(found.prompt_subject, attached, reply=inbox)
        told = [await answers.next_msg(timeout=ANSWER_S) for _ in range(3)]
        expect([one.headers and one.headers.get("Nats-Service-Error-Code") for one in told][1], "400", "attachments")
        expect((json.loads(told[0].data)["data"], told[2].data), ("ack", b""), "first and last message")
        await agents.close()
    finally:
        await client.close()
    return f"discovered, {contractor} awarded and done after {prompts} prompts, {acks} acknowledgements; 400, 401, 404, 422"


def is_socket(descriptor):
    # It may be closed meanwhile.
    with contextlib.suppress(FileNotFoundError):
        return os.readlink(descriptor).startswith("socket:")
    return False


class Usage:
    """What a process uses."""

    def __init__(self, service):
        folder = pathlib.Path(f"/proc/{service.process.pid}")
        self.bytes = int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        self.sockets = sum(1 for _ in filter(is_socket, (folder / "fd").iterdir()))
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        self.seconds = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


async def idle(exchange):
    client = await nats.connect(exchange.nats)
    bridge, gateway = exchange.bridge, exchange.site.gateways[0].service
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        tokens = list(pool.map(exchange.token, (f"idle-{number}" for number in range(IDLE))))
    places = asyncio.Semaphore(AT_ONCE)

    async def ask(token):
        async with places:
            answer = await client.request("llmx.inbox", b'{"wait_ms": 0}', timeout=START_S, headers=token)
        expect((answer.headers or {}).get("Nats-Service-Error-Code"), None, f"inbox: {answer.data[:300]!r}")

    try:
        before, began = [Usage(one) for one in (bridge, gateway)], time.monotonic()
        await asyncio.gather(*map(ask, tokens))
        opened_s = time.monotonic() - began
        await asyncio.sleep(SETTLE_S)
        at_rest = [Usage(one) for one in (bridge, gateway)]
        await asyncio.sleep(MEASURED_S)
        after = [Usage(one) for one in (bridge, gateway)]
    finally:
        await client.close()
    told = []
    for name, one, rest, last in zip(("bridge", "gateway"), before, at_rest, after):
        each, core = (rest.bytes - one.bytes) / IDLE, (last.seconds - rest.seconds) / MEASURED_S
        expect(each < EACH_BYTES_MAX and core < CORE_MAX, True, f"{each:.0f} bytes each and {core:.3f} of a core at the {name}")
        told.append(f"{each / 1024:.1f} KiB each, {last.sockets} sockets, {core:.3f} of a core at the {name}")
    return f"{IDLE} participants, opened in {opened_s:.1f} s, take {'; '.join(told)}"


CHECKS = {"nats-py": nats_py, "synadia-ai-agents": synadia, "idle participants": idle}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=pathlib.Path, required=True, help="a folder for what is kept meanwhile")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with contextlib.ExitStack() as stack:
        exchange = Exchange(stack, arguments.home.absolute())
        for name, check in CHECKS.items():
            carry_out(name, lambda check=check: asyncio.run(check(exchange)))


if __name__ == "__main__":
    main()
