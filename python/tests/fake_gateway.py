"""A gateway without an exchange: it says what a test tells it to, and remembers what it was told."""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import WSMsgType, web

Answer = dict[str, Any] | None
LOG_TIME = "2026-11-22T12:00:00.000001Z"


class FakeGateway:
    """One gateway on a port of its own. `async with FakeGateway() as gateway`."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        """Every message frame, repeats included."""
        self.frames: list[str] = []
        self.acks: list[list[str]] = []
        self.requests: list[tuple[str, str, Any]] = []
        self.tokens: list[str] = []
        self.sockets: list[web.WebSocketResponse] = []
        self.answer: Callable[[dict[str, Any]], Answer] = self.accept
        self.refuse_token: Callable[[str], bool] = lambda _: False
        self.registered: str | None = None
        """The instance that is registered, as the exchange has it."""
        self.answers: dict[str, dict[str, Any]] = {}
        """What a GET of a path gives."""
        self.unready: Callable[[], Awaitable[web.Response]] | None = None
        """What `/readyz` says while no stream is let in."""
        self.changed = asyncio.Event()
        self._seq = 0
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> "FakeGateway":
        app = web.Application()
        app.router.add_get("/v1/ws", self._stream)
        app.router.add_route("*", "/v1/{path:.*}", self._request)
        app.router.add_get("/readyz", self._ready)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        server: Any = site._server
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Dies: every stream is cut, and nothing listens any more."""
        for socket in self.sockets:
            if socket._req is not None and socket._req.transport is not None:
                socket._req.transport.abort()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def until(self, is_so: Callable[[], bool], timeout_s: float = 15.0) -> None:
        """Waits until what has come satisfies a test."""
        async with asyncio.timeout(timeout_s):
            while not is_so():
                self.changed.clear()
                await self.changed.wait()

    async def deliver(self, payload: dict[str, Any], **options: Any) -> str:
        """Sends a delivery over the latest stream; its id."""
        document = delivery(payload, **options)
        await self.send({"type": "delivery", "delivery": document})
        delivery_id: str = document["envelope"]["msg_id"]
        return delivery_id

    async def send(self, frame: dict[str, Any]) -> None:
        """Sends a frame over the latest stream."""
        await self.until(lambda: bool(self.sockets))
        await self.sockets[-1].send_str(json.dumps(frame))

    def acked(self) -> set[str]:
        """Every id acknowledged."""
        return {one for ids in self.acks for one in ids}

    def accept(self, frame: dict[str, Any]) -> Answer:
        """Takes every message."""
        self._seq += 1
        envelope = frame["message"]["envelope"]
        named, msg_id = envelope["negotiation"], envelope["msg_id"]
        negotiation = named if "~" in named else f"{envelope['from'].removeprefix('agent://')}~{named}"
        return {
            "type": "accepted",
            "id": frame["id"],
            "seq": self._seq,
            "index": 0,
            "msg_id": msg_id,
            "negotiation": negotiation,
        }

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        refused = self._refused(request)
        if refused is not None:
            return refused
        if self.unready is not None:
            return web.json_response(problem("unavailable", 503), status=503)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.sockets.append(socket)
        await socket.send_str(json.dumps({"type": "hello", "agent": "bob"}))
        self.changed.set()
        async for frame in socket:
            if frame.type is WSMsgType.TEXT:
                self.frames.append(frame.data)
                await self._handle(socket, json.loads(frame.data))
                self.changed.set()
        return socket

    async def _handle(self, socket: web.WebSocketResponse, frame: dict[str, Any]) -> None:
        if frame["type"] == "ack":
            self.acks.append(frame["delivery_ids"])
            return
        self.messages.append(frame["message"])
        answer = self.answer(frame)
        if answer is not None:
            await socket.send_str(json.dumps(answer))

    async def _request(self, request: web.Request) -> web.StreamResponse:
        refused = self._refused(request)
        if refused is not None:
            return refused
        body = await request.json() if request.can_read_body else None
        self.requests.append((request.method, request.path, body))
        self.changed.set()
        if request.path.startswith("/v1/agents/"):
            if request.method == "PUT":
                self.registered = (body or {}).get("instance")
            elif request.method == "DELETE" and request.query.get("instance", self.registered) == self.registered:
                self.registered = None
            elif request.method == "GET" and self.registered is None and request.path not in self.answers:
                return web.json_response(problem("not_found", 404), status=404)
        return web.json_response(self.answers.get(request.path, {}) if request.method == "GET" else {})

    async def _ready(self, _: web.Request) -> web.StreamResponse:
        return await self.unready() if self.unready is not None else web.json_response({"status": "ready"})

    def _refused(self, request: web.Request) -> web.Response | None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.tokens.append(token)
        self.changed.set()
        if not self.refuse_token(token):
            return None
        return web.json_response(problem("token_expired", 401), status=401)


def problem(code: str, status: int, **members: Any) -> dict[str, Any]:
    """A problem document."""
    return {
        "type": f"urn:llmx:problem:{code}",
        "title": "A title",
        "status": status,
        "code": code,
        "detail": "a detail",
        **members,
    }


def refused(frame: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """The refusal of a message frame."""
    return {"type": "refused", "id": frame["id"], "problem": document}


def delivery(
    payload: dict[str, Any],
    *,
    negotiation: str = "alice~job-1",
    delivery_id: str | None = None,
    receipts: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """A delivery document."""
    envelope = {
        "msg_id": delivery_id or secrets.token_hex(16),
        "ts": LOG_TIME,
        "from": "agent://alice",
        "to": ["agent://bob"],
        "negotiation": negotiation,
    }
    document: dict[str, Any] = {"envelope": envelope, "payload": payload}
    return {**document, "receipts": receipts} if receipts is not None else document


def cfp(**members: Any) -> dict[str, Any]:
    """A call that is open for long."""
    return {
        "act": "cfp",
        "task": "carry a parcel",
        "round": 1,
        "reply_by": "2099-01-01T00:00:00Z",
        "ends_by": "2099-01-01T00:01:00Z",
        "policy": "medium@1",
        "policy_digest": "0" * 64,
        "lots": 1,
        **members,
    }


def award(terms: dict[str, Any], award_no: int = 1) -> dict[str, Any]:
    """An award of these terms."""
    return {
        "act": "accept",
        "offer_id": "o1-0",
        "lot": 0,
        "award_no": award_no,
        "terms": terms,
        "terms_digest": "0" * 64,
        "confirm_by": "2099-01-01T00:00:30Z",
    }


def committed(ack_of: str, award_no: int = 1) -> dict[str, Any]:
    """The receipt of a confirmation that binds."""
    return {"act": "ack", "ack_of": ack_of, "disposition": "committed", "award_no": award_no}


def closed(outcome: str = "completed") -> dict[str, Any]:
    """The end."""
    return {"act": "closed", "outcome": outcome, "digest": "0" * 64}
