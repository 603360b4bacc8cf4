"""Running an agent until it is asked to end."""

import asyncio
import logging
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from llmx.agent import Agent, Participant
from llmx.errors import LlmxError, TokenUnavailableError
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

    What keeps the agent from running ends the program with one line on stderr: with exit code 2 where address, id or token are
    at fault, with 1 when the exchange refuses the agent or stays out of reach. `serve` raises it instead.
    """
    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        agent = Agent(participant, gateways=gateways, token=token, token_file=token_file)
    except ValueError as error:
        raise _ended(participant, error, 2) from None
    try:
        asyncio.run(serve(agent))
    except LlmxError as error:
        raise _ended(participant, error, 2 if isinstance(error, TokenUnavailableError) else 1) from None
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


def _ended(participant: Participant, error: Exception, code: int) -> SystemExit:
    """The end of a program that says why: a traceback would hide it."""
    sys.stderr.write(f"{participant.name}: {error}\n")
    return SystemExit(code)


def _log_end_at_once(agent: Agent) -> None:
    logger.warning("%s: ends at once; left undone: %s", agent.participant.name, agent.left_undone())
