"""What handlers return. It is checked where their own exceptions are caught, so that both end alike."""

import asyncio
import logging
import time
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from llmx.codec import UnsendableError, check_sendable
from llmx.limits import BLOCKED_S

logger = logging.getLogger("llmx")

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Otherwise = TypeVar("Otherwise")


class ReturnedError(TypeError):
    """A handler has returned what it may not return. The message says it all: no traceback leads to the handler."""


def is_cancelled(error: BaseException) -> bool:
    """Whether it is the present task that ends, and not only something that a handler waited for."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


@types.coroutine
def watched(
    named: str, agent: str, handler: Callable[..., Awaitable[Answer]], *asked: object
) -> Generator[Any, Any, Answer]:
    """Runs a handler. One that does not let go of the event loop is named, as soon as it has."""

    async def run() -> Answer:
        return await handler(*asked)

    steps = run()
    step: Callable[[Any], Any] = steps.send
    value: Any = None
    while True:
        began = time.monotonic()
        try:
            waits_for = step(value)
        except StopIteration as ended:
            answer: Answer = ended.value
            return answer
        finally:
            took_s = time.monotonic() - began
            if took_s >= BLOCKED_S:
                logger.warning(
                    "%s: %s (%s) held everything else up for %.1f s: await what takes long, or give it to "
                    "`asyncio.to_thread`",
                    agent,
                    named,
                    getattr(handler, "__qualname__", handler),
                    took_s,
                )
        try:
            step, value = steps.send, (yield waits_for)
        except BaseException as error:  # noqa: BLE001  The handler's own, where it waits.
            step, value = steps.throw, error


def run_notified(
    named: str, agent: str, negotiation: str, handler: Callable[[str, Asked], Awaitable[None]] | None, what: Asked
) -> Coroutine[Any, Any, None] | None:
    """Runs a handler that answers nothing, if there is one; where it fails, that is logged."""
    if handler is None:
        return None

    async def run() -> None:
        try:
            await watched(named, agent, handler, negotiation, what)
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled(error):
                raise
            logger.exception("%s: %s failed in %s", agent, named, negotiation)

    return run()


def itself(answer: object) -> object:
    """The message for an answer that is one."""
    return answer


@dataclass(frozen=True, slots=True)
class Returns:
    """What one handler may return."""

    handler: str
    kinds: tuple[type, ...]
    remedy: str
    message: Callable[[Any], object] = itself
    """What is sent because of an answer; None: nothing."""

    def check(self, answer: object) -> None:
        """Raises `ReturnedError` for an answer of another kind, and for one that no message can carry."""
        if not isinstance(answer, self.kinds):
            raise ReturnedError(f"{self.handler} returned {type(answer).__name__}; {self.remedy}")
        message = self.message(answer)
        if message is None:
            return
        try:
            check_sendable(message)
        except UnsendableError as error:
            raise ReturnedError(f"{self.handler} returned {type(answer).__name__}: {error}") from None

    async def answer(
        self,
        agent: str,
        negotiation: str,
        handler: Callable[[Asked], Awaitable[Answer]],
        asked: Asked,
        otherwise: Otherwise,
    ) -> Answer | Otherwise:
        """What a handler answers; where it raises, or returns what it may not, that is logged and `otherwise` holds."""
        try:
            answer = await watched(self.handler, agent, handler, asked)
            self.check(answer)
        except ReturnedError as error:
            logger.error("%s: in %s: %s", agent, negotiation, error)
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled(error):
                raise
            logger.exception("%s: %s failed in %s", agent, self.handler, negotiation)
        else:
            return answer
        return otherwise
