//! The acceptance policy as a document (docs/spec/contract-net.md#policies).
//!
//! A policy is data: it is pinned, whole, in the first record of every negotiation that runs under it. Integers only.

use serde::{Deserialize, Serialize};

use crate::digest::{CanonicalError, Digest};
use crate::evidence::EvidenceSource;
use crate::ids::{AttrName, DomainName};
use crate::terms::{TERMS_MAX, number};

/// Parts a weight is counted in: the weights of a policy add up to this.
pub const WEIGHT_SUM: u32 = 1000;
/// The best normalised attribute value, and the best score.
pub const SCORE_MAX: u32 = 1_000_000;
/// Longest collection period, and longest of every timer, in milliseconds: one day.
pub const TIMER_MS_MAX: u64 = 86_400_000;
/// Most gates of a policy: two for each attribute an offer can have.
pub const GATES_MAX: usize = 64;
/// Most gates a call may add to its policy's.
pub const CALL_GATES_MAX: usize = 16;
/// Most texts one gate allows.
pub const GATE_TEXTS_MAX: usize = 64;
/// Most weights of a policy: one for each attribute an offer can have.
pub const WEIGHTS_MAX: usize = TERMS_MAX;
/// Most lots, runners-up, ACCEPTs per lot, rounds, and extensions of the deadline.
pub const STEPS_MAX: u32 = 64;
/// Largest exponent of a falling threshold.
pub const EXPONENT_MAX: u32 = 8;
/// Most strikes before a contractor is excluded.
pub const STRIKES_MAX: u32 = 100;

/// An acceptance policy.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// `name@version`.
    pub id: String,
    /// When collection closes.
    #[serde(default)]
    pub close: Close,
    /// What a deadline with missing answers means.
    #[serde(default)]
    pub on_incomplete: OnIncomplete,
    /// Nothing about other contractors' offers leaves before the close.
    #[serde(default = "yes")]
    pub sealed: bool,
    /// What an offer must satisfy to count.
    #[serde(default)]
    pub gates: Vec<Gate>,
    /// How offers are scored; the weights add up to [`WEIGHT_SUM`].
    #[serde(default)]
    pub weights: Vec<Weight>,
    /// Scores closer than this to the best count as equal to it, 0 to [`SCORE_MAX`].
    #[serde(default)]
    pub eps_band: u32,
    /// How equal scores are ordered.
    #[serde(default)]
    pub tie_break: TieBreak,
    /// What the winner is paid.
    #[serde(default)]
    pub payment: Payment,
    /// Lots to award, 1 to 64; an offer wins at most one.
    #[serde(default = "number::<_, 1>")]
    pub awards: u32,
    /// Runners-up held back for a re-award, per negotiation, 0 to 64.
    #[serde(default)]
    pub standby: u32,
    /// How long runners-up are held.
    #[serde(default)]
    pub hold_until: HoldUntil,
    /// Most ACCEPTs per lot, 1 to 64.
    #[serde(default = "number::<_, 3>")]
    pub max_awards: u32,
    /// Most rounds of collection, 1 to 64 (iterated contract net, FIPA SC00030).
    #[serde(default = "number::<_, 1>")]
    pub max_rounds: u32,
    /// Whether a contractor may replace its offer before the close.
    #[serde(default)]
    pub offer_revision: OfferRevision,
    /// Whether an award needs a CONFIRM; without, it is committed as soon as it is registered.
    #[serde(default = "yes")]
    pub require_confirm: bool,
    /// Whether the close leads to an award at all (`false` only in the paper's 4.1 readings that accept nobody).
    #[serde(default = "yes")]
    pub award: bool,
    /// Who chooses.
    #[serde(default)]
    pub decider: Decider,
    /// How long the initiator may take under `decider: initiator`, in milliseconds.
    #[serde(default = "number::<_, 10_000>")]
    pub decide_ms: u64,
    /// Timers.
    #[serde(default)]
    pub timers_ms: Timers,
    /// Out-of-turn messages after which a contractor is excluded, 1 to 100.
    #[serde(default = "number::<_, 3>")]
    pub max_strikes: u32,
    /// How it accepts for a party of a bargain; absent: it does not.
    pub bargain: Option<BargainRule>,
    /// The attribute `reputation`, for gates and weights: what panels have shown about each of the invited. Absent: there is
    /// none.
    pub reputation: Option<ReputationRule>,
}

/// How evidence of panels becomes the attribute `reputation` of an offer, in parts per million of the average
/// (docs/spec/panel.md#reputation).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReputationRule {
    /// The domain whose panels count.
    pub domain: DomainName,
    /// Who called them.
    #[serde(default)]
    pub from: EvidenceSource,
    /// Panels it takes to have a reputation, 1 to [`crate::evidence::RUNS_MAX`]; whoever has fewer counts as average.
    #[serde(default = "number::<_, 10>")]
    pub min_runs: u32,
    /// Panels of average importance that count beside them, 0 to [`crate::evidence::RUNS_MAX`].
    #[serde(default = "number::<_, 10>")]
    pub prior_runs: u32,
}

/// When collection closes (docs/spec/contract-net.md#cn-20). The collection deadline always closes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Close {
    /// Valid offers below which nothing but the deadline (and `all_responded`) closes.
    pub min_valid: u32,
    /// Close at this many valid offers.
    pub k_valid: Option<u32>,
    /// Close when everybody invited has responded.
    pub all_responded: bool,
    /// Close this many milliseconds after the anchor.
    pub window_ms: Option<u64>,
    /// Where the window begins.
    pub window_anchor: WindowAnchor,
    /// Close when the best score reaches this.
    pub score_at_least: Option<Threshold>,
}

