"""Part `mcp` of scripts/check-bridges: MCP clients of others, as they are published, against an exchange that runs.

Runs in the virtual environment that has them, and prints a JSON line for each check when it has ended: name, whether it passed, what
it found, seconds. Checks that only wait run beside the others."""

import argparse
import asyncio
import collections
import contextlib
import functools
import http.client
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
import urllib.parse
import urllib.request

from mcp import Client, StdioServerParameters, stdio_client

from free_ports import free_port
from mcp_clients import (
    ISSUES, PATIENCE, PRICE, ROOT, Failed, Http, Site, Stdio, beside, carry_out, expect, message, require, serving, users,
    wait_until_ready,
)
from mcp_inputs import bad_inputs, canaries

PAGE = ROOT / "docs/mcp.md"
MARK = "<!-- run by scripts/check-bridges -->"
# The revision that each mode of the client speaks.
MODES = {"auto": "2026-07-28", "legacy": "2025-11-25"}
TOOLS = 27
SLOW_S = 20  # before each call of a tool, where a model thinks or a person is asked
OVERHEAD_MS_MAX, OVERHEAD_CALLS = 3, 200
GONE_S_MAX = 130  # until an agent that has gone silent is no longer waited for
FIRST_AWARD_S_MAX, FIRST_AWARD_COMMANDS_MAX = 300, 4

async def in_each_mode(scenario, way):
    """What a scenario of one mode finds in each."""
    async def timed(mode):
        began = time.monotonic()
        await scenario(way, mode, f"{scenario.__name__}-{mode}-{way.name}")
        return f"{mode} {time.monotonic() - began:.1f} s"

    return ", ".join([await timed(mode) for mode in MODES])


async def hire(way, mode, tag):
    """A call followed to its end; the contractor confirms and reports."""
    async with users(way, mode, [f"alice-{tag}", f"bob-{tag}"]) as (alice, bob):
        listed = await alice.client.list_tools()
        expect(len(listed.tools), TOOLS, "tools")
        expect(alice.client.protocol_version, MODES[mode], "revision")
        await bob.call("register", topics=[tag], description="carries parcels by bicycle")
        found = await alice.call("find_agents", topic=tag)
        expect([one["agent"] for one in found["agents"]], [bob.agent], "agents found")
        opened = await alice.call(
            "call_for_offers", id="parcel", task="carry a parcel across town", to=[f"topic://{tag}"], policy="high",
            price_max=90_000_000, wait_ms=0,
        )
        await work(bob, opened["negotiation"])
        told = await alice.follow(opened["negotiation"])
        expect(told["outcome"], "completed", "outcome")
        expect([one["text"] for one in told["results"]], ["left with the neighbour"], "results")


async def work(contractor, negotiation, before_offer_s=0):
    """Offers, confirms what it is asked about, and reports."""
    await contractor.asked_for("offer")
    await asyncio.sleep(before_offer_s)
    await contractor.call("offer", negotiation=negotiation, terms={"price": PRICE, "delivery_ms": 2000}, confirm="ask")
    award = await contractor.asked_for("confirm")
    await contractor.call("confirm", negotiation=negotiation, award_no=award["payload"]["award_no"])
    await contractor.asked_for("report")
    await contractor.call("report", negotiation=negotiation, result="left with the neighbour")


