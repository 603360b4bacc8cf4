"""A gateway's faults: between an agent and a gateway, deliveries come twice and late, and what passes is remembered."""

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp import WSMsgType, web

DOUBLED = 0.3
"""Share of deliveries that come twice."""
DELAY_S_MAX = 0.02
"""Longest delay of a frame."""


class FaultyWay:
    """A port in front of one gateway. Frames of one direction keep their order, as on one connection."""

    def __init__(self, upstream: str, port: int, draw: random.Random) -> None:
        self.upstream = upstream
        self.url = f"http://127.0.0.1:{port}"
        self.sent: list[dict[str, Any]] = []
        """Messages of the agent, repeats included."""
        self.delivered: list[dict[str, Any]] = []
        self.ack_frames: list[int] = []
        """How many ids each acknowledgement had."""
        self.on_frame: Callable[[str, dict[str, Any]], None] = lambda direction, frame: None
        self.open = 0
        """Streams that are open."""
        self._port = port
        self._draw = draw
        self._runner: web.AppRunner | None = None
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "FaultyWay":
        app = web.Application()
        app.router.add_get("/v1/ws", self._stream)
        app.router.add_route("*", "/{path:.*}", self._request)
        self._http = aiohttp.ClientSession()
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._http is not None:
            await self._http.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _request(self, request: web.Request) -> web.StreamResponse:
        assert self._http is not None
        headers = {name: request.headers[name] for name in ("Authorization", "Content-Type") if name in request.headers}
        url, body = self.upstream + request.path_qs, await request.read()
        try:
            async with self._http.request(request.method, url, data=body, headers=headers) as answer:
                return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)
        except aiohttp.ClientError:
            return self._cut(request)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        assert self._http is not None
        headers = {"Authorization": request.headers.get("Authorization", "")}
        try:
            upstream = await self._http.ws_connect(self.upstream + "/v1/ws", headers=headers)
        except aiohttp.ClientError:
            return self._cut(request)
        downstream = web.WebSocketResponse()
        await downstream.prepare(request)
        self.open += 1
        pumps = [
            asyncio.create_task(self._pump("up", downstream, upstream)),
            asyncio.create_task(self._pump("down", upstream, downstream)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.open -= 1
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            await upstream.close()
            self._cut(request)
        return downstream

    async def _pump(self, direction: str, source: Any, target: Any) -> None:
        async for frame in source:
            if frame.type is not WSMsgType.TEXT:
                return
            document = json.loads(frame.data)
            self._note(direction, document)
            await asyncio.sleep(self._draw.random() * DELAY_S_MAX)
            self.on_frame(direction, document)
            await target.send_str(frame.data)
            if document["type"] == "delivery" and self._draw.random() < DOUBLED:
                await asyncio.sleep(self._draw.random() * DELAY_S_MAX)
                await target.send_str(frame.data)

    def _note(self, direction: str, document: dict[str, Any]) -> None:
        if direction == "up" and document["type"] == "message":
            self.sent.append(document["message"])
        elif direction == "up":
            self.ack_frames.append(len(document["delivery_ids"]))
        elif document["type"] == "delivery":
            self.delivered.append(document["delivery"])

    def _cut(self, request: web.Request) -> web.StreamResponse:
        """A dead gateway says nothing."""
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=502)
