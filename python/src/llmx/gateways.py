"""The ways to the exchange: one gateway after the other. None of them holds anything of an agent's."""

import asyncio
import json
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit
from zlib import crc32

import aiohttp

from llmx.backoff import wait_s
from llmx.documents import Registration
from llmx.errors import RefusedError, UnreachableError, refusal
from llmx.limits import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, FRAME_BYTES_MAX, PING_EVERY_S, WAYS_TRIED_MAX
from llmx.token import Token

REQUEST_ATTEMPTS_MAX = 8
"""Most times one HTTP request is made, over all gateways."""

ASK_TIMEOUT_S = 1.0
"""How long an answer is awaited that only makes a log clearer. It is less than `CONNECT_TIMEOUT_S`, which may include it."""

_CODE_BY_UPGRADE = {401: "unauthenticated", 403: "unauthorized", 429: "rate_limited"}

_CODE_BY_CLOSING = {
    "the token has expired": "token_expired",
    "the key that signed the token is trusted no longer": "unauthenticated",
}
"""By the texts of close frames that ask for another token."""


class Connection:
    """One WebSocket to one gateway: JSON text frames both ways."""

    def __init__(self, url: str, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.url = url
        self._socket = socket

    async def send(self, frame: str) -> None:
        """Sends a frame."""
        try:
            await self._socket.send_str(frame)
        except (aiohttp.ClientError, ConnectionError) as error:
            raise UnreachableError(f"{self.url}: {error}") from None

    async def receive(self) -> Any:
        """The next document.

        Raises `TokenRefusedError` when it takes another token from now on, `UnreachableError` when the connection is over for
        another reason; the text says why.
        """
        while True:
            frame = await self._socket.receive()
            if frame.type is aiohttp.WSMsgType.TEXT:
                document = _read(frame.data)
                if isinstance(document, dict):
                    return document
                raise UnreachableError(f"{self.url}: a frame that is no JSON object: is this a gateway?")
            if frame.type in (aiohttp.WSMsgType.PING, aiohttp.WSMsgType.PONG):
                continue
            why = str(frame.extra or frame.data or "the connection was lost")
            if code := _CODE_BY_CLOSING.get(why):
                raise refusal({"code": code, "detail": f"{self.url}: {why}"}, HTTPStatus.UNAUTHORIZED)
            raise UnreachableError(f"{self.url}: {why}")

    async def close(self) -> None:
        """Ends the connection."""
        await self._socket.close()


class Gateways:
    """The gateways of one agent. Agents spread over them by their names; each connection begins one further."""

    def __init__(self, urls: Iterable[str], agent: str, token: Token) -> None:
        self._urls = [url.rstrip("/") for url in ([urls] if isinstance(urls, str) else urls)]
        if not self._urls:
            raise ValueError("give the address of at least one gateway")
        for url in self._urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.netloc:
                raise ValueError(f"{url!r} is no address of a gateway: give http://HOST:PORT")
        self._turn = crc32(agent.encode())
        self._instance = secrets.token_hex(8)
        self._token = token
        self._presented = ""
        """The token of the latest attempt to connect."""
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Gateways":
        self._http = aiohttp.ClientSession()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.close()

    def named(self, registration: Registration) -> Registration:
        """A registration that tells its process from another one of the same agent, which then cannot take it away."""
        return replace(registration, instance=registration.instance or self._instance)

    async def connect(self) -> Connection:
        """Opens a stream at the first gateway that answers.

        Raises a final `RefusedError`, which every gateway would repeat, or the last error when none lets the agent in, and
        `TokenUnavailableError` where there is no token to show them.
        """
        self._presented = await self._token.current()
        last: Exception = UnreachableError("no gateway was tried")
        for _ in range(min(len(self._urls), WAYS_TRIED_MAX)):
            url = self._urls[self._turn % len(self._urls)]
            self._turn += 1
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    return await self._connect_to(url)
            except TimeoutError:
                last = UnreachableError(f"{url}: no connection within {CONNECT_TIMEOUT_S} s")
            except UnreachableError as error:
                last = error
            except RefusedError as error:
                if not error.can_pass:
                    raise
                last = error
        raise last

    async def _connect_to(self, url: str) -> Connection:
        try:
            socket = await self._session().ws_connect(
                f"{url}/v1/ws",
                headers={"Authorization": f"Bearer {self._presented}"},
                heartbeat=PING_EVERY_S,
                max_msg_size=FRAME_BYTES_MAX,
                timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
            )
        except aiohttp.WSServerHandshakeError as error:
            # The handshake's body is not kept; the same question as a request has one.
            raise await self._why_refused(url, error) from None
        except (aiohttp.ClientError, OSError) as error:
            raise UnreachableError(f"{url}: {error}") from None
        return Connection(url, socket)

    async def _why_refused(self, url: str, error: aiohttp.WSServerHandshakeError) -> Exception:
        try:
            await self._request_at(url, "GET", "/v1/whoami", None)
        except (RefusedError, UnreachableError) as why:
            return why
        why_unready = await self._why_unready(url) if error.status == HTTPStatus.SERVICE_UNAVAILABLE else None
        detail = why_unready or error.message
        return refusal({"detail": detail, "code": _CODE_BY_UPGRADE.get(error.status)}, error.status)

    async def _why_unready(self, url: str) -> str | None:
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                await self._request_at(url, "GET", "/readyz", None, has_token=False)
        except RefusedError as why:
            return why.detail if why.status == HTTPStatus.SERVICE_UNAVAILABLE else None
        except (UnreachableError, TimeoutError):
            return None
        return None

    async def has_token_of_before(self) -> bool:
        """Whether the next attempt to connect would show the same token as the latest, as far as can be told."""
        return await self._token.is_still(self._presented)

    async def ask(self, path: str) -> Any:
        """What the gateway that is next in turn answers; None when it refuses, or does not answer soon."""
        url = self._urls[self._turn % len(self._urls)]
        with suppress(RefusedError, UnreachableError, TimeoutError):
            async with asyncio.timeout(ASK_TIMEOUT_S):
                return await self._request_at(url, "GET", path, None)
        return None

    async def request(self, method: str, path: str, body: Any = None, *, url: str | None = None) -> Any:
        """One HTTP request, at a gateway or at whichever answers. What could not be answered is repeated byte for byte.

        Raises `RefusedError`, or `UnreachableError` when no gateway answers.
        """
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        last: Exception = UnreachableError("no gateway was tried")
        for attempt in range(1, REQUEST_ATTEMPTS_MAX + 1):
            at = url or self._urls[(self._turn + attempt - 2) % len(self._urls)]
            said_ms = None
            try:
                return await self._request_at(at, method, path, data)
            except UnreachableError as error:
                last = error
            except RefusedError as error:
                if not error.can_pass:
                    raise
                last, said_ms = error, error.retry_after_ms
            if attempt < REQUEST_ATTEMPTS_MAX:
                await asyncio.sleep(wait_s(attempt, 0.1, 5.0, said_ms))
        raise last

    async def _request_at(self, url: str, method: str, path: str, data: bytes | None, *, has_token: bool = True) -> Any:
        headers = {**(await self._headers() if has_token else {}), "Content-Type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)
        try:
            # A redirect would send the token elsewhere.
            request = self._session().request(
                method, url + path, data=data, headers=headers, timeout=timeout, allow_redirects=False
            )
            async with request as response:
                text = await response.text(errors="replace")
                status, retry_after = response.status, response.headers.get("Retry-After", "")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise UnreachableError(f"{url}: {error or type(error).__name__}") from None
        document = _read(text)
        if 200 <= status < 300:
            return document
        raise refusal(document, status, int(retry_after) * 1000 if retry_after.isdigit() else None)

    async def _headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {await self._token.current()}"}

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            raise UnreachableError("the agent does not run")
        return self._http


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