async def bargain(way, mode, tag):
    """An agreement, of which one side is under a mandate that binds it."""
    async with way.client(f"alice-{tag}", mode) as alice, way.client(f"bob-{tag}", mode, ["--require-mandate"]) as bob:
        await bob.call("register", topics=[tag])
        opened = await alice.call("bargain", id="rent", task="rent", **{"with": [bob.agent]}, issues=ISSUES, rounds=5, wait_ms=0)
        negotiation = opened["negotiation"]
        await bob.asked_for("join")
        if way.is_own_process:
            expect(await bob.refused("join", negotiation=negotiation), "not_allowed at /mandate", "join without a mandate")
        limits = [{"attr": "price", "op": "ge", "value": 40_000_000}, {"attr": "day", "op": "eq", "text": "friday"}]
        await bob.call("join", negotiation=negotiation, mandate={"limits": limits})
        await alice.asked_for("offer")
        await alice.call("offer", negotiation=negotiation, terms={"price": 30_000_000, "day": "friday"})
        low = (await bob.asked_for("accept"))["payload"]["standing"]
        bob.site.note(bob.agent, "accept", negotiation)
        refusal = await bob.refused("accept", negotiation=negotiation, **of_standing(low))
        expect(refusal.partition(" ")[0], "mandate_violation", "accepting below the mandate")
        await bob.call("offer", negotiation=negotiation, terms={"price": 50_000_000, "day": "friday"})
        standing = (await alice.asked_for("accept"))["payload"]["standing"]
        await alice.call("accept", negotiation=negotiation, **of_standing(standing))
        for user in (alice, bob):
            told = await user.follow(negotiation)
            expect(told["outcome"], "agreement", "outcome")
            expect(told["view"]["bargain"]["agreement"]["terms"]["price"], 50_000_000, "price agreed")


def of_standing(standing):
    return {name: standing[name] for name in ("offer_id", "terms_digest")}


async def team(way, mode, tag):
    """Three share out a task, speak, and conclude."""
    async with users(way, mode, [f"{name}-{tag}" for name in ("alice", "bob", "carol")]) as members:
        alice, bob, carol = members
        for member in members:
            await member.call("register", topics=[tag])
        opened = await alice.call(
            "form_team", id="trip", goal="a day in Lisbon", to=[bob.agent, carol.agent], members_min=3, wait_ms=0
        )
        negotiation = opened["negotiation"]
        for member in (bob, carol):
            await member.asked_for("join")
            await member.call("join", negotiation=negotiation)
        await alice.asked_for("assign")
        tasks = [{"title": "weather", "text": "how is the weather?", "owner": bob.agent}]
        await alice.call("assign", negotiation=negotiation, mode="sync", tasks=tasks)
        award = await bob.asked_for("confirm")
        task = award["negotiation"]
        await bob.call("confirm", negotiation=task, award_no=award["payload"]["award_no"])
        await bob.asked_for("report")
        await bob.call("report", negotiation=task, result="sun")
        for member in members:
            await member.asked_for("say")
            await member.call("say", negotiation=negotiation, text="the sea")
        await alice.asked_for("conclude")
        await alice.call("conclude", negotiation=negotiation, text="to the sea")
        for member in members:
            told = await member.follow(negotiation)
            expect(told["outcome"], "concluded", "outcome")
            expect(told["view"]["team"]["conclusion"]["text"], "to the sea", "conclusion")


async def panel(way, mode, tag):
    """Four answer a question to a finding."""
    async with users(way, mode, [f"{name}-{tag}" for name in ("alice", "s1", "s2", "s3", "s4")]) as (alice, *seats):
        for seat in seats:
            await seat.call("register", topics=[tag])
        opened = await alice.call(
            "ask_panel", id="q", question="which day?", to=[f"topic://{tag}"], options=["monday", "friday"], wait_ms=0
        )
        negotiation = opened["negotiation"]

        # One after another, so that none answers when enough have.
        for seat in itertools.islice(itertools.cycle(seats), PATIENCE * len(seats)):
            for item in (await seat.call("inbox", after=seat.after, wait_ms=200))["items"]:
                await seat.call("answer", negotiation=negotiation, round=item["payload"]["round"], answer="friday")
            if "outcome" in await alice.call("follow", negotiation=negotiation, wait_ms=0):
                break
        told = await alice.follow(negotiation)
        expect(told["outcome"], "consensus", "outcome")
        findings = [item["payload"]["answer"] for item in told["news"] if item["payload"].get("kind") == "finding"]
        expect(findings, ["friday"], "findings")