impl Default for Close {
    fn default() -> Self {
        Self {
            min_valid: 1,
            k_valid: None,
            all_responded: false,
            window_ms: None,
            window_anchor: WindowAnchor::Cfp,
            score_at_least: None,
        }
    }
}

/// A score to reach: constant, or falling with time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Threshold {
    /// The same score throughout.
    Constant(u32),
    /// tau(now) = end + (start - end) * (1 - (elapsed / collection period) ^ exponent).
    Falling(FallingThreshold),
}

/// A threshold that falls from `start` at the call to `end` at the collection deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FallingThreshold {
    /// Score required at the call.
    pub start: u32,
    /// Score required at the deadline; not above `start`.
    pub end: u32,
    /// 1 to 8; 1 is linear, more concedes later. An integer so that every engine computes the same.
    pub exponent: u32,
}

/// Where the window begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowAnchor {
    /// At the call.
    #[default]
    Cfp,
    /// At the first valid offer ever received, even if withdrawn later.
    FirstValid,
}

/// What a deadline with missing answers means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnIncomplete {
    /// Decide among what is there.
    #[default]
    Decide,
    /// End without an award.
    Fail,
    /// Extend the deadline by `ms`, at most `max` times, then decide.
    Extend {
        /// Extension in milliseconds.
        ms: u64,
        /// Most extensions.
        max: u32,
    },
}

/// One condition an offer must satisfy. All that are given must hold.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// The attribute of the terms.
    pub attr: AttrName,
    /// Smallest value.
    pub min: Option<i64>,
    /// Largest value.
    pub max: Option<i64>,
    /// Allowed texts.
    #[serde(rename = "enum")]
    pub one_of: Option<Vec<String>>,
    /// Whether an offer without the attribute fails. A `min`, `max` or `enum` fails on an absent attribute anyway.
    #[serde(default)]
    pub required: bool,
}

/// Which way an attribute improves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Lower is better: `lo` scores best.
    Lower,
    /// Higher is better: `hi` scores best.
    Higher,
}

/// One term of the score: linear between fixed bounds, clamped. An absent attribute scores 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weight {
    /// The attribute of the terms; must be an integer there.
    pub attr: AttrName,
    /// Which way it improves.
    pub dir: Direction,
    /// Lower bound of the fixed range.
    pub lo: i64,
    /// Upper bound of the fixed range, above `lo`.
    pub hi: i64,
    /// Parts of [`WEIGHT_SUM`].
    pub w: u32,
}

/// How equal scores are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TieBreak {
    /// SHA-256(negotiation, contractor, closing position), ascending: nobody can compute it before the close.
    #[default]
    Hash,
    /// As `hash`, with a seed of the operator's mixed in.
    Lottery {
        /// The seed.
        seed: u64,
    },
    /// The contractor whose last win in this lane lies furthest back; then `hash`.
    LeastRecentWinner,
    /// First come, first served: only for fidelity to the paper.
    Arrival,
}

/// What the winner is paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payment {
    /// Its own price.
    #[default]
    FirstPrice,
    /// The price at which its score would equal the best losing score, or the price gate when nobody lost.
    SecondPrice,
}

/// How long runners-up are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldUntil {
    /// Until the award is confirmed.
    #[default]
    Confirm,
    /// Until the work is done.
    Done,
}

/// Whether a contractor may replace its offer before the close.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfferRevision {
    /// The later offer replaces the earlier.
    #[default]
    Replace,
    /// The first offer stands; another is out of turn.
    Refuse,
}

/// Who chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decider {
    /// The policy.
    #[default]
    Engine,
    /// The initiator, within `decide_ms`; then the policy.
    Initiator,
}

/// Timers in milliseconds, each 1 to [`TIMER_MS_MAX`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timers {
    /// Default collection deadline when the call names none and has no lifetime.
    pub collect: u64,
    /// To CONFIRM an award.
    pub confirm: u64,
    /// To perform.
    pub perform: u64,
    /// To answer a CANCEL.
    pub cancel: u64,
    /// Bound on the whole negotiation.
    pub hard: u64,
}

impl Default for Timers {
    fn default() -> Self {
        Self { collect: 10_000, confirm: 10_000, perform: 60_000, cancel: 5_000, hard: 120_000 }
    }
}

crate::json_texts!(Option<BargainRule>);

/// How a policy accepts for a party, in its turn, a standing offer inside its mandate (the `bargain` section of a policy).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum BargainRule {
    /// The first (low).
    Any,
    /// One at least as good as what the party would propose next; from a round on, any (medium; `AC_next`).
    Next {
        /// From this round on, counted from 1, any.
        any_from_round: u32,
    },
    /// Before `late` only the party's best; then one at least as good as the best offered in the window before; in its last
    /// turn any (high; `AC_combi`).
    Combi {
        /// Relative time from which it looks back, in parts per million.
        late_ppm: u32,
        /// Relative time it looks back, in parts per million.
        window_ppm: u32,
    },
}

const fn yes() -> bool {
    true
}

impl Policy {
    /// Reads a document.
    ///
    /// # Errors
    /// The decoding error.
    pub fn decode(document: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(document)
    }

    /// Digest of the canonical document: what a negotiation pins.
    ///
    /// # Errors
    /// [`CanonicalError`], which integers and texts cannot cause.
    pub fn digest(&self) -> Result<Digest, CanonicalError> {
        Digest::of(self)
    }

    /// The id without its version: what a call may name to get the current version.
    #[must_use]
    pub fn name(&self) -> &str {
        self.id.split_once('@').map_or(self.id.as_str(), |(name, _)| name)
    }
}
