"""What agents receive: one type for each act of the exchange, and the envelope around it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal

from llmx.codec import Reader, UnreadableError, reader
from llmx.documents import AuctionRules, BargainRules, CallDocuments, Predicate, Routine, Terms

Disposition = Literal[
    "ok",
    "duplicate",
    "late",
    "expired",
    "stale_round",
    "out_of_turn",
    "malformed",
    "conflict",
    "stale_seq",
    "unauthorized",
    "closed",
    "policy_reject",
    "rate_limited",
    "committed",
    "revoked",
    "mandate_violation",
]
"""What became of a message that is in the log."""

Outcome = Literal[
    "completed",
    "no_offers",
    "incomplete",
    "no_candidate",
    "timeout",
    "cancelled",
    "aborted",
    "agreement",
    "no_agreement",
    "ended",
    "concluded",
    "unconcluded",
    "not_formed",
    "consensus",
    "plurality",
    "no_answer",
    "reserve_not_met",
]
"""How a negotiation ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BargainCall:
    """Parties of a bargain in the order of their turns, the initiator first, and the rules."""

    parties: tuple[str, ...]
    rules: BargainRules


@dataclass(frozen=True, slots=True, kw_only=True)
class AuctionCall:
    """Rules of an English auction. Bidding ends at `latest_by` at the latest."""

    rules: AuctionRules
    latest_by: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call for proposals, deadlines made absolute.

    With `bargain`, `reply_by` is when all must have joined, with `auction` when bidding ends.
    """

    act: ClassVar[Literal["cfp"]] = "cfp"
    round: int
    reply_by: datetime
    ends_by: datetime
    policy: str
    policy_digest: str
    lots: int
    task: str | None = None
    requires: tuple[str, ...] | None = None
    constraints: Terms | None = None
    currency: str | None = None
    documents: CallDocuments | None = None
    bargain: BargainCall | None = None
    auction: AuctionCall | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCall:
    """A call of a protocol that the package takes no part in: to a team, or what a panel asks. `Agent` refuses it at once."""

    protocol: Literal["team", "panel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Award:
    """An award, to be confirmed in time."""

    act: ClassVar[Literal["accept"]] = "accept"
    offer_id: str
    lot: int
    award_no: int
    terms: Terms
    terms_digest: str
    confirm_by: datetime
    payment: int | None = None
    document: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """An offer is out of the running."""

    act: ClassVar[Literal["reject"]] = "reject"
    reason: Literal["outscored", "late", "replaced", "expired", "policy", "cancelled", "awarded", "round", "withdrawn"]
    offer_id: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """An award is taken back."""

    act: ClassVar[Literal["cancel"]] = "cancel"
    award_no: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Awarded:
    """To the initiator: an award is registered."""

    act: ClassVar[Literal["inform"]] = "inform"
    kind: ClassVar[Literal["awarded"]] = "awarded"
    offer_id: str
    contractor: str
    lot: int
    award_no: int
    terms: Terms
    score: int
    reason: Literal["score_at_least", "k_valid", "all_responded", "window", "deadline"]
    complete: bool
    offers: int
    decision: str
    payment: int | None = None
    document: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredOffer:
    """One offer to choose from."""

    offer_id: str
    contractor: str
    terms: Terms
    score: int
    document: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """To the initiator that decides itself: all valid offers. One is to be accepted by `decide_by`."""

    act: ClassVar[Literal["inform"]] = "inform"
    kind: ClassVar[Literal["offers"]] = "offers"
    offers: tuple[ScoredOffer, ...]
    decide_by: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingBid:
    """To an auction's initiator and bidders: the bid that stands. `next_price` is what the next one must reach."""

    act: ClassVar[Literal["inform"]] = "inform"
    kind: ClassVar[Literal["bid"]] = "bid"
    bid_no: int
    price: int
    leads: bool
    bidders: int
    reply_by: datetime
    next_price: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """To the initiator: what a contractor said of its award."""

    act: ClassVar[Literal["inform"]] = "inform"
    kind: Literal["committed", "done", "result", "cancelled"]
    contractor: str
    award_no: int
    lot: int
    result: str | None = None
    routine: Routine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractorFailure:
    """To the initiator: a contractor failed."""

    act: ClassVar[Literal["failure"]] = "failure"
    contractor: str
    award_no: int
    phase: Literal["offer", "perform", "decommit", "cannot_cancel"]
    code: str
    retryable: bool
    penalty: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Misunderstanding:
    """The exchange could not follow a message of ours."""

    act: ClassVar[Literal["not_understood"]] = "not_understood"
    reason: str
    expected: tuple[str, ...]
    pointer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """What a bargain agreed on."""

    offer_id: str
    by: str
    terms: Terms
    terms_digest: str
    round: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """The negotiation ended."""

    act: ClassVar[Literal["closed"]] = "closed"
    outcome: Outcome
    digest: str
    detail: str | None = None
    agreement: Agreement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of a message of ours."""

    act: ClassVar[Literal["ack"]] = "ack"
    ack_of: str
    disposition: Disposition
    first: Disposition | None = None
    offer_id: str | None = None
    invited: int | None = None
    left_out: int | None = None
    award_no: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The offer of a bargain that stands."""

    offer_id: str
    by: str
    terms: Terms
    terms_digest: str
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    conditions: tuple[Predicate, ...] | None = None
    accepted_by: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """How a bargain stands, and whose turn it is."""

    act: ClassVar[Literal["turn"]] = "turn"
    party: str
    round: int
    step: int
    act_by: datetime
    ends_by: datetime
    t_ppm: int
    standing: Standing | None = None