async def ask_agent(way, mode, tag):
    """A request under a protocol document, to an agent that has a routine for it."""
    async with way.client(f"alice-{tag}", mode, sets="call,documents") as alice:
        if way.is_own_process:
            expect(len((await alice.client.list_tools()).tools), 10, "tools of two sets")
        agent = f"{way.name}-contractor-0"
        listed = await alice.call("find_documents", agent=agent)
        hashes = [one["hash"] for one in listed["documents"]]
        expect(len(hashes), 1, "documents it supports")
        shown = await alice.call("get_document", hash=hashes[0].replace("+", "-").replace("/", "_"))
        require("parcel" in shown["document"], "a document about parcels")
        answer = await alice.call("ask_agent", agent=agent, request="1500", document=hashes[0])
        expect((answer["status"], answer["body"]), ("success", "600"), "answer")


async def documents(way):
    """`ask_agent` in each mode, beside an agent that answers."""
    with contextlib.ExitStack() as stack:
        address = f"127.0.0.1:{free_port()}"
        log = stack.enter_context((way.site.home / f"contractors-{way.name}.log").open("w"))
        command = [
            way.site.llmx, "contractors", "--count", "1", "--prefix", f"{way.name}-", "--topic", f"priced-{way.name}", "--routines",
            ROOT / "examples/routines.toml", "--gateway", way.site.gateway, "--key", way.site.key, "--listen", address,
        ]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        await asyncio.to_thread(wait_until_ready, f"http://{address}/readyz", process)
        return await in_each_mode(ask_agent, way)


async def openai_agents(way):
    """The caller is the SDK's server object with its own times; the contractor thinks longer than these."""
    tag, thinks_s = f"openai-{way.name}", 7
    async with way.client(f"bob-{tag}") as bob, way.of_openai(f"alice-{tag}") as server:
        expect(len(await server.list_tools()), TOOLS, "tools")
        await bob.call("register", topics=[tag])

        async def call(tool, **arguments):
            result = await server.call_tool(tool, arguments)
            if result.is_error:
                raise Failed(f"{tool}: {result.content[0].text}")
            return result.structured_content

        began = time.monotonic()
        opened = await call("call_for_offers", id="parcel", task="carry", to=[f"topic://{tag}"], wait_ms=0)
        negotiation, after, count = opened["negotiation"], "", 0
        way.site.note(f"alice-{tag}", "call_for_offers", negotiation)
        async with beside(work(bob, negotiation, thinks_s)):
            while "outcome" not in (told := await call("follow", negotiation=negotiation, after=after)):
                after, count = told["cursor"], count + 1
                require(count < 100, "an end within 100 questions")
        expect(told["outcome"], "completed", "outcome")
        return f"its own 5 s, an offer after {thinks_s} s: completed after {time.monotonic() - began:.1f} s, follow asked {count + 1} times"


async def slow(way):
    """A client that takes long before each call of a tool."""
    call, bargained = await asyncio.gather(slow_call(way), slow_bargain(way))
    return f"{SLOW_S} s before each call of a tool: under patient completed after {call:.0f} s, a bargain agreed after {bargained:.0f} s"


async def slow_call(way):
    tag = f"slow-{way.name}"
    async with way.client(f"alice-{tag}", pause_s=SLOW_S) as alice, way.client(f"bob-{tag}", pause_s=SLOW_S) as bob:
        began = time.monotonic()
        await bob.call("register", topics=[tag])
        opened = asyncio.ensure_future(alice.call("call_for_offers", id="p", task="carry", to=[f"topic://{tag}"], policy="patient"))
        await bob.asked_for("offer")
        negotiation = (await opened)["negotiation"]
        await bob.call("offer", negotiation=negotiation, terms={"price": PRICE, "delivery_ms": 2000})
        await bob.asked_for("report")
        await bob.call("report", negotiation=negotiation, result="there")
        expect((await alice.follow(negotiation))["outcome"], "completed", "outcome")
        return time.monotonic() - began


