"""What agents say: one type for each act, and the envelope around it."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal

from llmx.documents import Auction, BargainRules, CallDocuments, Gate, Mandate, Predicate, Routine, Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Cfp:
    """A call for proposals; with `bargain`, to a bargain, with `auction`, to an English auction."""

    act: ClassVar[Literal["cfp"]] = "cfp"
    task: str | None = None
    policy: str | None = None
    reply_within_ms: int | None = None
    reply_by: datetime | None = None
    round: int | None = None
    requires: tuple[str, ...] | None = None
    constraints: Terms | None = None
    gates: tuple[Gate, ...] | None = None
    currency: str | None = None
    documents: CallDocuments | None = None
    bargain: BargainRules | None = None
    mandate: Mandate | None = None
    auction: Auction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An offer of a contractor, or of a party of a bargain."""

    act: ClassVar[Literal["offer"]] = "offer"
    terms: Terms
    currency: str | None = None
    valid_for_ms: int | None = None
    valid_until: datetime | None = None
    valid_from: datetime | None = None
    conditions: str | tuple[Predicate, ...] | None = None
    documents: tuple[str, ...] | None = None
    round: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """A contractor declines a call, or its award."""

    act: ClassVar[Literal["refuse"]] = "refuse"
    reason: str | None = None
    round: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotUnderstood:
    """What was received makes no sense to the sender."""

    act: ClassVar[Literal["not_understood"]] = "not_understood"
    reason: str | None = None
    round: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw:
    """An offer is taken back."""

    act: ClassVar[Literal["withdraw"]] = "withdraw"
    reason: str | None = None
    round: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept:
    """The initiator chooses an offer; a party of a bargain accepts the one that stands."""

    act: ClassVar[Literal["accept"]] = "accept"
    offer_id: str
    terms_digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """The awarded contractor commits; a party confirms an agreement."""

    act: ClassVar[Literal["confirm"]] = "confirm"
    award_no: int
    terms_digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inform:
    """A contractor reports."""

    act: ClassVar[Literal["inform"]] = "inform"
    kind: Literal["done", "result", "cancelled"]
    result: str | None = None
    routine: Routine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A contractor failed."""

    act: ClassVar[Literal["failure"]] = "failure"
    phase: Literal["offer", "perform", "decommit", "cannot_cancel"]
    code: str
    retryable: bool | None = None
    penalty: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """The initiator calls the negotiation off."""

    act: ClassVar[Literal["cancel"]] = "cancel"
    reason: str | None = None
    round: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """An invited party takes part in a bargain."""

    act: ClassVar[Literal["join"]] = "join"
    mandate: Mandate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """A party leaves the bargain, which ends it."""

    act: ClassVar[Literal["end"]] = "end"
    reason: str | None = None
    round: int | None = None


Act = Cfp | Offer | Refuse | NotUnderstood | Withdraw | Accept | Confirm | Inform | Failure | Cancel | Join | End
"""Whatever an agent may say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Consent, lifetime in seconds, and whether topics and groups reach absent agents as well."""

    consent: Literal["opt-in"] = "opt-in"
    ttl: int | None = None
    absent: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAddress:
    """The members of an envelope that only a call has."""

    to: tuple[str, ...]
    capabilities: tuple[str, ...] | None = None
    scope: Scope = Scope()
