"""What handlers return. It is checked where their own exceptions are caught, so that both end alike."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from llmx.codec import UnsendableError, check_sendable

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


async def run_on_close(agent: str, negotiation: str, closing: Awaitable[None]) -> None:
    """Runs `on_close`, which answers nothing; where it fails, that is logged."""
    try:
        await closing
    except (Exception, asyncio.CancelledError) as error:
        if is_cancelled(error):
            raise
        logger.exception("%s: `on_close` failed in %s", agent, negotiation)


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
            answer = await handler(asked)
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
