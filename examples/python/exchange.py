"""What every agent does, with the standard library alone: requests repeated until answered, `seq`, inbox, leaving.

Copy it beside your agent. `Exchange` is one agent's access to a gateway: `with Exchange(url, agent, token) as exchange`.
"""
import argparse, json, queue, re, signal, sys, threading, time, uuid
from datetime import datetime, timezone
from http.client import HTTPException, InvalidURL
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

START_WAIT_S = 5  # for the gateway, when an agent starts
ANSWER_WAIT_S = 60  # for the answer to a request, repeated meanwhile
PAUSE_MAX_S = 5  # between two attempts
NOBODY_WAIT_S = 10  # for those that are called and not registered yet
ACKS_MAX = 256  # of one request
REMEMBERED_MAX = 100_000  # delivery ids: a delivery may come more than once


def arguments(doc, **further):
    """Who the agent is and which gateway it uses, and what else its story takes; usage and exit code 2 where one is wrong."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", type=gateway_url, metavar="URL", help="the gateway's, for example http://127.0.0.1:8080")
    parser.add_argument("agent", type=agent_id, metavar="AGENT", help="the agent's id")
    parser.add_argument("token", type=token_text, metavar="TOKEN", help='of that agent: "$(llmx token AGENT)"')
    for name, options in further.items():
        parser.add_argument(name, **options)
    return parser.parse_args()


def gateway_url(text):
    if re.search(r"\s", text) or urlsplit(text).scheme not in ("http", "https") or not urlsplit(text).netloc:
        raise argparse.ArgumentTypeError(f"{text!r} is no address of a gateway: give http://HOST:PORT")
    return text.rstrip("/")


def agent_id(text):
    if not re.fullmatch("[A-Za-z0-9_-]{1,64}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no agent's id: give 1 to 64 characters of A-Z a-z 0-9 _ -")
    return text


def token_text(text):
    if not text:
        raise argparse.ArgumentTypeError("it is empty: `llmx token AGENT` printed none")
    return text


class Refused(SystemExit):
    """The exchange said no, and would again. Whoever does not catch it ends with what it said."""

    def __init__(self, what, error):
        self.problem = None  # the code of the problem document
        text = error.read().decode(errors="replace")
        try:
            problem = json.loads(text)
            self.problem = problem["code"]
            text = f"{problem['code']}: {problem['detail']}"
            text += f" (at {problem['pointer']})" if "pointer" in problem else ""
            text += f"; expected: {problem['expected']}" if "expected" in problem else ""
        except (ValueError, KeyError, TypeError):
            text = f"HTTP {error.code}: is this a gateway? {text[:200]}"
        super().__init__(f"{what} was refused: {text}")


def refused_for_now(error):
    """The code of a refusal that may pass, and how long it asks to wait, in seconds. Who repeats sooner is served no sooner."""
    try:
        problem = json.load(error)
        return problem["code"], problem.get("retry_after_ms", 0) / 1000
    except (ValueError, KeyError, TypeError, OSError):
        return None, 0


class Exchange:
    def __init__(self, url, agent, token):
        self.url, self.agent, self.token = url, agent, token
        self.seq = time.time_ns() // 1000  # rises from message to message, and from start to start
        self.registration = None
        self.instance = uuid.uuid4().hex  # tells its registration from that of another process of this agent
        self.is_lost = False  # nothing answers at present
        self.handled = queue.Queue()  # delivery ids to be acknowledged

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        self._find()
        threading.Thread(target=self._acknowledge, daemon=True).start()
        return self

    def __exit__(self, kind, *_):
        """Acknowledges what was handled, and leaves: whoever stays registered is still called for a while."""
        if not self.is_lost and (kind is None or kind is SystemExit or kind is KeyboardInterrupt):
            self.handled.join()
        if self.registration:
            try:
                self._open("DELETE", f"/v1/agents/{self.agent}?instance={self.instance}", None, timeout=5).close()
            except (OSError, HTTPException):
                pass  # it was not to be: the registration lapses by itself
        return kind is KeyboardInterrupt

    def _find(self):
        """Waits a moment for the gateway: who has mistyped its address learns it at once."""
        deadline = time.monotonic() + START_WAIT_S
        while True:
            try:
                return urlopen(self.url + "/healthz", timeout=START_WAIT_S).close()  # without the token: who may this be?
            except HTTPError as error:
                raise Refused(f"GET {self.url}/healthz", error) from None
            except InvalidURL as error:
                sys.exit(f"{self.url} is no address: {error}")
            except (OSError, HTTPException) as error:
                if time.monotonic() > deadline:
                    sys.exit(f"no gateway answers at {self.url} ({reason(error)}): name another address, or start one: "
                             "llmx demo --listen 127.0.0.1:8080 --duration 600")
            time.sleep(0.2)

    def _open(self, method, path, data, timeout=ANSWER_WAIT_S):
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        return urlopen(Request(self.url + path, data, headers, method=method), timeout=timeout)

    def request(self, method, path, body=None, wait_s=ANSWER_WAIT_S):
        """One request. What the exchange could not answer is repeated byte for byte: nothing counts twice."""
        data = json.dumps(body).encode() if body is not None else None
        deadline, pause_s = time.monotonic() + wait_s, 0.2
        while True:
            code, asked_s = None, 0
            try:
                answer = self._open(method, path, data)
                self._note(None)
                return answer
            except HTTPError as error:
                if error.code < 500 and error.code != 429:
                    raise Refused(f"{method} {path}", error) from None
                code, asked_s = refused_for_now(error)
                fault = code or f"HTTP {error.code}"
            except InvalidURL as error:
                sys.exit(f"{method} {path} cannot be asked for: {error}")
            except (OSError, HTTPException) as error:
                fault = reason(error)
            self._note(fault, f"refuses for now ({fault})" if code else f"does not answer ({fault})")
            if time.monotonic() > deadline:
                if code:
                    sys.exit(f"{self.url} has refused {method} {path} for {wait_s} s: {code}")
                sys.exit(f"{self.url} has not answered {method} {path} for {wait_s} s ({fault}): is the gateway still there?")
            # `overloaded` says when its turn comes: no pause of one's own is added to it.
            time.sleep(asked_s if code == "overloaded" and asked_s else max(pause_s, asked_s))
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _note(self, fault, says=None):
        """Says once that the gateway is lost, and once that it is back."""
        was_lost, self.is_lost = self.is_lost, fault is not None
        if fault and not was_lost:
            print(f"{self.url} {says or f'does not answer ({fault})'}: trying again", file=sys.stderr, flush=True)
        elif was_lost and not fault:
            print(f"{self.url} answers again", file=sys.stderr, flush=True)

    def register(self, **registration):
        self.registration = {"consent": {"default": "allow", "rules": []}, "instance": self.instance, **registration}
        self.request("PUT", f"/v1/agents/{self.agent}", self.registration).close()

    def send(self, negotiation, payload, **envelope):
        """Sends an act; the answer says under which id the exchange knows the negotiation."""
        self.seq += 1
        envelope = {"msg_id": uuid.uuid4().hex, "ts": datetime.now(timezone.utc).isoformat(),
                    "from": f"agent://{self.agent}", "negotiation": negotiation, "seq": self.seq, **envelope}
        with self.request("POST", "/v1/messages", {"envelope": envelope, "payload": payload}) as answer:
            return json.load(answer)

    def call(self, negotiation, payload, others):
        """Calls these agents. While none of them is registered the call is repeated, for ten seconds."""
        deadline, is_said = time.monotonic() + NOBODY_WAIT_S, False
        while True:
            try:
                to = [f"agent://{other}" for other in others]
                return self.send(negotiation, payload, to=to, scope={"consent": "opt-in"})["negotiation"]
            except Refused as refused:
                if refused.problem != "no_recipient" or time.monotonic() > deadline:
                    raise
                if not is_said:
                    print(f"{refused}: trying again for {NOBODY_WAIT_S} s", file=sys.stderr, flush=True)
                    is_said = True
            time.sleep(0.2)

    def reply(self, delivery, payload):
        """Answers a delivery. What is refused is dropped, and the agent goes on; whether it was sent."""
        envelope = delivery["envelope"]
        try:
            self.send(envelope["negotiation"], payload, in_reply_to=envelope["msg_id"])
            return True
        except Refused as refused:
            print(f"{envelope['negotiation']}: {payload['act']} dropped: {refused}", file=sys.stderr, flush=True)
            return False

    def acknowledge(self, delivery):
        self.handled.put(delivery["envelope"]["msg_id"])

    def _acknowledge(self):
        """Beside the work, and all that waits at once: an agent that acknowledges too late hears everything again."""
        while True:
            ids = [self.handled.get()]
            while len(ids) < ACKS_MAX and not self.handled.empty():
                ids.append(self.handled.get())
            try:
                self.request("POST", "/v1/acks", {"delivery_ids": ids}).close()
            except SystemExit as error:  # they come again
                print(error, file=sys.stderr, flush=True)
            for _ in ids:
                self.handled.task_done()

    def inbox(self):
        """Every delivery once, acknowledged when the next one is asked for; the last one is the caller's to acknowledge."""
        seen = {}  # oldest first
        while True:
            try:
                stream = self.request("GET", "/v1/inbox", wait_s=float("inf"))
                if self.registration:  # again: what ended the stream before may have taken it away
                    self.request("PUT", f"/v1/agents/{self.agent}", self.registration, wait_s=float("inf")).close()
                for line in stream:
                    if not line.startswith(b"data:"):
                        continue
                    delivery = json.loads(line[5:])
                    if "envelope" not in delivery:
                        break  # the last event: why the gateway ends the stream
                    delivery_id = delivery["envelope"]["msg_id"]
                    if delivery_id not in seen:
                        seen[delivery_id] = True
                        yield delivery
                    self.acknowledge(delivery)
                    while len(seen) > REMEMBERED_MAX:
                        seen.pop(next(iter(seen)))
            except (OSError, HTTPException) as error:  # the stream broke: connect again
                self._note(reason(error))
            time.sleep(1)


def reason(error):
    return getattr(error, "reason", None) or str(error) or type(error).__name__
