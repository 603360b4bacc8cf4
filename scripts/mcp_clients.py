"""MCP clients of others, as they are published, for scripts/mcp_checks.py: who they are, what they have sent, and how one is opened.

How a client of an agent is opened is a way, `Stdio` or `Http`; all else is the same over each. Their packages are imported where a
client is opened: scripts/a2a_clients.py does with fewer."""

import asyncio
import collections
import contextlib
import functools
import http.client
import json
import os
import pathlib
import subprocess
import time
import traceback
import unicodedata
import urllib.parse
import urllib.request

from free_ports import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent
SETS = "call,answer,bargain,team,panel,documents"
START_S = 60  # for a process to be ready
CHECK_S = 280  # for a check to end
PATIENCE = 12  # questions of four seconds each, within which something must happen
PRICE = 85_000_000
# What a bargain is about.
ISSUES = [{"name": "price", "min": 0, "max": 100_000_000}, {"name": "day", "values": ["monday", "friday"]}]
# What the message of a tool is called in the log.
ACTS = {
    "call_for_offers": "cfp", "bargain": "cfp", "form_team": "cfp", "ask_panel": "cfp", "leave": "end", "report": "inform",
    **{act: act for act in "accept cancel offer confirm refuse withdraw join say assign pause conclude answer".split()},
}


class Failed(Exception):
    """What a check found."""


def require(holds, what):
    if not holds:
        raise Failed(what)


def expect(found, expected, what):
    if found != expected:
        raise Failed(f"{what}: {found!r}, expected {expected!r}")


def message(id, method, params):
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()


INITIALIZE = message(
    1, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bare", "version": "1"}}
)
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


class Site:
    """The exchange, and what its clients have sent to it."""

    def __init__(self, arguments):
        self.llmx, self.gateway, self.home = arguments.llmx.absolute(), arguments.gateway, arguments.home.absolute()
        self.data = arguments.data.absolute()
        self.key = self.data / "signing-key.pem"
        # Messages by agent, negotiation and act, each counted once however often its tool was called.
        self.sent = collections.Counter()
        self.agents, self.repeated = set(), 0

    @functools.cache
    def token(self, agent, *more):
        return self.run("token", agent, "--key", self.key, *more)

    def run(self, *arguments):
        """What a command of llmx prints."""
        process = subprocess.run([self.llmx, *map(str, arguments)], capture_output=True, text=True)
        if process.returncode != 0:
            raise Failed(f"llmx {arguments[0]}: {process.stderr[-1000:]}")
        return process.stdout.strip()

    def note(self, agent, tool, negotiation):
        self.sent[agent, negotiation, ACTS[tool]] += 1

    def archived(self):
        """Ids of the log's messages by agent, negotiation and act; how many records repeat one."""
        folder = self.home / f"archive-{time.monotonic_ns()}"
        self.run("archive", "--nats", (self.data / "nats-url").read_text().strip(), "--to", folder, "--once")
        self.run("audit", "verify", folder)
        found, records = collections.defaultdict(set), 0
        for segment in folder.glob("lane-*/*.jsonl"):
            for line in segment.read_text().splitlines():
                record = json.loads(line)["line"].get("record", {}).get("record", {})
                messages = [entry["message"] for entry in record.get("entries", []) if "message" in entry]
                # The messages of `ask_agent` are the gateway's.
                for one in (one for one in messages if one["from"] in self.agents and "~agora-" not in one["negotiation"]):
                    found[one["from"], one["negotiation"], one["act"]].add(one["body"]["envelope"]["msg_id"])
                    records += 1
        return found, records - sum(map(len, found.values()))