Notification = (
    Call
    | OtherCall
    | Award
    | Rejection
    | Cancellation
    | Awarded
    | Offers
    | StandingBid
    | Report
    | ContractorFailure
    | Misunderstanding
    | Closing
    | Receipt
    | Turn
)
"""Whatever the exchange may say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RiddenReceipt:
    """A receipt that says no more than `ok` and comes with another delivery."""

    ack_of: str
    disposition: Literal["ok"]
    offer_id: str | None = None


@dataclass(frozen=True, slots=True)
class DeliveryEnvelope:
    """From whom a delivery is, in which negotiation. `msg_id` is the delivery's id, the same on every repeat."""

    msg_id: str
    ts: datetime
    sender: str
    negotiation: str
    in_reply_to: str | None
    traceparent: str | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery, and the receipts that came with it."""

    envelope: DeliveryEnvelope
    payload: Notification
    receipts: tuple[RiddenReceipt, ...] = ()

    @property
    def negotiation(self) -> str:
        """The negotiation it belongs to."""
        return self.envelope.negotiation


_BY_ACT: Mapping[str, Any] = {
    "cfp": Call,
    "accept": Award,
    "reject": Rejection,
    "cancel": Cancellation,
    "failure": ContractorFailure,
    "not_understood": Misunderstanding,
    "closed": Closing,
    "ack": Receipt,
    "turn": Turn,
}
_BY_KIND: Mapping[str, Any] = {"awarded": Awarded, "offers": Offers, "bid": StandingBid}

_text: Reader = reader(str)
_time: Reader = reader(datetime)
_receipts: Reader = reader(tuple[RiddenReceipt, ...])


def read_delivery(document: Any) -> Delivery:
    """Reads a delivery.

    Raises `UnreadableError` for one that this version does not know.
    """
    try:
        envelope, payload = document["envelope"], document["payload"]
        read = DeliveryEnvelope(
            msg_id=_text(envelope["msg_id"], "/envelope/msg_id"),
            ts=_time(envelope["ts"], "/envelope/ts"),
            sender=_text(envelope["from"], "/envelope/from").partition("://")[2],
            negotiation=_text(envelope["negotiation"], "/envelope/negotiation"),
            in_reply_to=envelope.get("in_reply_to"),
            traceparent=envelope.get("traceparent"),
        )
        act = payload["act"]
        kind = _BY_KIND.get(payload.get("kind"), Report) if act == "inform" else _BY_ACT.get(act)
        is_team = act == "cfp" and payload.get("team") is not None
    except (KeyError, TypeError, AttributeError):
        raise UnreadableError("", "an envelope and a payload with an act") from None
    notification: Notification
    if is_team or act == "ask":
        notification = OtherCall(protocol="team" if is_team else "panel")
    elif kind is None:
        raise UnreadableError("/payload/act", "an act that this version knows")
    else:
        notification = reader(kind)(payload, "/payload")
    ridden = document.get("receipts")
    receipts: tuple[RiddenReceipt, ...] = () if ridden is None else _receipts(ridden, "/receipts")
    return Delivery(read, notification, receipts)