async def slow_bargain(way):
    tag = f"slow-bargain-{way.name}"
    async with way.client(f"alice-{tag}", pause_s=SLOW_S) as alice, way.client(f"bob-{tag}", pause_s=SLOW_S) as bob:
        began = time.monotonic()
        await bob.call("register", topics=[tag])
        opening = {"id": "b", "task": "rent", "with": [bob.agent], "issues": ISSUES}
        opened = asyncio.ensure_future(alice.call("bargain", **opening))
        await bob.asked_for("join")
        negotiation = (await opened)["negotiation"]
        await bob.call("join", negotiation=negotiation)
        await alice.asked_for("offer")
        await alice.call("offer", negotiation=negotiation, terms={"price": 30_000_000, "day": "friday"})
        standing = (await bob.asked_for("accept"))["payload"]["standing"]
        await bob.call("accept", negotiation=negotiation, **of_standing(standing))
        expect((await alice.follow(negotiation))["outcome"], "agreement", "outcome")
        return time.monotonic() - began


async def silent(way):
    """An agent that registered and asks its inbox no more is waited for, and then no longer."""
    tag = f"silent-{way.name}"
    async with users(way, "auto", [f"{name}-{tag}" for name in ("alice", "bob", "carol")]) as (alice, bob, carol):
        for contractor in (bob, carol):
            await contractor.call("register", topics=[tag])

        async def timed(name):
            began = time.monotonic()
            opened = await alice.call(
                "call_for_offers", id=name, task="carry", to=[f"topic://{tag}"], policy="high", reply_within_ms=5000, wait_ms=0
            )
            expect((await alice.follow(opened["negotiation"]))["outcome"], "completed", "outcome")
            return time.monotonic() - began

        async with serving(bob):
            async with serving(carol):
                before = await timed("before")
            last = time.monotonic()
            during = await timed("during")
            while carol.agent in [one["agent"] for one in (await alice.call("find_agents", topic=tag, present=True))["agents"]]:
                if time.monotonic() - last > GONE_S_MAX:
                    raise Failed(f"{carol.agent} is still present after {GONE_S_MAX} s")
                await asyncio.sleep(0.5)
            gone, after = time.monotonic() - last, await timed("after")
        expect((await carol.call("inbox", wait_ms=0))["registered"], False, "registered, as the inbox says")
        times = f"a call to its topic took {before:.2f} s before, {during:.2f} s while it was silent, {after:.2f} s after"
        return f"gone after {gone:.0f} s, and its inbox says so; {times}"


async def overhead(way):
    """What a call of a tool takes longer than the same act by POST, each without a library of its client."""
    tag = f"overhead-{way.name}"
    async with way.client(f"idle-{tag}") as idle, way.client(f"alice-{tag}") as alice:
        await idle.call("register", topics=[tag])
        with way.bare(alice.agent) as ask, posting(way.site, alice.agent) as post:
            return await compared(alice, idle.agent, ask, post)


@contextlib.contextmanager
def posting(site, agent):
    """What sends a message of an agent to the gateway."""
    # These messages are no tool's: they are not counted.
    site.agents.discard(agent)
    address = urllib.parse.urlsplit(site.gateway)
    headers = {"Authorization": f"Bearer {site.token(agent)}", "Content-Type": "application/json"}
    with contextlib.closing(http.client.HTTPConnection(address.hostname, address.port)) as connection:

        def post(id, payload, **more):
            envelope = {"msg_id": id, "ts": "1970-01-01T00:00:00Z", "from": f"agent://{agent}", "receipt": True, **more}
            connection.request("POST", "/v1/messages", json.dumps({"envelope": envelope, "payload": payload}), headers)
            answer = connection.getresponse()
            body = answer.read()
            expect(answer.status, 202, f"{payload['act']}: {body[:200]}")

        yield post