class User:
    """A client of one agent. It makes each call of a tool that sends a message twice, unless `pause_s` keeps it busy enough."""

    def __init__(self, site, agent, client, pause_s=0):
        self.site, self.agent, self.client, self.pause_s = site, agent, client, pause_s
        self.after, self.answers = "", []

    async def ask(self, tool, arguments):
        """Whether a tool refuses, and its answer, which hides nothing from its reader."""
        await asyncio.sleep(self.pause_s)
        result = await self.client.call_tool(tool, arguments)
        text, value = result.content[0].text, result.structured_content
        expect(json.loads(text), value, f"{tool} as text")
        self.answers.append(text)
        if hidden := [one for one in strings(value) if any(is_hidden(character) for character in one)]:
            raise Failed(f"{tool} answers with characters that are not shown: {hidden[0]!r}")
        return result.is_error, value

    async def call(self, tool, **arguments):
        is_error, value = await self.ask(tool, arguments)
        if is_error:
            raise Failed(f"{self.agent} {tool} {json.dumps(arguments)}: {json.dumps(value)}")
        if tool in ACTS:
            self.site.note(self.agent, tool, value["negotiation"])
        if tool in ACTS and not self.pause_s:
            self.site.repeated += 1
            is_error, again = await self.ask(tool, arguments)
            if is_error:
                raise Failed(f"{self.agent} {tool} again: {json.dumps(again)}")
            ids = [one["msg_id"] for one in again.get("view", {}).get("messages", [])]
            expect(len(ids), len(set(ids)), f"{self.agent} {tool} again: messages of the view")
        return value

    async def refused(self, tool, **arguments):
        """The refusal of a call that sends nothing, as code and pointer."""
        is_error, value = await self.ask(tool, arguments)
        if not is_error:
            raise Failed(f"{self.agent} {tool} {json.dumps(arguments)} is not refused: {json.dumps(value)}")
        return " at ".join(filter(None, (value["code"], value.get("pointer"))))

    async def follow(self, negotiation):
        """How a negotiation ended, and what is known of it."""
        after = ""
        for _ in range(PATIENCE):
            told = await self.call("follow", negotiation=negotiation, after=after)
            if "outcome" in told:
                return told
            after = told["cursor"]
        raise Failed(f"{self.agent}: {negotiation} has no end: {json.dumps(told)}")

    async def asked_for(self, tool, **more):
        """The next item of the inbox that asks for this tool."""
        for _ in range(PATIENCE):
            told = await self.call("inbox", after=self.after, limit=1, **more)
            self.after = told["cursor"]
            for item in told["items"]:
                if tool in item["todo"][0]["tools"]:
                    return item
        raise Failed(f"{self.agent} was never asked for {tool}")

    async def serve(self, until):
        """Offers and reports at once, until an event."""
        while not until.is_set():
            told = await self.call("inbox", after=self.after, wait_ms=500)
            self.after = told["cursor"]
            for item in told["items"]:
                tools = item["todo"][0]["tools"] if item["todo"] else []
                if "offer" in tools:
                    await self.call("offer", negotiation=item["negotiation"], terms={"price": PRICE, "delivery_ms": 2000})
                elif "report" in tools:
                    await self.call("report", negotiation=item["negotiation"], result="done")


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, member in value.items():
            yield name
            yield from strings(member)
    elif isinstance(value, list):
        for member in value:
            yield from strings(member)


def is_hidden(character):
    return character != "\n" and unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp")


