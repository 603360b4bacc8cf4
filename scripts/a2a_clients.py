"""Part `a2a` of scripts/check-bridges: the client of PyPI a2a-sdk, as it is published, against two bridges of an exchange that runs.

Runs in the virtual environment that has it, and prints a JSON line for each check when it has ended, as scripts/mcp_checks.py does.
Who calls is a client with its own settings and a token; who is called is PyPI mcp at a third bridge."""

import argparse
import asyncio
import collections
import contextlib
import copy
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import uuid

import httpx
from a2a.client import ClientConfig, create_client
from a2a.client.card_resolver import parse_agent_card
from a2a.client.errors import A2AClientError
from a2a.helpers.proto_helpers import new_data_message, new_text_message
from a2a.types import (
    CancelTaskRequest, GetTaskRequest, ListTasksRequest, Part, Role, SendMessageRequest, SubscribeToTaskRequest, Task,
    TaskPushNotificationConfig, TaskState,
)
from a2a.utils import errors
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from google.protobuf.json_format import MessageToDict
from jwt import PyJWKSet

from free_ports import free_port
from mcp_clients import ISSUES, PRICE, ROOT, Http, Site, carry_out, expect, require, wait_until_ready

RUNS, REPEATS = int(os.environ.get("KILLS", "20")), 100  # of a bridge that is killed; of a message
COLLECT_S = 20  # longer than the client's patience
KEYS_S, TOKENS = 31, 100  # within which a bridge asks for an identity again; that are shown
WAITS_S = 0.3  # that a tool is seen to wait
# In no line of a bridge.
CANARIES = {"task": "canary-4b1f-task", "result": "canary-77d0-result", "reason": "canary-9ae2-reason"}
TERMS, RESULT = {"price": PRICE, "delivery_ms": 2000}, "left with the neighbour"
AT_ONCE = {"streaming": False, "polling": True}  # settings of a client that does not wait
BARGAIN = {"act": "cfp", "task": "rent", "bargain": {"issues": ISSUES, "rounds": 5}, "reply_within_ms": 20_000}


class Bridge:
    """A process of `llmx bridge`, which may be killed and started again at its address."""

    def __init__(self, site, name, stack, *options):
        address = f"127.0.0.1:{free_port()}"
        self.url, self.file = f"http://{address}", site.home / f"stderr-of-{name}"
        self.command = [site.llmx, "bridge", "--listen", address, "--public-url", self.url, "--gateway", site.gateway, *options]
        stack.callback(self.kill)
        self.start()

    def start(self):
        with self.file.open("a") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=os.environ | {"LLMX_LOG": "debug"})
        wait_until_ready(f"{self.url}/readyz", self.process)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Bridges(Site):
    """The exchange with its bridges."""

    def __init__(self, arguments, stack):
        super().__init__(arguments)
        self.stack = stack
        self.run("keys", "--purpose", "records", "--out", self.home)
        self.one, self.other = (Bridge(self, name, stack, "--card-key", self.home / "record-key.pem") for name in ("one", "other"))
        self.tools = Http(self, stack)
        policy = json.loads((ROOT / "policy/core/presets/high.json").read_text()) | {"id": "chosen@1", "decider": "initiator"}
        (self.home / "chosen.json").write_text(json.dumps(policy))
        self.run("policy", "put", self.home / "chosen.json", "--gateway", self.gateway, "--key", self.key)

    def headers(self, agent):
        return {"Authorization": f"Bearer {self.token(agent)}"}

    @contextlib.asynccontextmanager
    async def user(self, agent):
        """Who is called: a registered client of the tools."""
        async with self.tools.client(agent) as user:
            await user.call("register", topics=[f"topic-of-{agent}"])
            yield user

    def tools_at(self, bridge):
        """The tools as one bridge has them."""
        tools = copy.copy(self.tools)
        tools.url = f"{bridge.url}/mcp"
        return tools

    def kill_gateway(self):
        """Kills the process of gateway and engine, with its nats-server, and starts it again on the same folder."""
        os.kill(int((self.data / "lock").read_text()), signal.SIGKILL)
        command = [self.llmx, "serve", "--data", self.data, "--listen", self.gateway.removeprefix("http://")]
        with (self.home / "stderr-of-serve").open("a") as log:
            process = subprocess.Popen([*command, "--config", self.data.parent / "serve.toml"], stdout=log, stderr=log)
        self.stack.callback(process.wait)
        self.stack.callback(process.terminate)
        wait_until_ready(f"{self.gateway}/readyz", process)

    @contextlib.asynccontextmanager
    async def caller(self, agent, bridge=None, headers=None, **settings):
        """The client with its own settings, and a token."""
        async with httpx.AsyncClient(headers=self.headers(agent) if headers is None else headers) as connection:
            client = await create_client((bridge or self.one).url, ClientConfig(httpx_client=connection, **settings))
            yield Caller(client, connection)