async def compared(alice, idle, ask, post):
    """Medians of one act by a bare client of tools, by PyPI's, and by POST, each on a negotiation of its own."""
    def opened(id):
        post(id, {"act": "cfp", "task": "idle", "policy": "patient"}, negotiation=id, to=[f"agent://{idle}"], scope={"consent": "opt-in"})
        return f"{alice.agent}~{id}"

    times = collections.defaultdict(list)
    for count in range(OVERHEAD_CALLS):
        by_tool, by_client, by_post = (opened(f"{way}-{count}") for way in "tcp")
        line = message(count, "tools/call", {"name": "cancel", "arguments": {"negotiation": by_tool}})
        began = time.perf_counter()
        answer = ask(line)
        times["tool"].append(time.perf_counter() - began)
        require(answer.get("result", {"isError": True}).get("isError") is not True, f"cancel: {answer}")
        began = time.perf_counter()
        is_error, value = await alice.ask("cancel", {"negotiation": by_client})
        times["client"].append(time.perf_counter() - began)
        require(not is_error, f"cancel: {value}")
        began = time.perf_counter()
        post(f"x-{count}", {"act": "cancel"}, negotiation=by_post)
        times["post"].append(time.perf_counter() - began)
    tool, client, posted = (1000 * statistics.median(times[one]) for one in ("tool", "client", "post"))
    is_release = alice.site.llmx.resolve().parent.name == "release"
    if is_release and tool - posted > OVERHEAD_MS_MAX:
        raise Failed(f"a call of a tool takes {tool - posted:.2f} ms longer than a POST: {OVERHEAD_MS_MAX} ms at most")
    build = "" if is_release else f"; not held to {OVERHEAD_MS_MAX} ms: the program is in no folder `release`"
    figures = f"{posted:.2f} ms by POST, {tool:.2f} ms by tool: {tool - posted:.2f} ms added; {client:.2f} ms in PyPI mcp"
    return f"median of {OVERHEAD_CALLS} cancels: {figures}{build}"


async def five_minutes(way):
    """The page's own lines, from the program and an empty folder to an award."""
    page = re.findall(rf"^{re.escape(MARK)}\n```(\w+)\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    commands, calls = ([text for kind, text in page if kind == one] for one in ("sh", "json"))
    expect((len(commands), len(calls)), (1, 1), f"blocks of {PAGE.name} behind {MARK}: of sh, of json")
    lines = [line for line in commands[0].splitlines() if line.strip() and not line.startswith("#")]
    require(len(lines) <= FIRST_AWARD_COMMANDS_MAX, f"at most {FIRST_AWARD_COMMANDS_MAX} commands, of {len(lines)}")
    home = way.site.home / "newcomer"
    for folder in ("bin", "work"):
        (home / folder).mkdir(parents=True)
    (home / "bin/llmx").symlink_to(way.site.llmx)
    # The host's own command: it notes what it is to start.
    (home / "bin/claude").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{shlex.quote(str(home / "claude"))}\n')
    (home / "bin/claude").chmod(0o755)
    address = f"127.0.0.1:{free_port()}"
    environment = {
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}", "HOME": str(home), "LLMX_LISTEN": address, "LLMX_GATEWAY": f"http://{address}",
        "NATS_SERVER": nats_server(),
    }
    began = time.monotonic()
    script = commands[0].replace("127.0.0.1:8080", address) + "\ntouch ../ready\nwait\n"
    with (home / "log").open("w") as log:
        shell = subprocess.Popen(
            ["bash", "-e", "-c", script], cwd=home / "work", env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            while not (home / "ready").exists():
                if shell.poll() is not None or time.monotonic() - began > FIRST_AWARD_S_MAX:
                    raise Failed(f"the page's commands fail: {(home / 'log').read_text()[-2000:]}")
                await asyncio.sleep(0.05)
            return await first_award(home, environment, json.loads(calls[0]), (began, len(lines)))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGTERM)
            await asyncio.to_thread(shell.wait)


