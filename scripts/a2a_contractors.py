"""Part `contractor` of scripts/check-bridges: agents on the server of PyPI a2a-sdk (scripts/a2a_agent.py), hired by `llmx a2a` beside two
scripted contractors, on an exchange of real processes. Each asks the lowest price, so that it wins unless it is lost.

Runs in the virtual environment that has the package, and prints a JSON line for each check when it has ended, as scripts/mcp_checks.py
does. Seconds begin when the agent is lost, or at its own award where it is lost before that."""

import argparse
import collections
import contextlib
import functools
import json
import pathlib
import signal
import subprocess
import sys
import time
import traceback

from free_ports import free_port
from testbed import LLMX, ROOT, START_S, Agent, Failed, Keys, Service, Site, expect, within

SCRIPTED = ["contractor-0", "contractor-1"]
CONFIRM_S = 10  # of policy `high`
PERFORM_S = 2  # of policy `brief`
MARGIN_S = 1.5  # until what is due has come, beside other work
COLLECT_S = 2.5  # of a call that an absent agent keeps open
SETTLE_S = 0.5  # until an offer that was made is with the exchange
NEVER_S = 300  # beyond every check
DEMO_S, DEMO_RATE, DEMO_AGENTS = 20, 3, 10


def checked(*command):
    """What a command prints that must do what it is for."""
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0:
        raise Failed(f"{' '.join(command[:2])}: exit code {ran.returncode}: {ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    return ran.stdout


class Hired:
    """An agent with a process of its own, and `llmx a2a`, which hires it. Of several agents each has one."""

    def __init__(self, stack, home, gateway, key, *names, **settings):
        self.names, port = names, free_port()
        self.notes = home / f"{names[0]}.notes"
        options = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", str(value))]
        program = [sys.executable, str(ROOT / "scripts/a2a_agent.py"), "--port", str(port), "--notes", str(self.notes), *options, *names]
        self.agent, _ = self.start(stack, home, f"agent-{names[0]}", program)
        # It would wait for what it is asked.
        stack.callback(self.agent.kill)
        cards = {name: f"http://127.0.0.1:{port}/{name}/.well-known/agent-card.json" for name in names}
        self.bridges = []
        for name, card in cards.items():
            checked(LLMX, "healthcheck", "--wait", str(START_S), card)
            command = [LLMX, "a2a", "--card", card, "--as", name, "--topics", "courier", "--gateway", gateway, "--key", key]
            bridge, said = self.start(stack, home, f"a2a-{name}", command)
            stack.callback(bridge.end)
            self.bridges.append((bridge, said))
        for _, said in self.bridges:
            within(START_S, lambda: " asks " in said.read_text(), f"llmx a2a registers: {said}")
        self.bridge, self.said = self.bridges[0]

    @staticmethod
    def start(stack, home, name, command):
        file = home / f"{name}.log"
        service = Service(name, command, stack.enter_context(file.open("a")))
        service.start()
        return service, file

    def heard(self, what):
        """When it noted something."""
        lines = (json.loads(line) for line in self.notes.read_text().splitlines(keepends=True) if line.endswith("\n"))
        return [line["at"] for line in lines if line["what"] == what]

    def until(self, what, seconds=START_S):
        """Waits for its first note of something; when it was."""
        within(seconds, lambda: self.heard(what), f"{self.names[0]} notes `{what}`")
        return self.heard(what)[0]


class Exchange:
    """An exchange with two scripted contractors, an agent that never answers, and who calls."""

    def __init__(self, stack, home):
        self.home, self.keys = home, Keys(home)
        self.site = Site(stack, home / "site", self.keys)
        [self.gateway], address = self.site.urls, f"127.0.0.1:{free_port()}"
        self.site.addresses["contractors"] = address
        command = [LLMX, "contractors", "--count", str(len(SCRIPTED)), "--gateway", self.gateway, "--key", self.keys.signing_key]
        self.site.ready(self.site.start("contractors", [*command, "--listen", address]))
        self.absent, self.alice = Agent(self.site, "absent", is_listening=False), Agent(self.site, "alice")
        stack.callback(self.alice.leave)
        high = json.loads((ROOT / "policy/core/presets/high.json").read_text())
        self.put(high | {"id": "held@1", "hold_until": "done"})
        self.put(high | {"id": "brief@1", "timers_ms": high["timers_ms"] | {"perform": 1000 * PERFORM_S}})

    def put(self, policy):
        file = self.home / f"{policy['id']}.json"
        file.write_text(json.dumps(policy))
        checked(LLMX, "policy", "put", str(file), "--gateway", self.gateway, "--token", self.keys.token("operator", "--admin"))

    @contextlib.contextmanager
    def hired(self, name, **settings):
        with contextlib.ExitStack() as stack:
            yield Hired(stack, self.home, self.gateway, self.keys.signing_key, name, **settings)

    def call(self, name, *others, policy="high", reply_s=CONFIRM_S):
        """Alice calls an agent and the scripted contractors."""
        payload = {"act": "cfp", "task": "carry a parcel", "policy": policy, "reply_within_ms": round(1000 * reply_s)}
        negotiation = self.alice.call(f"{name}-{time.monotonic_ns()}", payload, [name, *SCRIPTED, *others])
        return Called(self.alice, negotiation)

    def command(self, name, *more):
        """The shell's call."""
        to = [part for one in (name, *SCRIPTED) for part in ("--to", one)]
        return [
            LLMX, "call", "carry a parcel", *to, "--policy", "high", "--gateway", self.gateway, "--key", self.keys.signing_key, *more,
        ]


class Called:
    """A negotiation, as alice is told of it."""

    def __init__(self, alice, id):
        self.alice, self.id = alice, id

    def award(self, number, seconds=START_S):
        """When an award was made, and to whom."""
        is_it = {"kind": "awarded", "award_no": number}.items()
        at, told = self.alice.waits(seconds, self.id, "inform", lambda told: is_it <= told.items())
        return at, told["contractor"]

    def failure(self):
        at, told = self.alice.waits(START_S, self.id, "failure")
        return at, told["code"]

    def end(self, outcome):
        """When it ended, as is expected."""
        at, told = self.alice.waits(START_S, self.id, "closed")
        expect(told["outcome"], outcome, "outcome")
        return at

    def runner_up(self, number, since, within_s):
        """Seconds until a scripted contractor has the award; with it the call completes."""
        at, who = self.award(number)
        if who not in SCRIPTED:
            raise Failed(f"award {number} goes to {who}")
        if at - since > within_s:
            raise Failed(f"the award comes after {at - since:.3f} s, not within {within_s} s")
        self.end("completed")
        return f"{at - since:.3f} s"


def wins(exchange):
    with exchange.hired("bob") as bob:
        began = time.monotonic()
        said = checked(*exchange.command("bob", "--json"))
        took, text = time.monotonic() - began, "bob has carried it out for 1000000"
        if text not in said:
            raise Failed(f"the agent's text is not the result: {said}")
        notes = [json.loads(line) for line in bob.notes.read_text().splitlines()]
        expect([note["what"] for note in notes], ["cfp", "offer", "accept", "confirm", "ack", "done"], "what the agent hears and says")
        expect(len({(note["task"], note["context"]) for note in notes}), 1, "tasks and contexts")
        return f"against {len(SCRIPTED)}, confirms, works, in one task; `{text}` is the result of `llmx call`, {took:.3f} s in all"


def lost_before_its_offer(exchange):
    with exchange.hired("early", offer_s=NEVER_S) as early:
        called = exchange.call("early")
        early.until("cfp")
        since = time.monotonic()
        early.agent.kill()
        asked = called.runner_up(1, since, MARGIN_S)
        since = time.monotonic()
        gone = exchange.call("early").runner_up(1, since, MARGIN_S)
        expect(early.said.read_text().count("unavailable"), 2, "lines of llmx a2a that name why")
        return f"killed while it is asked: a scripted contractor is awarded {asked} later; called when it is gone: {gone}"


def lost_with_its_offer(exchange):
    """Killed, or silent, or without `llmx a2a`, between its offer and its award."""
    def start_again(hired):
        hired.agent.kill()
        hired.agent.start()

    ways = {
        "killed": (lambda hired: hired.agent.kill(), "declined_by_refuse", MARGIN_S),
        "started again, without its tasks": (start_again, "declined_by_refuse", MARGIN_S),
        "stopped": (lambda hired: hired.agent.send(signal.SIGSTOP), "declined_by_refuse", CONFIRM_S),
        "`llmx a2a` killed": (lambda hired: hired.bridge.kill(), "confirm_timeout", CONFIRM_S + MARGIN_S),
    }
    with contextlib.ExitStack() as stack:
        called = {}
        for number, (way, (lose, *_)) in enumerate(ways.items()):
            hired = stack.enter_context(exchange.hired(f"offered-{number}"))
            called[way] = exchange.call(hired.names[0], "absent", reply_s=COLLECT_S)
            hired.until("offer")
            time.sleep(SETTLE_S)
            lose(hired)
        figures = []
        for number, (way, (_, code, within_s)) in enumerate(ways.items()):
            at, who = called[way].award(1)
            expect(who, f"offered-{number}", "the first award")
            expect(called[way].failure()[1], code, f"{way}: failure of the first award")
            figures.append(f"{way}: {called[way].runner_up(2, at, within_s)} ({code})")
        return f"the runner-up is awarded after the lost award, {'; '.join(figures)}"


def lost_at_work(exchange):
    with exchange.hired("worker", work_s=NEVER_S) as worker:
        called = exchange.call("worker")
        worker.until("ack")
        since = time.monotonic()
        worker.agent.kill()
        at, code = called.failure()
        expect(code, "unavailable", "failure")
        ended = called.end("no_candidate")
        high = f"`high`: FAILURE `{code}` {at - since:.3f} s later, ended `no_candidate` after {ended - since:.3f} s"
    with exchange.hired("worker-2", work_s=NEVER_S) as worker:
        called = exchange.call("worker-2", policy="held")
        worker.until("ack")
        since = time.monotonic()
        worker.agent.kill()
        expect(called.failure()[1], "unavailable", "failure")
        return f"{high}; `hold_until: done`: the runner-up is awarded {called.runner_up(2, since, MARGIN_S)} later, and completes"


def cancelled_at_work(exchange):
    with exchange.hired("busy", work_s=NEVER_S) as busy, (exchange.home / "call.log").open("w+") as log:
        process = subprocess.Popen(exchange.command("busy"), stdout=log, stderr=log)
        try:
            busy.until("ack")
            since = time.monotonic()
            process.send_signal(signal.SIGINT)
            at = busy.until("CancelTask")
            process.wait(START_S)
        finally:
            process.kill()
            process.wait()
        ended = time.monotonic()
        log.seek(0)
        said = log.read()
        expect((process.returncode, "cancelled" in said), (1, True), f"exit code of llmx call, and the end in what it says: {said}")
        expect(len(busy.heard("CancelTask")), 1, "CancelTask")
        by_hand = f"Ctrl-C of `llmx call`: CancelTask after {at - since:.3f} s, the call ends `cancelled` after {ended - since:.3f} s"
    with exchange.hired("slow", work_s=NEVER_S) as slow:
        called = exchange.call("slow", policy="brief")
        since = slow.until("ack")
        failed, code = called.failure()
        expect(code, "perform_timeout", "failure")
        at = slow.until("CancelTask")
        called.end("no_candidate")
        return f"{by_hand}; beyond its {PERFORM_S} s: FAILURE `{code}` after {failed - since:.3f} s, CancelTask after {at - since:.3f} s"


def asked_to_end(exchange):
    with exchange.hired("leaver", work_s=NEVER_S) as leaver:
        called = exchange.call("leaver")
        leaver.until("ack")
        since = time.monotonic()
        leaver.bridge.send(signal.SIGTERM)
        at, code = called.failure()
        expect(code, "shutting_down", "failure")
        stopped = leaver.until("CancelTask")
        expect(leaver.bridge.process.wait(START_S), 0, "exit code of llmx a2a")
        return f"SIGTERM at work: FAILURE `{code}` after {at - since:.3f} s, CancelTask after {stopped - since:.3f} s, then it ends"


def late(exchange):
    with exchange.hired("late", offer_s=COLLECT_S + 1) as agent:
        since = time.monotonic()
        figure = exchange.call("late", reply_s=COLLECT_S).runner_up(1, since, COLLECT_S)
        said = agent.until("offer")
        at = agent.until("CancelTask")
        if "timeout" not in agent.said.read_text():
            raise Failed(f"llmx a2a does not name the timeout: {agent.said.read_text()}")
        return (
            f"of {COLLECT_S} s to offer it takes {said - agent.heard('cfp')[0]:.1f}: a scripted contractor is awarded after {figure}; "
            f"CancelTask {at - said:.3f} s behind its offer"
        )


def demo(home):
    """Agents from outside take part in a run that judges all its own messages, and whose log is recomputed afterwards."""
    address, key = f"127.0.0.1:{free_port()}", str(home / "demo-key.pem")
    names = [f"a2a-{number}" for number in range(DEMO_AGENTS)]
    trace, export, summary = (home / name for name in ("trace.jsonl", "export.jsonl", "summary.json"))
    command = [
        LLMX, "demo", "--listen", address, "--key", key, "--agents", str(len(SCRIPTED)), "--policy", "high", "--rate", str(DEMO_RATE),
        "--duration", str(DEMO_S), "--trace", str(trace), "--export", str(export), "--json",
    ]
    with contextlib.ExitStack() as stack:
        process = subprocess.Popen(command, stdout=stack.enter_context(summary.open("w")), stderr=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.kill)
        checked(LLMX, "healthcheck", "--wait", str(START_S), f"http://{address}/readyz")
        # As much as scripted contractors ask.
        hired = Hired(stack, home, f"http://{address}", key, *names, price=50_000_000, spread=100_000_000)
        process.wait(DEMO_S + 2 * START_S)
        for bridge, _ in hired.bridges:
            bridge.send(signal.SIGTERM)
        told = json.loads(summary.read_text())
        heard = {what: len(hired.heard(what)) for what in ("cfp", "done", "CancelTask")}
    violations = told["invariant_violations"]
    expect((process.returncode, violations["total"], told["cut_off"]), (0, 0, False), f"exit code, violations, cut off: {violations}")
    expect(told["outcomes"], {"completed": told["rounds"]}, "outcomes")
    awards = collections.Counter()
    for line in trace.read_text().splitlines():
        event = json.loads(line)
        payload = event.get("delivery", {}).get("payload", {})
        if event["agent"] == "alice" and event["event"] == "received" and not event["repeat"] and payload.get("kind") == "awarded":
            awards[payload["contractor"]] += 1
    won = [awards[name] for name in names]
    if not all(won):
        raise Failed(f"an A2A agent won nothing: {heard}, awards {awards}")
    # The end of the exchange may overtake what agents from outside are told of the last round.
    if heard["cfp"] - heard["done"] - heard["CancelTask"] > DEMO_AGENTS:
        raise Failed(f"tasks that lost were not cancelled: {heard}")
    checked(LLMX, "replay", str(export))
    checks = sum(tally["checked"] for tally in violations["by_name"].values())
    return (
        f"{told['rounds']} rounds, {told['awards']} awards, of which {DEMO_AGENTS} A2A agents beside "
        f"{len(SCRIPTED)} scripted ones won {sum(won)}, {min(won)} to {max(won)} each; {heard['cfp']} calls heard, {heard['done']} "
        f"carried out, {heard['CancelTask']} cancelled; {violations['total']} violations in {checks} checks; its log replays"
    )


CHECKS = {
    "wins": wins, "killed before its offer": lost_before_its_offer, "lost with its offer": lost_with_its_offer,
    "killed at work": lost_at_work, "cancelled at work": cancelled_at_work, "asked to end": asked_to_end, "late offer": late, "ten in a demo": demo,
}


def carry_out(name, check):
    began, passed = time.monotonic(), False
    try:
        text, passed = check(), True
    except Failed as fault:
        text = str(fault)
    except Exception:  # A check that breaks has failed, and the others go on.
        text = traceback.format_exc()
    print(json.dumps({"check": name, "passed": passed, "text": text, "seconds": time.monotonic() - began}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=pathlib.Path, required=True, help="a folder for what is kept meanwhile")
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    arguments = parser.parse_args()
    # So that its processes end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    home = arguments.home.absolute()
    names = arguments.checks or list(CHECKS)
    with contextlib.ExitStack() as stack:
        if names != ["ten in a demo"]:
            exchange = Exchange(stack, home)
        for name in names:
            carry_out(name, functools.partial(CHECKS[name], home if name == "ten in a demo" else exchange))


if __name__ == "__main__":
    main()
