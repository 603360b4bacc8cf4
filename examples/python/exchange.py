"""What every agent does, with the standard library alone: requests repeated until answered, `seq`, inbox, leaving.

Copy it beside your agent. `Exchange` is one agent's access to a gateway: `with Exchange(url, agent, token) as exchange`.
"""
import json, queue, signal, sys, threading, time, uuid
from datetime import datetime, timezone
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import Request, urlopen

ATTEMPTS_MAX = 8
ACKS_MAX = 256  # of one request
REMEMBERED_MAX = 100_000  # delivery ids: a delivery may come more than once


class Exchange:
    def __init__(self, url, agent, token):
        self.url, self.agent, self.token = url, agent, token
        self.seq = time.time_ns() // 1000  # rises from message to message, and from start to start
        self.is_registered = False
        self.handled = queue.Queue()  # delivery ids to be acknowledged
        threading.Thread(target=self._acknowledge, daemon=True).start()

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        return self

    def __exit__(self, kind, *_):
        """Acknowledges what was handled, and leaves: whoever stays registered is still called for a while."""
        if kind is None or kind is SystemExit or kind is KeyboardInterrupt:
            self.handled.join()
        if self.is_registered:
            try:
                self._open("DELETE", f"/v1/agents/{self.agent}", None, timeout=5).close()
            except (OSError, HTTPException):
                pass  # it was not to be: the registration lapses by itself
        return kind is KeyboardInterrupt

    def _open(self, method, path, data, timeout=60):
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        return urlopen(Request(self.url + path, data, headers, method=method), timeout=timeout)

    def request(self, method, path, body=None):
        """One request. What the exchange could not answer is repeated byte for byte: nothing counts twice."""
        data = json.dumps(body).encode() if body is not None else None
        for attempt in range(ATTEMPTS_MAX):
            try:
                return self._open(method, path, data)
            except HTTPError as error:
                if error.code < 500 and error.code != 429:
                    sys.exit(f"{path}: {error.read().decode()}")
            except (OSError, HTTPException) as error:
                print(f"{path}: {error}", file=sys.stderr)
            time.sleep(min(0.2 * 2**attempt, 10))
        sys.exit(f"{path}: no answer")

    def register(self, **registration):
        consent = {"default": "allow", "rules": []}
        self.request("PUT", f"/v1/agents/{self.agent}", {"consent": consent, **registration}).close()
        self.is_registered = True

    def send(self, negotiation, payload, **envelope):
        """Sends an act; the answer says under which id the exchange knows the negotiation."""
        self.seq += 1
        envelope = {"msg_id": uuid.uuid4().hex, "ts": datetime.now(timezone.utc).isoformat(),
                    "from": f"agent://{self.agent}", "negotiation": negotiation, "seq": self.seq, **envelope}
        with self.request("POST", "/v1/messages", {"envelope": envelope, "payload": payload}) as answer:
            return json.load(answer)

    def reply(self, delivery, payload):
        envelope = delivery["envelope"]
        return self.send(envelope["negotiation"], payload, in_reply_to=envelope["msg_id"])

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
                print(error, file=sys.stderr)
            for _ in ids:
                self.handled.task_done()

    def inbox(self):
        """Every delivery once, acknowledged when the next one is asked for; the last one is the caller's to acknowledge."""
        seen = {}  # oldest first
        while True:
            try:
                for line in self.request("GET", "/v1/inbox"):
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
                print(f"inbox: {error}", file=sys.stderr)
                time.sleep(1)