class Stdio:
    """Each client starts `llmx mcp` and ends it."""

    name = "stdio"
    # A client has its own process, its own memory, and the limits it was started with.
    is_own_process = True

    def __init__(self, site):
        self.site, self.count = site, 0
        self.logs = site.home / "stderr-of-mcp"
        self.logs.mkdir(exist_ok=True)

    def started(self, agent, options=(), sets=SETS):
        site = self.site
        arguments = ["mcp", "--as", agent, "--gateway", site.gateway, "--key", str(site.key), "--tools", sets]
        return {"command": str(site.llmx), "args": [*arguments, *options], "env": {"LLMX_LOG": "info"}}

    @contextlib.asynccontextmanager
    async def client(self, agent, mode="auto", options=(), sets=SETS, pause_s=0):
        from mcp import Client, StdioServerParameters, stdio_client

        self.site.agents.add(agent)
        self.count += 1
        with (self.logs / f"{self.count}-{agent}").open("w") as log:
            transport = stdio_client(StdioServerParameters(**self.started(agent, options, sets)), errlog=log)
            async with Client(transport, mode=mode, cache=None) as client:
                yield User(self.site, agent, client, pause_s)

    def of_openai(self, agent):
        from agents.mcp import MCPServerStdio

        self.site.agents.add(agent)
        return MCPServerStdio(self.started(agent))

    @contextlib.contextmanager
    def bare(self, agent):
        """What asks a process for the answer to a message, without a library that takes time."""
        started = self.started(agent)
        process = subprocess.Popen(
            [started["command"], *started["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | started["env"]
        )

        def ask(line):
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        try:
            ask(INITIALIZE)
            process.stdin.write(INITIALIZED + b"\n")
            yield ask
        finally:
            process.stdin.close()
            process.wait()

    def log(self):
        return "".join(file.read_text() for file in sorted(self.logs.iterdir()))


class Http:
    """All clients share one `llmx bridge`, and each shows its token."""

    name = "http"
    is_own_process = False

    def __init__(self, site, stack):
        self.site, self.file = site, site.home / "stderr-of-bridge"
        address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{address}/mcp"
        command = [site.llmx, "bridge", "--listen", address, "--gateway", site.gateway, "--tools", SETS]
        log = stack.enter_context(self.file.open("w"))
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"LLMX_LOG": "info"})
        stack.callback(process.wait)
        stack.callback(process.terminate)
        wait_until_ready(f"http://{address}/readyz", process)

    def headers(self, agent):
        self.site.agents.add(agent)
        return {"Authorization": f"Bearer {self.site.token(agent)}"}

    @contextlib.asynccontextmanager
    async def client(self, agent, mode="auto", options=(), sets=SETS, pause_s=0):
        import httpx2
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        async with httpx2.AsyncClient(headers=self.headers(agent), timeout=60) as connection:
            async with Client(streamable_http_client(self.url, http_client=connection), mode=mode, cache=None) as client:
                yield User(self.site, agent, client, pause_s)

    def of_openai(self, agent):
        from agents.mcp import MCPServerStreamableHttp

        return MCPServerStreamableHttp({"url": self.url, "headers": self.headers(agent)})

    @contextlib.contextmanager
    def bare(self, agent):
        address = urllib.parse.urlsplit(self.url)
        kinds = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        headers = self.headers(agent) | kinds | {"MCP-Protocol-Version": "2025-11-25"}
        with contextlib.closing(http.client.HTTPConnection(address.hostname, address.port)) as connection:

            def ask(line):
                connection.request("POST", address.path, line, headers)
                return json.loads(connection.getresponse().read())

            yield ask

    def log(self):
        return self.file.read_text()


def wait_until_ready(url, process):
    deadline = time.monotonic() + START_S
    while True:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=5).close()
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise Failed(f"{url} does not answer")
        time.sleep(0.1)


@contextlib.asynccontextmanager
async def users(way, mode, names, options=()):
    """Clients of several agents."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(way.client(name, mode, options)) for name in names]


@contextlib.asynccontextmanager
async def beside(work):
    """Work beside this, to its end."""
    task = asyncio.ensure_future(work)
    try:
        yield
        await task
    finally:
        task.cancel()


@contextlib.asynccontextmanager
async def serving(user):
    """An agent that offers and reports at once meanwhile."""
    until = asyncio.Event()
    async with beside(user.serve(until)):
        try:
            yield
        finally:
            until.set()


class Rows:
    """A table of which each row is told, and all that fail together."""

    def __init__(self):
        self.told, self.faults = [], []

    @contextlib.contextmanager
    def row(self, what):
        answers = []
        try:
            yield answers.append
            self.told.append(f"{what}: {', '.join(map(str, answers))}")
        except Failed as fault:
            self.faults.append(f"{what}: {fault}")

    def found(self):
        if self.faults:
            raise Failed("; ".join(self.faults))
        return "; ".join(self.told)


def raw(way, agent, lines):
    """Answers of a process of its own to lines, and what it wrote to stderr."""
    started = way.started(agent)
    written = b"\n".join([INITIALIZE, INITIALIZED, *lines]) + b"\n"
    process = subprocess.run(
        [started["command"], *started["args"]], input=written, capture_output=True, timeout=60, env=os.environ | started["env"]
    )
    return [json.loads(line) for line in process.stdout.splitlines()], process.stderr.decode()


async def carry_out(name, check):
    """Awaits a check, and says what it found."""
    began, passed = time.monotonic(), False
    try:
        async with asyncio.timeout(CHECK_S):
            text = await check
            passed = True
    except TimeoutError:
        text = f"has not ended within {CHECK_S} s"
    except BaseExceptionGroup as group:
        leaves = group
        while isinstance(leaves, BaseExceptionGroup):
            leaves = leaves.exceptions[0]
        text = str(leaves) if isinstance(leaves, Failed) else "".join(traceback.format_exception(leaves))
    except Failed as fault:
        text = str(fault)
    except Exception:  # A check that breaks has failed, and the others go on.
        text = traceback.format_exc()
    line = {"check": name, "passed": passed, "text": text, "seconds": time.monotonic() - began}
    print(json.dumps(line), flush=True)
