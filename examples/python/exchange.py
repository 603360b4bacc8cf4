"""What every agent does, with the standard library alone: requests that are repeated until answered, `seq`, inbox.

Copy it beside your agent. `Exchange` is one agent's access to a gateway.
"""
import json, sys, time, uuid
from datetime import datetime, timezone
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

REMEMBERED_MAX = 100_000  # delivery ids: a delivery may come more than once


class Exchange:
    def __init__(self, url, agent, token):
        self.url, self.agent, self.token = url, agent, token
        self.seq = time.time_ns() // 1000  # rises from message to message, and from start to start

    def request(self, method, path, body=None):
        """One request. What the exchange could not answer is repeated byte for byte: nothing counts twice."""
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        for attempt in range(8):
            try:
                return urlopen(Request(self.url + path, data, headers, method=method), timeout=60)
            except HTTPError as error:
                if error.code < 500 and error.code != 429:
                    sys.exit(f"{path}: {error.read().decode()}")
            except (URLError, OSError) as error:
                print(f"{path}: {error}", file=sys.stderr)
            time.sleep(min(0.2 * 2**attempt, 10))
        sys.exit(f"{path}: no answer")

    def register(self, **registration):
        consent = {"default": "allow", "rules": []}
        self.request("PUT", f"/v1/agents/{self.agent}", {"consent": consent, **registration}).close()

    def leave(self):
        self.request("DELETE", f"/v1/agents/{self.agent}").close()

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

    def inbox(self):
        """Every delivery once, acknowledged when the loop asks for the next one."""
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
                    self.request("POST", "/v1/acks", {"delivery_ids": [delivery_id]}).close()
                    while len(seen) > REMEMBERED_MAX:
                        seen.pop(next(iter(seen)))
            except (OSError, HTTPException) as error:  # the stream broke: connect again
                print(f"inbox: {error}", file=sys.stderr)
                time.sleep(1)
