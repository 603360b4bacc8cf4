"""Where an agent's token comes from. It is asked for at every connection, so that it can be renewed while the agent runs."""

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from llmx.errors import TokenFileError, TokenUnavailableError
from llmx.limits import TOKEN_TIMEOUT_S

TokenSource = str | Callable[[], str | Awaitable[str]]
"""A token that stays the same, or what returns the one to use now. What blocks must be asynchronous."""


@dataclass(frozen=True, slots=True)
class Token:
    """A source of tokens. It never shows one."""

    source: TokenSource = field(repr=False)
    place: str = "the function that gives the token"
    """Where a renewed one would be, in words."""

    @staticmethod
    def from_file(path: str | Path) -> "Token":
        """A token in a file, read again whenever one is needed.

        Asking for it raises `TokenFileError` where the file holds none.
        """
        return Token(lambda: _read(Path(path)), f"the token file {path}")

    @property
    def is_renewed(self) -> bool:
        """Whether another token may come: then one that is refused is no reason to give up."""
        return not isinstance(self.source, str)

    async def current(self) -> str:
        """The token to use now.

        Raises `TokenUnavailableError` when the source gives none.
        """
        if isinstance(self.source, str):
            return self.source.strip()
        try:
            async with asyncio.timeout(TOKEN_TIMEOUT_S):
                token = self.source()
                token = await token if inspect.isawaitable(token) else token
        except TokenUnavailableError:
            raise
        except TimeoutError:
            raise TokenUnavailableError(f"{self.place} gave none within {TOKEN_TIMEOUT_S} s") from None
        except Exception as error:
            raise TokenUnavailableError(f"{self.place} failed: {type(error).__name__}: {error}") from error
        if isinstance(token, str) and is_token(token):
            return token.strip()
        given = "a text that is none" if isinstance(token, str) else type(token).__name__
        raise TokenUnavailableError(f"{self.place} gave {given}; expected a token, as `llmx token AGENT` prints one")

    async def is_still(self, token: str) -> bool:
        """Whether the token to use now is this one, or none."""
        try:
            return await self.current() == token
        except TokenUnavailableError:
            return True


def _read(path: Path) -> str:
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TokenFileError(f"the token file {path} cannot be read: {error}") from error
    if not token:
        raise TokenFileError(f"the token file {path} is empty; `llmx token AGENT > {path}` writes one")
    return token


def is_token(text: str) -> bool:
    """Whether a text can be a token: printable characters in one word, and space only around it."""
    return re.fullmatch("[!-~]+", text.strip()) is not None


def token_of(token: TokenSource | None, token_file: str | Path | None) -> Token:
    """The token an agent was given one way or the other."""
    if isinstance(token, str) and not is_token(token):
        raise ValueError("the token is empty, or has characters that no token has; `llmx token AGENT` prints one")
    if token is not None and token_file is None:
        return Token(token)
    if token_file is not None and token is None:
        return Token.from_file(token_file)
    raise ValueError("give `token` or `token_file`, and not both")
