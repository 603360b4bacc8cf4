//! What the parties of a bargain are told (docs/spec/alternating-offers.md#ao-42).

use serde::{Deserialize, Serialize};

use crate::bargain::{BargainSpec, Predicate};
use crate::digest::Digest;
use crate::ids::{AgentId, OfferId};
use crate::payload::Terms;
use crate::time::WireTime;

/// A bargain as the invited see it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BargainCall {
    /// Who takes part, in the order of their turns; the initiator first.
    pub parties: Vec<AgentId>,
    /// The rules.
    pub rules: BargainSpec,
}

/// How a bargain stands. Told to every party after each change, but not to the one whose own message made it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Turn {
    /// Whose turn it is.
    pub party: AgentId,
    /// The round, counted from 1.
    pub round: u32,
    /// Turns taken so far, in all rounds.
    pub step: u32,
    /// The party must act by then.
    pub act_by: WireTime,
    /// The bargain ends then at the latest.
    pub ends_by: WireTime,
    /// Relative time: max(round / (rounds + 1), elapsed / deadline), in parts per million, rounded down. NegMAS counts alike.
    pub t_ppm: u32,
    /// The offer that stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
}

/// The offer that stands in a bargain.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Standing {
    /// The offer; ACCEPT repeats it.
    pub offer_id: OfferId,
    /// Who offered.
    pub by: AgentId,
    /// Its terms.
    pub terms: Terms,
    /// Digest of the terms; ACCEPT repeats it.
    pub terms_digest: Digest,
    /// Begin of its validity, where it has one.
    pub valid_from: Option<WireTime>,
    /// End of its validity, where it has one.
    pub valid_until: Option<WireTime>,
    /// What must hold when it is accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Predicate>,
    /// Who has accepted it, in the order of their turns; the proposer is not named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted_by: Vec<AgentId>,
}

/// What a bargain agreed on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Agreement {
    /// The accepted offer.
    pub offer_id: OfferId,
    /// Who offered.
    pub by: AgentId,
    /// The agreed terms.
    pub terms: Terms,
    /// Their digest.
    pub terms_digest: Digest,
    /// The round in which the last party accepted, counted from 1.
    pub round: u32,
    /// Turns taken, the last acceptance included.
    pub step: u32,
}