class Caller:
    def __init__(self, client, connection):
        self.client, self.connection = client, connection

    def say(self, payload, task=None, to=(), id=None, **more):
        """Sends an act with its recipients, or a text; what follows from it."""
        say = new_text_message if isinstance(payload, str) else new_data_message
        content = payload if isinstance(payload, str) else {"payload": payload} | ({"to": list(to)} if to else {})
        said = say(content, task_id=task, role=Role.ROLE_USER, **more)
        said.message_id = id or f"m-{uuid.uuid4()}"
        return Following(self.client.send_message(SendMessageRequest(message=said)))

    def call(self, bob, policy="high", task="carry", **more):
        payload = {"act": "cfp", "task": task, "policy": policy, "reply_within_ms": 8000}
        return self.say(payload, to=[f"agent://{bob.agent}"], **more)

    async def get(self, id):
        return MessageToDict(await self.client.get_task(GetTaskRequest(id=id)))

    def cancel(self, id):
        return self.client.cancel_task(CancelTaskRequest(id=id))

    def subscribe(self, id):
        return Following(self.client.subscribe(SubscribeToTaskRequest(id=id)))


class Following:
    """A task as its events tell it."""

    def __init__(self, events):
        self.events, self.task, self.states = events, Task(), []

    async def until(self, is_there=lambda task: False):
        """The task when it is as it should be, else at the end of the stream."""
        async for event in self.events:
            if event.HasField("task"):
                self.task.CopyFrom(event.task)
            elif event.HasField("artifact_update"):
                self.task.artifacts.append(event.artifact_update.artifact)
            else:
                self.task.status.CopyFrom(event.status_update.status)
            task = MessageToDict(self.task)
            if state_of(task) not in self.states[-1:]:
                self.states.append(state_of(task))
            if is_there(task):
                return task
        return MessageToDict(self.task)

    async def begun(self):
        return await self.until(lambda task: True)


def state_of(task):
    return task["status"]["state"].removeprefix("TASK_STATE_")


def wants_input(task):
    return state_of(task) == "INPUT_REQUIRED"


def told(task, name):
    """What the task's status tells under a name."""
    return task["status"]["message"]["parts"][0]["data"].get(name, {})


def artifact(task, id):
    """The content of an artifact: its last version."""
    parts = [one["parts"][0] for one in task.get("artifacts", []) if one["artifactId"] == id]
    return next((part.get("text", part.get("data")) for part in reversed(parts)), None)


def expect_end(task, state="COMPLETED", **artifacts):
    expect(state_of(task), state, f"state: {json.dumps(task)[:2000]}")
    for name, value in artifacts.items():
        found = artifact(task, name.replace("_", "-"))
        expect(found, value if isinstance(value, str) else (found or {}) | value, name)


async def offer(user):
    await user.call("offer", negotiation=(await user.asked_for("offer"))["negotiation"], terms=TERMS)


async def report(user, result=RESULT):
    await user.call("report", negotiation=(await user.asked_for("report"))["negotiation"], result=result)


async def worked(user, result=RESULT):
    """Makes each act once the one before was made twice: behind another act, the same one is a new one."""
    await offer(user)
    await report(user, result)


async def refused(asking, error, what=""):
    """Expects an error of the client's own."""
    [found] = await asyncio.gather(asking, return_exceptions=True)
    require(isinstance(found, error), f"{what} {error.__name__} is expected: {found!r}")


