"""Running an agent until it is asked to end."""

import asyncio
import logging
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from llmx.agent import Agent, Participant
from llmx.errors import LlmxError
from llmx.token import TokenSource

logger = logging.getLogger("llmx")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Those that ask an agent to end."""


def run(
    participant: Participant,
    *,
    gateways: str | Iterable[str],
    token: TokenSource | None = None,
    token_file: str | Path | None = None,
) -> None:
    """Runs until Ctrl-C or SIGTERM, then ends cleanly; a second signal ends at once, with exit code 1.

    Raises `RefusedError` when the exchange refuses the agent, `UnreachableError` when it stays out of reach.
    """
    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    agent = Agent(participant, gateways=gateways, token=token, token_file=token_file)
    try:
        asyncio.run(serve(agent))
    except LlmxError as error:
        # The message says it; thirty lines of this package and the event loop above it would hide it.
        raise error.with_traceback(None) from None
    except (asyncio.CancelledError, KeyboardInterrupt):
        # The log says what is left undone.
        raise SystemExit(1) from None


async def serve(agent: Agent) -> None:
    """Runs an agent until SIGINT or SIGTERM, or until it ends by itself. A second signal cancels it, which ends it at once."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    serving = asyncio.current_task()

    def handle_signal() -> None:
        if asked.is_set() and serving is not None:
            if not serving.cancelling():
                _log_end_at_once(agent)
            serving.cancel()
        asked.set()

    for number in SIGNALS:
        with suppress(NotImplementedError):  # Windows: Ctrl-C raises KeyboardInterrupt, which ends at once.
            loop.add_signal_handler(number, handle_signal)
    waiting = asyncio.create_task(asked.wait())
    try:
        starting = asyncio.create_task(agent.start())
        await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return
        starting.result()
        ending = asyncio.create_task(agent.wait())
        await asyncio.wait({ending, waiting}, return_when=asyncio.FIRST_COMPLETED)
        failure = ending.exception() if ending.done() else None
        ending.cancel()
        await agent.end()
        if failure is not None:
            raise failure
    except asyncio.CancelledError:
        if not asked.is_set():
            _log_end_at_once(agent)
        await agent.abort()
        raise
    finally:
        waiting.cancel()
        for number in SIGNALS:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)


def _log_end_at_once(agent: Agent) -> None:
    logger.warning("%s: ends at once; left undone: %s", agent.participant.name, agent.left_undone())
