"""Documents that messages carry, or that are kept at a gateway: registrations, groups, bargains, mandates, policies."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Attribute = int | str
"""The value of one attribute. Money is an integer number of micro-units, a duration one of milliseconds."""

Terms = Mapping[str, Attribute]
"""Attributes by name; `price` is an integer."""

Protocol = Literal["contract_net", "alternating_offers", "team", "panel", "english_auction"]
"""What a call may open. The package itself takes part in all but teams and panels."""

Effect = Literal["allow", "deny", "ask"]
Comparison = Literal["eq", "ne", "lt", "le", "gt", "ge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentRule:
    """Whose calls, to what, and through which topic; a member that is left out matches everything."""

    effect: Effect
    topic: str | None = None
    counterpart: str | None = None
    protocol: Protocol | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """Whose calls an agent takes. The first rule that matches decides, otherwise the default, otherwise nobody's."""

    default: Effect | None = None
    rules: tuple[ConsentRule, ...] | None = None


EVERYBODY = Consent(default="allow")
"""Takes every call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """An agent as it registers itself. Searches read `description` and `tags`; `instance` names the process."""

    capabilities: tuple[str, ...] | None = None
    topics: tuple[str, ...] | None = None
    consent: Consent | None = None
    lease_ms: int | None = None
    durable: bool | None = None
    receipts: Literal["exceptions", "all"] | None = None
    description: str | None = None
    kind: Literal["human", "thing"] | None = None
    tags: tuple[str, ...] | None = None
    visibility: Literal["listed", "consented", "hidden"] | None = None
    instance: str | None = None
    """The process that registers; drawn where none is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A named subset of agents."""

    id: str
    members: tuple[str, ...]
    qos: Literal["at_least_once", "best_effort"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicate:
    """What must hold of one attribute. Of an absent one, or one of another kind than the value, only `ne` holds."""

    attr: str
    op: Comparison
    value: Attribute


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """What is bargained about: a name and its values, or every integer from `min` to `max`."""

    name: str
    values: tuple[Attribute, ...] | None = None
    min: int | None = None
    max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BargainRules:
    """The rules of a bargain. `rounds` or `deadline_ms` bounds it."""

    issues: tuple[Issue, ...]
    rounds: int | None = None
    deadline_ms: int | None = None
    step_ms: int | None = None
    confirm_ms: int | None = None
    forbid_repeat: bool | None = None
    max_strikes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BidExtension:
    """A bid less than `ms` before the end moves the end to `ms` after it, `latest_within_ms` after the call at the latest."""

    ms: int
    latest_within_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuctionRules:
    """The rules of an English auction that bidders are told. Prices are in micro-units; `step` or `step_permille` is one."""

    direction: Literal["ascending", "descending"]
    """`ascending`: the initiator sells, prices rise; `descending`: it buys, prices fall."""
    start: int
    step: int | None = None
    step_permille: int | None = None
    quiet_ms: int | None = None
    extend: BidExtension | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Auction(AuctionRules):
    """An English auction as its call opens it. The exchange tells nobody the reserve."""

    reserve: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueWorth:
    """What one issue contributes: the worth of each listed value, or of both ends of a range. Parts per million."""

    issue: str
    weight: int
    worth: tuple[int, ...] | None = None
    at_min: int | None = None
    at_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Utility:
    """What outcomes are worth, 0 to 1 000 000: `linear`, with weights that add up to 1000, or one number per outcome."""

    linear: tuple[IssueWorth, ...] | None = None
    table: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Concession:
    """An exponent from 2 to 8: late (`boulware`) or early (`conceder`)."""

    boulware: int | None = None
    conceder: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mandate:
    """What a party of a bargain binds itself to. The exchange enforces it and shows it to nobody."""

    policy: str | None = None
    utility: Utility | None = None
    reservation: int | None = None
    limits: tuple[Predicate, ...] | None = None
    concession: Literal["linear"] | Concession | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDocuments:
    """Protocol documents to carry a task out by, the preferred first. With `require`, an offer must name one of them."""

    hashes: tuple[str, ...]
    require: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Routine:
    """What carried an award out: under the pinned document, or in natural language under none."""

    kind: Literal["native", "http", "wasm", "model", "language"]
    hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What an offer must satisfy to count."""

    attr: str
    min: int | None = None
    max: int | None = None
    enum: tuple[str, ...] | None = None
    required: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A score that falls from the call to the deadline."""

    start: int
    end: int
    exponent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """When collection closes, besides the deadline."""

    min_valid: int | None = None
    k_valid: int | None = None
    all_responded: bool | None = None
    window_ms: int | None = None
    window_anchor: Literal["cfp", "first_valid"] | None = None
    score_at_least: int | Threshold | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """How far a deadline with missing answers is put off, and how often."""

    ms: int
    max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Extend:
    """What is done at a deadline with missing answers: it is put off."""

    extend: Extension


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """How one attribute counts in a score; the `w` add up to 1000."""

    attr: str
    dir: Literal["lower", "higher"]
    lo: int
    hi: int
    w: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lottery:
    """A draw from a seed."""

    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LotteryTieBreak:
    """Equal scores are ordered by a draw."""

    lottery: Lottery


@dataclass(frozen=True, slots=True, kw_only=True)
class Timers:
    """Milliseconds."""

    collect: int | None = None
    confirm: int | None = None
    perform: int | None = None
    cancel: int | None = None
    hard: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextAcceptance:
    """From this round on, any offer."""

    any_from_round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedAcceptance:
    """Before a late point the best offer, then the best of a window."""

    late_ppm: int
    window_ppm: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BargainAcceptance:
    """How a policy accepts for a party of a bargain: one of the two."""

    next: NextAcceptance | None = None
    combi: CombinedAcceptance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When collection closes, what an offer must satisfy, how offers are scored, who decides."""

    id: str
    close: Close | None = None
    on_incomplete: Literal["decide", "fail"] | Extend | None = None
    sealed: bool | None = None
    gates: tuple[Gate, ...] | None = None
    weights: tuple[Weight, ...] | None = None
    eps_band: int | None = None
    tie_break: Literal["hash", "least_recent_winner", "arrival"] | LotteryTieBreak | None = None
    payment: Literal["first_price", "second_price"] | None = None
    awards: int | None = None
    standby: int | None = None
    hold_until: Literal["confirm", "done"] | None = None
    max_awards: int | None = None
    max_rounds: int | None = None
    offer_revision: Literal["replace", "refuse"] | None = None
    require_confirm: bool | None = None
    award: bool | None = None
    decider: Literal["engine", "initiator"] | None = None
    decide_ms: int | None = None
    timers_ms: Timers | None = None
    max_strikes: int | None = None
    bargain: Literal["any"] | BargainAcceptance | None = None