async def call(site):
    async with site.caller("alice-s") as alice, site.user("bob-s") as bob:
        following = alice.call(bob)
        task, _ = await asyncio.gather(following.until(), worked(bob))
        award = artifact(task, "award-0-1")
        expect(award["terms"], TERMS, "terms")
        expect_end(task, result_0_1=RESULT)
        for bridge in (site.one, site.other):
            async with site.caller("alice-s", bridge) as again:
                expect_end(await again.get(task["id"]), award_0_1=award, result_0_1=RESULT)
        return f"one stream: {' '.join(following.states)}, award and result; both bridges tell them after the end"


async def input_required(site):
    async with site.caller("alice-i") as alice, site.user("bob-i") as bob:
        following = alice.call(bob, "chosen")
        task, _ = await asyncio.gather(following.until(wants_input), offer(bob))
        choice = {"act": "accept", "offer_id": told(task, "offers")["offers"][0]["offer_id"]}
        first, second, _ = await asyncio.gather(following.until(), alice.say(choice, task["id"]).until(), report(bob))
        expect_end(first)
        expect_end(second)
        return f"the stream of the call stays open: {' '.join(following.states)}; that of the choice ends with it"


async def bargain(site):
    async with site.caller("alice-b") as alice, site.user("bob-b") as bob:
        following = alice.say(BARGAIN, to=[f"agent://{bob.agent}"])
        id = (await following.begun())["id"]
        await bob.asked_for("join")
        await bob.call("join", negotiation=id)
        turn, terms = told(await following.until(wants_input), "turn"), {"price": 30_000_000, "day": "friday"}
        await alice.say({"act": "offer", "terms": terms, "round": turn["round"]}, id).begun()
        await bob.asked_for("accept")
        await bob.call("offer", negotiation=id, terms=terms | {"price": 50_000_000})
        turn = told(await following.until(lambda task: "standing" in told(task, "turn")), "turn")
        choice = {name: turn["standing"][name] for name in ("offer_id", "terms_digest")}
        await alice.say({"act": "accept"} | choice, id).begun()
        expect_end(await following.until(), agreement={"terms": terms | {"price": 50_000_000}})
        return "offer, counter-offer, acceptance: artifact `agreement`"


async def team(site):
    async with site.caller("alice-t") as alice, site.user("alice-t"), site.user("bob-t") as bob, site.user("carol-t") as carol:
        payload = {"act": "cfp", "task": "a day in Lisbon", "team": {"members": {"min": 3}}, "reply_within_ms": 20_000}
        following = alice.say(payload, to=[f"agent://{one.agent}" for one in (bob, carol)])
        id = (await following.begun())["id"]
        for member in (bob, carol):
            await member.asked_for("join")
            await member.call("join", negotiation=id)
        expect(told(await following.until(wants_input), "floor")["speaker"], "alice-t", "speaker")
        await alice.say("the sea?", id).begun()
        for member in (bob, carol):
            await member.asked_for("say")
            await member.call("say", negotiation=id, text="the sea")
        task = await following.until(lambda task: wants_input(task) and told(task, "floor")["turn"] > 1)
        await alice.say({"act": "conclude", "text": "to the sea", "turn": told(task, "floor")["turn"]}, id).begun()
        expect_end(await following.until(), conclusion={"text": "to the sea"})
        return "its lead speaks by a text part and concludes: artifact `conclusion`"


async def panel(site):
    async with site.caller("alice-p") as alice, site.user("s1") as one, site.user("s2") as two, site.user("s3") as three:
        seats = [one, two, three]
        rules = {"answer": {"kind": "choice", "options": ["sea", "hills"]}, "answer_ms": 20_000}
        following = alice.say({"act": "cfp", "task": "where?", "panel": rules}, to=[f"agent://{seat.agent}" for seat in seats])

        async def answer(seat):
            item = await seat.asked_for("answer")
            await seat.call("answer", negotiation=item["negotiation"], round=item["payload"]["round"], answer="sea")

        task, *_ = await asyncio.gather(following.until(), *map(answer, seats))
        expect_end(task, finding={"answer": "sea"})
        return f"{len(seats)} seats agree: artifact `finding`"