async def first_award(home, environment, call, since):
    began, count = since
    added = (home / "claude").read_text().splitlines()
    command, *arguments = added[added.index("--") + 1:]
    program = shutil.which(command, path=environment["PATH"])
    server = StdioServerParameters(command=program, args=arguments, env=environment, cwd=home / "work")
    async with Client(stdio_client(server, errlog=(home / "stderr").open("w")), cache=None) as client:
        result = await client.call_tool(call["name"], call["arguments"])
        while not result.is_error and not any(item["payload"].get("kind") == "awarded" for item in result.structured_content["news"]):
            require(time.monotonic() - began < FIRST_AWARD_S_MAX, "an award in time")
            told = result.structured_content
            result = await client.call_tool("follow", {"negotiation": told["negotiation"], "after": told["cursor"]})
        expect(result.is_error, False, f"{call['name']}: {result.structured_content}")
    return f"{count} commands and {time.monotonic() - began:.1f} s to the first award"


def nats_server():
    """The nats-server that the newcomer has."""
    fetched = ROOT / ".tools/nats-server"
    found = os.environ.get("NATS_SERVER") or (str(fetched) if fetched.exists() else shutil.which("nats-server"))
    if not found:
        raise Failed("no nats-server: scripts/nats-server fetches it")
    return found


async def counted(way):
    """Of all that was sent twice, and of all that was refused, the log has what it should."""
    found, repeats = await asyncio.to_thread(way.site.archived)
    for key, count in way.site.sent.items():
        expect(len(found.get(key, ())), count, f"messages of {' '.join(key)} in the log")
    more = {key for key in found if key not in way.site.sent}
    # Awards of the terms that were offered are confirmed without a tool.
    expect({key for key in more if key[2] != "confirm"}, set(), "messages in the log that no tool sent")
    once = f"{sum(way.site.sent.values())} messages, each counted once, and {len(more)} confirmations of what was offered"
    return f"{way.site.repeated} acts were made twice: the log has {once}; {repeats} records repeat one; it verifies"


CHECKS = {
    "added time": overhead,
    "call": functools.partial(in_each_mode, hire),
    "bargain": functools.partial(in_each_mode, bargain),
    "team": functools.partial(in_each_mode, team),
    "panel": functools.partial(in_each_mode, panel),
    "ask_agent": documents,
    "openai-agents": openai_agents,
    "bad inputs": bad_inputs,
    "canaries": canaries,
    "five minutes": five_minutes,
    "slow client": slow,
    "silent agent": silent,
    "each act once": counted,
}
# They wait, beside the others.
WAITING = ["slow client", "silent agent"]
# Alone: before the others begin, after they have ended.
FIRST, LAST = "added time", "each act once"
# It starts a host's own program.
STDIO_ONLY = ["five minutes"]


async def play(way, names, waits):
    async def one_by_one():
        for name in names:
            if name not in (*WAITING, FIRST, LAST):
                await carry_out(name, CHECKS[name](way))

    for name in filter(names.__contains__, [FIRST]):
        await carry_out(name, CHECKS[name](way))
    if waits:
        await asyncio.to_thread(sys.stdin.readline)
    await asyncio.gather(one_by_one(), *(carry_out(name, CHECKS[name](way)) for name in WAITING if name in names))
    for name in filter(names.__contains__, [LAST]):
        await carry_out(name, CHECKS[name](way))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llmx", type=pathlib.Path, required=True)
    parser.add_argument("--gateway", required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder of `llmx serve`")
    parser.add_argument("--home", type=pathlib.Path, required=True, help="a folder for what is kept meanwhile")
    parser.add_argument("--way", choices=["stdio", "http"], default="stdio")
    parser.add_argument("--wait", action="store_true", help="for a line of input, behind the check that runs alone")
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    arguments = parser.parse_args()
    site = Site(arguments)
    with contextlib.ExitStack() as stack:
        way = Stdio(site) if arguments.way == "stdio" else Http(site, stack)
        names = arguments.checks or [name for name in CHECKS if arguments.way == "stdio" or name not in STDIO_ONLY]
        asyncio.run(play(way, names, arguments.wait))


if __name__ == "__main__":
    main()
