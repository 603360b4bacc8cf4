//! What the alternating offers protocol adds to the contract (docs/spec/alternating-offers.md): the rules of a bargain, its
//! outcome space, and the sealed mandate under which the exchange guards a party, and may accept for it. Integers only.

pub mod mandate;
pub mod space;

use serde::{Deserialize, Serialize};

use crate::ids::AttrName;
use crate::terms::{AttrValue, TERMS_MAX, Terms, number};

crate::json_texts!(Box<BargainSpec>, Box<Mandate>, Vec<Predicate>, Terms);

/// Most parties of a bargain, the initiator among them.
pub const PARTIES_MAX: usize = 64;
/// Most issues of an outcome space: an offer can have as many attributes.
pub const ISSUES_MAX: usize = TERMS_MAX;
/// Most values of one discrete issue.
pub const ISSUE_VALUES_MAX: usize = 256;
/// Most outcomes a tabular utility lists.
pub const TABLE_MAX: usize = 1024;
/// Most rounds of a bargain. A round is one turn of every party.
pub const ROUNDS_MAX: u32 = 1000;
/// Messages of one party that a bargain remembers, and takes, beside one for each of its rounds ([`ROUNDS_MAX`] where only
/// time bounds it): the contract net's bound on messages of a party would end a long bargain.
pub const MESSAGES_SPARE: usize = 64;
/// Most predicates of an offer's conditions, and of a mandate's limits.
pub const PREDICATES_MAX: usize = 32;
/// The whole, in parts per million: of a utility, of relative time.
pub const PPM: u32 = 1_000_000;
/// Steepest concession: see [`Concession`].
pub const CONCESSION_MAX: u32 = 8;
/// Condition attribute: the round in which an offer is accepted, counted from 1. No issue may have this name.
pub const ATTR_ROUND: &str = "round";
/// Condition attribute: milliseconds from the first turn to the acceptance. No issue may have this name.
pub const ATTR_ELAPSED_MS: &str = "elapsed_ms";

/// The rules of one bargain. At least one of `rounds` and `deadline_ms` is given.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BargainSpec {
    /// The outcome space; an offer names a value for every issue. Outcomes are numbered row-major: the last issue runs
    /// fastest.
    pub issues: Vec<Issue>,
    /// Rounds, 1 to [`ROUNDS_MAX`].
    pub rounds: Option<u32>,
    /// Milliseconds from the first turn, 1 to a day.
    pub deadline_ms: Option<u64>,
    /// How long one turn may take, in milliseconds, 1 to a day. A turn that takes longer ends the bargain.
    #[serde(default = "number::<_, 10_000>")]
    pub step_ms: u64,
    /// How long the parties may take to CONFIRM an agreement, in milliseconds; absent: it needs no confirmation.
    pub confirm_ms: Option<u64>,
    /// Whether terms that were offered and not accepted may be offered again by the same party.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forbid_repeat: bool,
    /// Messages out of turn after which a party has ended the bargain, 1 to [`crate::policy::STRIKES_MAX`].
    #[serde(default = "number::<_, 3>")]
    pub max_strikes: u32,
}

/// One issue: a name and the values it can have.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Issue {
    /// The attribute of the terms.
    pub name: AttrName,
    /// Its values.
    #[serde(flatten)]
    pub values: IssueValues,
}

/// The values of an issue.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IssueValues {
    /// These, in this order, each once.
    Discrete {
        /// 1 to [`ISSUE_VALUES_MAX`] values.
        values: Vec<AttrValue>,
    },
    /// Every integer from `min` to `max`.
    Range {
        /// Smallest value.
        min: i64,
        /// Largest value, not below `min`.
        max: i64,
    },
}

/// How two values are compared. Texts are only equal or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Less than.
    Lt,
    /// At most.
    Le,
    /// Greater than.
    Gt,
    /// At least.
    Ge,
}

/// A predicate: attribute, comparison, constant. Of an attribute that is absent, or of another kind than the constant, only
/// `ne` holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Predicate {
    /// An issue; in an offer's conditions also [`ATTR_ROUND`] and [`ATTR_ELAPSED_MS`].
    pub attr: AttrName,
    /// How it is compared.
    pub op: Comparison,
    /// With what.
    pub value: AttrValue,
}

/// What an offer says beside its terms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Conditions {
    /// Free text: opaque.
    Text(String),
    /// Predicates, all of which must hold when the offer is accepted. In a bargain only.
    Predicates(Vec<Predicate>),
}

/// An invited agent takes part in a bargain, or in a team.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Join {
    /// Its mandate in a bargain. Told to nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mandate: Option<Box<Mandate>>,
    /// What it offers a team, scored by the policy of the call.
    #[serde(default, skip_serializing_if = "Terms::is_empty")]
    pub terms: Terms,
}

/// What a party binds itself to, whatever it says later: the exchange refuses an offer or an acceptance outside (disposition
/// `mandate_violation`). Sealed: no other party and no view is ever told any of it.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Mandate {
    /// The policy that accepts for the party, for example `bargain-medium`; it must have a `bargain` section. Absent: the
    /// party accepts itself.
    pub policy: Option<String>,
    /// What outcomes are worth to the party; needed for `policy` and `reservation`.
    pub utility: Option<Utility>,
    /// What no agreement is worth: outcomes of a lower utility are outside. 0 to [`PPM`].
    #[serde(default)]
    pub reservation: u32,
    /// Hard limits: terms that break one are outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Predicate>,
    /// How the party concedes; tells `next` policies what it would propose (absent: linear).
    pub concession: Option<Concession>,
}

/// A utility function over the outcome space, from 0 to [`PPM`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Utility {
    /// floor(sum of weight * worth / 1000) over the issues; each issue stands at most once, and the weights add up to
    /// [`crate::policy::WEIGHT_SUM`].
    Linear(Vec<IssueWorth>),
    /// One utility per outcome, in the order of their numbers; at most [`TABLE_MAX`].
    Table(Vec<u32>),
}

/// What one issue contributes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueWorth {
    /// The issue.
    pub issue: AttrName,
    /// Parts of [`crate::policy::WEIGHT_SUM`].
    pub weight: u32,
    /// The worth of its values.
    #[serde(flatten)]
    pub worth: Worth,
}

/// The worth of an issue's values, each 0 to [`PPM`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Worth {
    /// Of each value of a discrete issue, in their order.
    Listed {
        /// One per value.
        worth: Vec<u32>,
    },
    /// Of a range: linear between its ends, rounded down.
    Linear {
        /// Worth of the smallest value.
        at_min: u32,
        /// Worth of the largest value.
        at_max: u32,
    },
}

/// A concession in time: aspiration falls from the best outcome to the reservation value as 1 - t^e, where t is relative
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Concession {
    /// e = this, 2 to [`CONCESSION_MAX`]: concedes late.
    Boulware(u32),
    /// e = 1.
    Linear,
    /// e = 1 / this, 2 to [`CONCESSION_MAX`]: concedes early.
    Conceder(u32),
}