async def cancel(site):
    async with site.caller("alice-c") as alice, site.user("bob-c") as bob:
        for following in (alice.call(bob), alice.say(BARGAIN, to=[f"agent://{bob.agent}"])):
            id = (await following.begun())["id"]
            if "join" in (await bob.asked_for("refuse"))["todo"][0]["tools"]:
                await bob.call("join", negotiation=id)
                await following.until(wants_input)
            expect_end(MessageToDict(await alice.cancel(id)), "CANCELED")
            expect_end(await following.until(), "CANCELED")
            await refused(alice.cancel(id), errors.TaskNotCancelableError)
            await refused(alice.subscribe(id).begun(), errors.UnsupportedOperationError)
            await refused(alice.say({"act": "cancel"}, id).begun(), errors.UnsupportedOperationError)
        return "a call, and a bargain in its turn: CANCELED, in their streams too; not twice"


async def pages(site):
    async with site.caller("alice-l", **AT_ONCE) as alice, site.caller("mallory") as mallory, site.user("bob-l") as bob:
        ids = [(await alice.call(bob, context_id="errands").begun())["id"] for _ in range(5)]
        for id in ids:
            await alice.cancel(id)

        def ask(caller, **more):
            return caller.client.list_tasks(ListTasksRequest(context_id="errands", page_size=2, **more))

        listed = [await ask(alice)]
        while listed[-1].next_page_token:
            listed.append(await ask(alice, page_token=listed[-1].next_page_token))
        expect([task.id for page in listed for task in page.tasks], ids[::-1], "the newest first")
        expect({page.total_size for page in listed}, {5}, "in all")
        expect(len((await ask(alice, status=TaskState.TASK_STATE_WORKING)).tasks), 0, "tasks that go on")
        token = listed[0].next_page_token
        await refused(ask(alice, page_token=f"{token}0"), errors.InvalidParamsError)
        await refused(ask(mallory, page_token=token), errors.InvalidParamsError)
        expect(len((await ask(mallory)).tasks), 0, "tasks of another agent")
        return f"pages of {[len(page.tasks) for page in listed]}, the newest first; a token altered or of another agent is refused"


