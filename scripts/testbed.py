"""What the checks against real processes share: nats-server, engines and gateways that can be killed and started again, and agents
that go over several gateways. LLMX_BIN is the llmx under test, target/release/llmx by default; NATS_SERVER the server, else the pinned one."""

import contextlib
import http.client
import itertools
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
import uuid
from datetime import datetime, timezone

from free_ports import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent
LLMX = os.environ.get("LLMX_BIN", str(ROOT / "target/release/llmx"))
# The laboratory beside it.
LLMX_LAB = f"{LLMX}-lab"
START_S = 30  # for a process to be ready
TAKEN_S = 60  # for a lane to have an owner again
ANSWER_S = 120  # for what an agent sends to be answered, repeated meanwhile
QUIET_S = 60  # of a stream; a gateway says something sooner
PAUSE_S = 0.1  # between two attempts
LASTING_MS = 86_400_000  # lease of agents whose presence must not change meanwhile
REMEMBERED_MAX = 100_000  # deliveries of one agent


class Failed(Exception):
    """What a check found."""


class Partly(Exception):
    """What a check shows, where not all of it can be shown yet."""


def expect(found, expected, what):
    if found != expected:
        raise Failed(f"{what}: {found!r}, expected {expected!r}")


def within(seconds, holds, what):
    """Waits until something holds; how long it took."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > seconds:
            raise Failed(f"{what}: not within {seconds} s")
        time.sleep(0.005)
    return time.monotonic() - began


def run_tests(target, *names):
    """Runs tests by name; what they print. Each name must be that of a test.

    Of the whole workspace, as scripts/test builds it: for one crate alone its dependencies would be built again, with other features."""
    command = ["cargo", "test", "-q", "--workspace", "--locked", *target, "--", "--nocapture", *names]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if ran.returncode != 0:
        raise Failed((ran.stdout + ran.stderr).strip()[-1500:])
    passed = sum(int(count) for count in re.findall(r"(\d+) passed", ran.stdout))
    if passed < len(names):
        raise Failed(f"{passed} tests ran of {', '.join(names)}")
    return ran.stdout + ran.stderr


class Keys:
    """A signing key, and tokens of agents."""

    def __init__(self, home):
        self.folder, self.tokens = home / "keys", {}
        self.run("keys", "--out", str(self.folder))

    @property
    def signing_key(self):
        return str(self.folder / "signing-key.pem")

    def run(self, *arguments):
        return subprocess.run([LLMX, *arguments], check=True, capture_output=True, text=True).stdout.strip()

    def token(self, agent, *more):
        """A token of an agent; of an administrator with `--admin`."""
        if (agent, more) not in self.tokens:
            self.tokens[agent, more] = self.run("token", agent, "--key", self.signing_key, *more)
        return self.tokens[agent, more]


class Service:
    """A process that can be killed and started again, with all it prints in one file."""

    def __init__(self, name, command, log):
        self.name, self.command, self.log, self.process = name, command, log, None

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def send(self, number):
        self.process.send_signal(number)

    def end(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            self.process.wait()


class Site:
    """A nats-server, engines, and gateways, each a process."""

    def __init__(self, stack, home, keys, gateways=1, engines=1, lanes=None):
        self.stack, self.home, self.keys = stack, home, keys
        home.mkdir()
        self.addresses = {}
        nats = self.nats = f"127.0.0.1:{free_port()}"
        server = os.environ.get("NATS_SERVER")
        if not server:
            fetched = subprocess.run([ROOT / "scripts/nats-server"], check=True, capture_output=True, text=True)
            server = fetched.stdout.strip()
        host, port = nats.split(":")
        self.server = self.start("nats", [server, "-js", "-sd", str(home / "nats"), "-a", host, "-p", port])
        self.until("nats", lambda: socket.create_connection((host, int(port)), timeout=1).close())
        lanes = [] if lanes is None else ["--lanes", str(lanes)]
        self.engines = [self.engine(f"engine-{number}", lanes) for number in range(engines)]
        self.gateways = [self.gateway(f"gateway-{number}", lanes) for number in range(gateways)]

    def engine(self, name, lanes):
        return self.serve(name, ["engine", "--id", name], lanes)

    def gateway(self, name, lanes):
        return Gateway(self.serve(name, [
            "gateway", "--id", name, "--jwks", str(self.keys.folder / "jwks.json"),
            "--requests-per-s", "1000000", "--burst", "1000000",
        ], lanes), self.addresses[name], self.keys)

    def serve(self, name, arguments, lanes):
        """Starts an engine or a gateway, and waits until it is ready."""
        address = self.addresses[name] = f"127.0.0.1:{free_port()}"
        service = self.start(name, [LLMX, *arguments, "--nats", f"nats://{self.nats}", "--listen", address, *lanes])
        self.ready(service)
        return service

    def ready(self, service):
        address = self.addresses[service.name]

        def look():
            if service.process.poll() is not None:
                raise Failed(f"{service.name} ended: {(self.home / f'{service.name}.log').read_text()[-2000:]}")
            urllib.request.urlopen(f"http://{address}/readyz", timeout=1).close()

        self.until(service.name, look)

    def start(self, name, command):
        log = self.stack.enter_context((self.home / f"{name}.log").open("a"))
        service = Service(name, command, log)
        service.start()
        self.stack.callback(service.end)
        return service

    def restart(self, service):
        """Starts what was killed, and waits until it is ready."""
        service.start()
        self.ready(service)

    def owner(self):
        """The engine that says it owns a lane, once one does."""
        deadline = time.monotonic() + TAKEN_S
        while True:
            for engine in self.engines:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    with urllib.request.urlopen(f"http://{self.addresses[engine.name]}/metrics", timeout=5) as page:
                        if re.search(r"^exchange_lane_owned\{[^}]*\} 1$", page.read().decode(), re.MULTILINE):
                            return engine
            if time.monotonic() > deadline:
                raise Failed(f"no engine owns a lane within {TAKEN_S} s")
            time.sleep(PAUSE_S)

    def until(self, name, look):
        deadline = time.monotonic() + START_S
        while True:
            try:
                return look()
            except (OSError, http.client.HTTPException) as error:
                if time.monotonic() > deadline:
                    log = (self.home / f"{name}.log").read_text()[-2000:]
                    raise Failed(f"{name} is not ready within {START_S} s: {error}\n{log}") from None
                time.sleep(0.1)

    @property
    def urls(self):
        return [f"http://{gateway.address}" for gateway in self.gateways]


class Gateway:
    """Asks one gateway, over a connection that stays."""

    def __init__(self, service, address, keys):
        self.service, self.address, self.keys = service, address, keys
        self.connection = http.client.HTTPConnection(address, timeout=30)

    def ask(self, method, path, agent, body=None, admin=False):
        """Status and bytes of an answer."""
        token = self.keys.token(agent, "--admin") if admin else self.keys.token(agent)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        data = None if body is None else json.dumps(body)
        try:
            self.connection.request(method, path, data, headers)
            answer = self.connection.getresponse()
        except (ConnectionError, http.client.RemoteDisconnected):
            # A gateway closes connections on which nothing comes.
            self.connection.close()
            self.connection.request(method, path, data, headers)
            answer = self.connection.getresponse()
        return answer.status, answer.read()

    def register(self, agent, **members):
        body = {"consent": {"default": "allow"}, "lease_ms": LASTING_MS} | members
        status, answer = self.ask("PUT", f"/v1/agents/{agent}", agent, body)
        if status not in (200, 201):
            raise Failed(f"registration of {agent}: {status} {answer[:300]!r}")

    def remove(self, agent):
        expect(self.ask("DELETE", f"/v1/agents/{agent}", agent)[0], 204, f"removal of {agent}")

    def page(self, caller, **wanted):
        """The bytes of an answer to a search."""
        status, answer = self.ask("POST", "/v1/search", caller, wanted)
        expect(status, 200, f"search for {wanted}: {answer[:300]!r}")
        return answer

    def found(self, text, caller="seeker", **wanted):
        """The agents that a text finds."""
        hits = json.loads(self.page(caller, queries=[text], **wanted))["hits"]
        return [hit["agent"] for hit in hits]


class Agent:
    """An agent over HTTP that goes on at the next gateway when one is lost. `hear(agent, negotiation, told)` gets every delivery
    once, on a thread of the agent's own, and gives what it is answered with, or None; `received` keeps all of them."""

    def __init__(self, site, name, hear=None, is_listening=True, **registration):
        self.site, self.name, self.hear = site, name, hear or (lambda *_: None)
        self.first = sum(name.encode())  # another gateway for another name
        self.seqs = itertools.count(time.time_ns() // 1000)
        self.received, self.refused, self.error = [], [], None
        self.over, self.stream, self.lock = threading.Event(), None, threading.Lock()
        body = {"consent": {"default": "allow"}, "lease_ms": LASTING_MS} | registration
        self.request("PUT", f"/v1/agents/{name}", body)
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.is_connected = threading.Event()
        if is_listening:
            self.thread.start()
            if not self.is_connected.wait(START_S):
                raise Failed(f"{name} has no stream within {START_S} s")

    def open(self, attempt, method, path, data=None, timeout=30):
        url = self.site.urls[(self.first + attempt) % len(self.site.urls)]
        token = self.site.keys.token(self.name)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return urllib.request.urlopen(urllib.request.Request(url + path, data, headers, method=method), timeout=timeout)

    def request(self, method, path, body=None):
        """Repeated byte for byte until a gateway answers."""
        data, deadline = None if body is None else json.dumps(body).encode(), time.monotonic() + ANSWER_S
        for attempt in itertools.count():
            try:
                with self.open(attempt, method, path, data) as answer:
                    return json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as error:
                if error.code < 500 and error.code != 429:
                    raise Failed(f"{self.name}: {method} {path}: {error.code} {error.read()[:300]!r}") from None
                fault = error
            except (OSError, http.client.HTTPException) as error:
                fault = error
            if time.monotonic() > deadline:
                raise Failed(f"{self.name}: {method} {path} is not answered within {ANSWER_S} s: {fault}")
            time.sleep(PAUSE_S)

    def send(self, negotiation, payload, **envelope):
        with self.lock:
            envelope = {
                "msg_id": uuid.uuid4().hex, "ts": datetime.now(timezone.utc).isoformat(), "from": f"agent://{self.name}",
                "negotiation": negotiation, "seq": next(self.seqs),
            } | envelope
            envelope = {name: value for name, value in envelope.items() if value is not None}
            return self.request("POST", "/v1/messages", {"envelope": envelope, "payload": payload})

    def call(self, own_id, payload, others):
        """Calls others; the id of what is called."""
        to = [f"agent://{other}" for other in others]
        return self.send(own_id, payload, to=to, scope={"consent": "opt-in"})["negotiation"]

    def listen(self):
        seen = set()
        for attempt in itertools.count():
            if self.over.is_set():
                return
            try:
                with self.open(attempt, "GET", "/v1/inbox", timeout=QUIET_S) as self.stream:
                    self.is_connected.set()
                    for line in self.stream:
                        if self.over.is_set():
                            return
                        delivery = json.loads(line[5:]) if line.startswith(b"data:") else {}
                        if "envelope" in delivery:
                            self.take(delivery, seen)
            except (OSError, http.client.HTTPException, ValueError, AttributeError):
                pass  # the stream broke: connect again
            except Exception as error:  # noqa: BLE001 of the check itself; whoever waits says so
                self.error = error
                return
            time.sleep(PAUSE_S)

    def take(self, delivery, seen):
        envelope, told = delivery["envelope"], delivery["payload"]
        if envelope["msg_id"] not in seen:
            if len(seen) >= REMEMBERED_MAX:
                raise Failed(f"{self.name} has more than {REMEMBERED_MAX} deliveries")
            seen.add(envelope["msg_id"])
            self.received.append((time.monotonic(), envelope, told))
            payload = self.hear(self, envelope["negotiation"], told)
            if payload is not None:
                try:
                    self.send(envelope["negotiation"], payload, in_reply_to=envelope["msg_id"])
                except Failed as refused:
                    self.refused.append(str(refused))
        if not self.over.is_set():
            self.request("POST", "/v1/acks", {"delivery_ids": [envelope["msg_id"]]})

    def told(self, negotiation, act):
        """What it was told in a negotiation, of one act, with the moment it was."""
        received = list(self.received)
        return [(at, told) for at, envelope, told in received if envelope["negotiation"] == negotiation and told["act"] == act]

    def waits(self, seconds, negotiation, act, holds=lambda told: True):
        """The first such thing it is told, with the moment."""
        deadline = time.monotonic() + seconds
        while True:
            for at, told in self.told(negotiation, act):
                if holds(told):
                    return at, told
            if self.error:
                raise Failed(f"{self.name}: {self.error!r}")
            if time.monotonic() > deadline:
                raise Failed(f"{self.name} is not told `{act}` of {negotiation} within {seconds} s; refused: {self.refused}")
            time.sleep(0.005)

    def leave(self):
        """Hears nothing more."""
        self.over.set()
