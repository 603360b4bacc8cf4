"""What can go wrong, as types. A refusal carries the problem document (RFC 9457) of the gateway."""

from collections.abc import Mapping
from typing import Any


class LlmxError(Exception):
    """Anything this package raises on purpose."""


class UnreachableError(LlmxError):
    """No gateway could be reached, or the connection broke."""


class TokenUnavailableError(LlmxError):
    """There is no token to use now: the function that gives it failed, or took too long."""


class TokenFileError(TokenUnavailableError):
    """The file of an agent's token cannot be read, or is empty."""


class UnansweredError(LlmxError):
    """Nobody has answered a message: it may or may not be in the log."""


class OverloadedError(LlmxError):
    """A bound of this agent is reached; the message names it. Nothing was sent."""


class EndedError(LlmxError):
    """The agent has ended, or ends."""


class TurnedDownError(LlmxError):
    """A call is in the log, but the exchange did not open it."""

    def __init__(self, disposition: str) -> None:
        super().__init__(f"the exchange did not open the call: {disposition}")
        self.disposition = disposition


class RefusedError(LlmxError):
    """The exchange refuses. `code` never changes its meaning; `pointer` leads to the fault, `expected` says what fits."""

    def __init__(
        self,
        code: str,
        *,
        title: str = "",
        status: int = 0,
        detail: str = "",
        pointer: str | None = None,
        expected: str | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        self.code = code
        self.title = title
        self.status = status
        self.detail = detail
        self.pointer = pointer
        self.expected = expected
        self.retry_after_ms = retry_after_ms
        place = f" (at {pointer})" if pointer else ""
        wanted = f"; expected: {expected}" if expected else ""
        super().__init__(f"{code}: {detail or title}{place}{wanted}")

    @property
    def can_pass(self) -> bool:
        """Whether the same request can succeed later: it is not at fault."""
        return self.code in CAN_PASS

    @property
    def is_certain(self) -> bool:
        """Whether what was refused is not in the log."""
        return self.code in NOT_STORED or not self.can_pass


class TokenRefusedError(RefusedError):
    """The token is refused: another one may not be."""


class ForbiddenError(RefusedError):
    """It is not this agent's to do, or nobody consents."""


class NotFoundError(RefusedError):
    """It does not exist, or not for this agent."""


class ConflictError(RefusedError):
    """The id was used for something else, which stands."""


class InvalidMessageError(RefusedError):
    """The document is at fault; `pointer` leads to the member."""


class RateLimitedError(RefusedError):
    """Too many requests."""


class UnavailableError(RefusedError):
    """The exchange could not do it now."""


NOT_STORED = frozenset({"rate_limited", "request_timeout", "unavailable", "overloaded"})
"""Codes of refusals that can pass and leave nothing behind; of the others nobody knows."""

CAN_PASS = frozenset({"rate_limited", "request_timeout", "log_unavailable", "unavailable", "overloaded", "internal"})

_CODE_BY_STATUS = {401: "unauthenticated", 403: "unauthorized", 404: "not_found", 429: "rate_limited", 500: "internal"}

_KIND_BY_STATUS: Mapping[int, type[RefusedError]] = {
    401: TokenRefusedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    429: RateLimitedError,
}


def refusal(problem: Any, status: int = 0, retry_after_ms: int | None = None) -> RefusedError:
    """The error for a problem document. What is no such document is judged by its status."""
    members = problem if isinstance(problem, dict) else {}
    stated = members.get("status")
    status = stated if isinstance(stated, int) else status
    known = members.get("code")
    code = known if isinstance(known, str) else _CODE_BY_STATUS.get(status, _otherwise(status))
    return _kind(status)(
        code,
        title=_text(members, "title") or "",
        status=status,
        detail=_text(members, "detail") or f"refused without a problem document (status {status})",
        pointer=_text(members, "pointer"),
        expected=_text(members, "expected"),
        retry_after_ms=wait if isinstance(wait := members.get("retry_after_ms"), int) else retry_after_ms,
    )


def _otherwise(status: int) -> str:
    return "unavailable" if status > 500 else "not_allowed"


def _kind(status: int) -> type[RefusedError]:
    if status >= 500:
        return UnavailableError
    return _KIND_BY_STATUS.get(status, InvalidMessageError)


def _text(members: Mapping[str, Any], name: str) -> str | None:
    value = members.get(name)
    return value if isinstance(value, str) else None