async def repeats(site):
    two = site.caller("alice-r", **AT_ONCE), site.caller("alice-r", site.other, **AT_ONCE)
    async with two[0] as one, two[1] as other, site.user("bob-r") as bob:
        tasks = await asyncio.gather(*(caller.call(bob, id="call-1").until() for caller in (one, other) * (REPEATS // 2)))
        id = tasks[0]["id"]
        expect({task["id"] for task in tasks}, {id}, "tasks")
        expect([item["negotiation"] for item in (await bob.call("inbox", limit=50))["items"]], [id], "calls heard")
        site.agents = {"alice-r"}
        found, records = await asyncio.to_thread(site.archived)
        expect([(key, len(ids)) for key, ids in found.items()], [(("alice-r", id, "cfp"), 1)], "messages in the log")
        return f"{REPEATS} sendings at two bridges: one task, one call heard, one message in the log, which {records} records repeat"


async def signed_card(site):
    keys = PyJWKSet.from_dict(json.loads((site.home / "record-jwks.json").read_text()))
    verify = create_signature_verifier(lambda kid, jku: keys[kid], ["EdDSA"])
    async with httpx.AsyncClient() as connection:
        await create_client(site.one.url, ClientConfig(httpx_client=connection), signature_verifier=verify)
        text = (await connection.get(f"{site.one.url}/.well-known/agent-card.json")).text
    # The first character of each text that is no name of a member.
    places = [found.start(1) for found in re.finditer(r'"((?:[^"\\]|\\.)*)"(:?)', text) if found[1] and not found[2]]
    for place in places:
        changed = text[:place] + ("x" if text[place] != "x" else "y") + text[place + 1:]
        await refused(asyncio.to_thread(lambda: verify(parse_agent_card(json.loads(changed)))), InvalidSignaturesError)
    return f"verifies with the key set alone; with one character changed in any of its {len(places)} texts it does not"


async def inputs(site):
    """Numbers as this client writes them, and what it can get wrong."""
    written, invalid = [], errors.InvalidParamsError
    async with site.caller("alice-n") as alice, site.caller("mallory") as mallory, site.user("bob-n") as bob:

        async def note(request):
            written.append(request.content.replace(b" ", b""))

        alice.connection.event_hooks["request"] = [note]
        to, cfp = [f"agent://{bob.agent}"], {"act": "cfp", "task": "carry"}
        id = (await alice.say(BARGAIN, to=to).begun())["id"]
        highest = (await bob.asked_for("join"))["payload"]["bargain"]["rules"]["issues"][0]["max"]
        expect((highest, type(highest)), (100_000_000, int), "a number of the call, as its contractor hears it")
        require(b'"max":100000000.0' in written[-1], f"a number with a fraction: {written[-1]}")
        await alice.cancel(id)
        data = new_data_message({"payload": cfp, "to": to}).parts[0]

        def sent(*parts, caller=alice, **more):
            more |= {"message_id": "m", "role": Role.ROLE_USER, "parts": parts or [data]}
            return Following(caller.client.send_message(SendMessageRequest(message=more))).begun()

        push = TaskPushNotificationConfig(task_id=id, url="http://x.example")
        table = [
            ("a fraction", invalid, alice.say(cfp | {"reply_within_ms": 85000000.5}, to=to).begun()),
            ("two data parts", invalid, sent(data, data)),
            ("a url", errors.ContentTypeNotSupportedError, sent(data, Part(url="http://x.example"))),
            ("bytes", errors.ContentTypeNotSupportedError, sent(Part(raw=b"x"))),
            ("a text to nobody", invalid, alice.say("carry").begun()),
            ("a list", invalid, sent(*new_data_message([1]).parts)),
            ("a long context", invalid, sent(context_id="c" * 41)),
            ("a context with /", invalid, sent(context_id="a/b")),
            ("a task with ..", errors.TaskNotFoundError, sent(task_id="..")),
            ("another's task", errors.TaskNotFoundError, sent(caller=mallory, task_id=id)),
            ("an act to no task", invalid, alice.say({"act": "accept", "offer_id": "o1-0"}, to=to).begun()),
            ("a tenant", invalid, alice.client.get_task(GetTaskRequest(id=id, tenant="t"))),
            ("push", errors.PushNotificationNotSupportedError, alice.client.create_task_push_notification_config(push)),
        ]
        old = site.headers("alice-n") | {"A2A-Version": "0.3"}
        async with site.caller("alice-n", headers={}) as nobody, site.caller("alice-n", headers=old) as late:
            table += [("no token", A2AClientError, nobody.get(id)), ("0.3", errors.VersionNotSupportedError, late.get(id))]
            for what, error, asking in table:
                await refused(asking, error, what)
    return f"100000000.0 is read as an integer; refused, by its own errors: {', '.join(what for what, *_ in table)}"


async def killed(site):
    """A bridge is killed under a stream, which goes on at the other, or between result and reading, in turns. The other is asked
    by who has never asked it."""
    lost, began, slowest = collections.Counter(), 0, 0
    async with site.user("bob-k") as bob:
        for run in range(RUNS):
            agent, result = f"alice-k{run}", f"left with neighbour {run}"
            victim, witness = (site.one, site.other) if run % 4 < 2 else (site.other, site.one)
            async with site.caller(agent, victim) as alice, site.caller(agent, witness) as again:
                following = alice.call(bob)
                task, _ = await asyncio.gather(following.until(lambda task: "artifacts" in task), offer(bob))
                if run % 2:
                    await following.events.aclose()
                    await report(bob, result)
                    victim.kill()
                else:
                    victim.kill()
                    await refused(following.until(), A2AClientError)
                    following = again.subscribe(task["id"])
                    await following.begun()
                    streamed, _ = await asyncio.gather(following.until(), report(bob, result))
                    lost["streams"] += state_of(streamed) != "COMPLETED" or artifact(streamed, "result-0-1") != result
                began = time.monotonic()
                task = await again.get(task["id"])
                slowest = max(slowest, time.monotonic() - began)
                lost["ends"] += state_of(task) != "COMPLETED"
                lost["awards"] += (artifact(task, "award-0-1") or {}).get("terms") != TERMS
                lost["results"] += artifact(task, "result-0-1") != result
            await asyncio.to_thread(victim.start)
    figures = f"{RUNS} kills: {', '.join(f'{count} {what}' for what, count in lost.items())} lost; told in {slowest:.1f} s at most"
    require(not lost.total(), figures)
    return figures


async def keys_and_tokens(site):
    """A key is put into the key set and taken out; a hundred tokens are shown, and looked for in what the bridges tell."""
    ours, other = site.data / "jwks.json", site.home / "other-key"
    site.run("keys", "--out", other)
    before, theirs = json.loads(ours.read_text()), json.loads((other / "jwks.json").read_text())
    token = site.run("token", "alice-o", "--key", other / "signing-key.pem")
    tokens = [token, *(site.token(f"alice-n{number}") for number in range(TOKENS))]

    async def status(token):
        request = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
        headers = {"Authorization": f"Bearer {token}", "A2A-Version": "1.0"}
        return (await connection.post(f"{site.one.url}/a2a", json=request, headers=headers)).status_code

    async def until(expected, keys):
        ours.write_text(json.dumps(before | {"keys": keys}))
        began = time.monotonic()
        while (found := await status(token)) != expected:
            require(time.monotonic() - began < KEYS_S, f"{found} instead of {expected} for {KEYS_S} s")
            await asyncio.sleep(0.5)
        return time.monotonic() - began

    async with httpx.AsyncClient(timeout=30) as connection:
        try:
            await until(200, before["keys"] + theirs["keys"])
            expect({await status(token) for token in tokens}, {200}, "answers to good tokens")
        finally:
            took = await until(401, before["keys"])
        told = (await connection.get(f"{site.one.url}/metrics")).text + site.one.file.read_text() + site.other.file.read_text()
    found = [token for token in tokens if token in told or token.split(".")[2] in told]
    require(not found, f"{len(found)} of {len(tokens)} tokens are told")
    return f"a key taken out is refused after {took:.0f} s; {len(tokens)} tokens in no line of {told.count(chr(10))} of logs and metrics"


def lost_of(told, contractor, result):
    """What is not there of the end, award and result of a call that was followed."""
    awards, results = told["view"].get("awards", []), [one["text"] for one in told.get("results", [])]
    return collections.Counter(
        ends=told["outcome"] != "completed", awards=[one["contractor"] for one in awards] != [contractor], results=results != [result]
    )


async def called(user, contractor):
    opened = await user.call("call_for_offers", id="parcel", task="carry", to=[contractor.agent], policy="high", wait_ms=0)
    return opened["negotiation"]


async def waits_in_vain(site, bridge, agent, bob):
    """A call of a tool waits for the end, and its bridge is killed."""
    async with site.tools_at(bridge).client(agent) as alice:
        negotiation = await called(alice, bob)
        await offer(bob)
        told = {"cursor": "", "view": {}}
        while told["view"].get("state") != "performing":
            told = await alice.call("follow", negotiation=negotiation, after=told["cursor"], wait_ms=500)
        waiting = asyncio.ensure_future(alice.client.call_tool("follow", {"negotiation": negotiation, "after": told["cursor"]}))
        finished, _ = await asyncio.wait([waiting], timeout=WAITS_S)
        require(not finished, "the tool does not wait")
        bridge.kill()
        return negotiation


async def killed_tools(site):
    """A bridge is killed under a tool that waits, and the other one asked, which has never heard of it."""
    lost = collections.Counter()
    async with site.user("bob-t") as bob:
        for run in range(RUNS):
            victim, witness = (site.one, site.other) if run % 2 else (site.other, site.one)
            agent, result, negotiation = f"alice-t{run}", f"left with neighbour {run}", None
            try:
                negotiation = await waits_in_vain(site, victim, agent, bob)
            except Exception:
                # The client's own end fails, once its bridge is gone.
                negotiation = f"{agent}~parcel"
                require(victim.process.poll() is not None, "the bridge was not killed")
            await report(bob, result)
            async with site.tools_at(witness).client(agent) as again:
                lost += lost_of(await again.follow(negotiation), bob.agent, result)
            await asyncio.to_thread(victim.start)
    require(not lost.total(), f"{RUNS} kills: {dict(lost)} lost")
    return f"{RUNS} kills under a tool that waits: no end, award or result lost"


async def killed_gateway(site):
    """Gateway and engine are killed before an offer, at work, and between result and reading, in turns."""
    lost, runs = collections.Counter(), max(3, RUNS // 4)
    async with site.user("bob-g") as bob:
        for run in range(runs):
            agent, result = f"alice-g{run}", f"left with neighbour {run}"
            async with site.tools_at(site.one).client(agent) as alice, site.tools_at(site.other).client(agent) as again:
                negotiation = await called(alice, bob)
                for moment, step in enumerate((offer, lambda bob: report(bob, result), None)):
                    if moment == run % 3:
                        await asyncio.to_thread(site.kill_gateway)
                    if step:
                        await step(bob)
                for user in (alice, again):
                    lost += lost_of(await user.follow(negotiation), bob.agent, result)
    require(not lost.total(), f"{runs} kills: {dict(lost)} lost")
    return f"{runs} kills of gateway, engine and nats-server: no end, award or result lost, at either bridge"


async def canaries(site):
    """After all others, so that each has left its lines."""
    async with site.caller("alice-y") as alice, site.user("bob-y") as bob:
        following = alice.call(bob, task=CANARIES["task"])
        task, _ = await asyncio.gather(following.until(), worked(bob, CANARIES["result"]))
        expect_end(task, result_0_1=CANARIES["result"])
        opened = await alice.call(bob, task=CANARIES["task"]).begun()
        await alice.say({"act": "cancel", "reason": CANARIES["reason"]}, opened["id"]).begun()
        wrong = {"act": "cfp", "task": CANARIES["task"], "colour": CANARIES["reason"], "reply_within_ms": "x"}
        await refused(alice.say(wrong, to=[f"agent://{bob.agent}"]).begun(), errors.InvalidParamsError)
    lines = [line for bridge in (site.one, site.other, site.tools) for line in bridge.file.read_text().splitlines()]
    secret = [*CANARIES.values(), "left with", *(site.token(agent).rpartition(".")[2] for agent in ("alice-y", "bob-y"))]
    expect([line for line in lines if any(one in line for one in secret)], [], "lines with words of agents, or a token")
    require(lines, "lines of the bridges")
    return f"in none of {len(lines)} lines of three bridges, of which two log at level debug; no token either"


async def patience(site):
    async with site.caller("alice-w") as alice:
        absent = {"consent": {"default": "allow"}, "durable": True}
        await alice.connection.put(f"{site.gateway}/v1/agents/absent", json=absent, headers=site.headers("absent"))
        payload, began = {"act": "cfp", "task": "carry", "policy": "patient", "reply_within_ms": 1000 * COLLECT_S}, time.monotonic()
        task = await alice.say(payload, to=["agent://absent"]).until()
        took = time.monotonic() - began
        expect((state_of(task), told(task, "outcome")), ("FAILED", "no_offers"), "end")
        require(took >= COLLECT_S, f"a collection of {COLLECT_S} s: {took:.1f} s")
        return f"{alice.connection.timeout.read:.0f} s of its own; one stream tells, after {took:.1f} s, that there are no offers"


CHECKS = {
    "call": call, "input required": input_required, "bargain": bargain, "team": team, "panel": panel, "cancel": cancel, "list": pages,
    "repeats": repeats, "patience": patience, "signed card": signed_card, "inputs": inputs, "killed bridge": killed,
    "keys and tokens": keys_and_tokens, "killed bridge, tools": killed_tools, "killed gateway": killed_gateway,
    "canaries": canaries,
}


async def play(site, names):
    for name in names:
        await carry_out(name, CHECKS[name](site))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("llmx", "data", "home"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--gateway", required=True)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    arguments = parser.parse_args()
    # So that its bridges end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with contextlib.ExitStack() as stack:
        asyncio.run(play(Bridges(arguments, stack), arguments.checks or list(CHECKS)))


if __name__ == "__main__":
    main()
