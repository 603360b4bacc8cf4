//! Keys and values of the write-once register (docs/spec/log.md#lg-21).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::delivery::Outcome;
use crate::digest::Digest;
use crate::ids::{AwardNo, Lot, NegotiationId, OfferId};
use crate::text::text;

/// A key of the register. Its text is the NATS subject that holds its one value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RegisterKey {
    /// `award.<negotiation>.<lot>.<award_no>`: written before the ACCEPT leaves.
    Award(NegotiationId, Lot, AwardNo),
    /// `award.<negotiation>.<lot>.<award_no>.end`: written before `committed` leaves or the next award is tried.
    AwardEnd(NegotiationId, Lot, AwardNo),
    /// `closed.<negotiation>`: written at the end.
    Closed(NegotiationId),
}

text!(RegisterKey, |key: &Self, serializer: S| serializer.collect_str(key), |text| {
    Self::parse(text).ok_or("not a key of the register")
});

impl fmt::Display for RegisterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Award(negotiation, lot, award_no) => write!(f, "award.{negotiation}.{lot}.{award_no}"),
            Self::AwardEnd(negotiation, lot, award_no) => write!(f, "award.{negotiation}.{lot}.{award_no}.end"),
            Self::Closed(negotiation) => write!(f, "closed.{negotiation}"),
        }
    }
}

impl RegisterKey {
    /// The negotiation.
    #[must_use]
    pub fn negotiation(&self) -> &NegotiationId {
        match self {
            Self::Award(negotiation, ..) | Self::AwardEnd(negotiation, ..) | Self::Closed(negotiation) => negotiation,
        }
    }

    /// Parses a subject of the register stream.
    #[must_use]
    pub fn parse(subject: &str) -> Option<Self> {
        let parts: Vec<&str> = subject.split('.').collect();
        let number = |text: &str| text.parse::<u32>().ok();
        match parts.as_slice() {
            ["award", negotiation, lot, award_no] => Some(Self::Award(
                NegotiationId::try_new(negotiation).ok()?,
                Lot(number(lot)?),
                AwardNo(number(award_no)?),
            )),
            ["award", negotiation, lot, award_no, "end"] => Some(Self::AwardEnd(
                NegotiationId::try_new(negotiation).ok()?,
                Lot(number(lot)?),
                AwardNo(number(award_no)?),
            )),
            ["closed", negotiation] => Some(Self::Closed(NegotiationId::try_new(negotiation).ok()?)),
            _ => None,
        }
    }
}

/// How an award ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AwardEnd {
    /// The contractor is bound.
    Committed,
    /// It never bound, or no longer does.
    Revoked,
}

/// A value of the register; stored in canonical form, so that equal values are equal bytes. Members stand in the order of
/// their names, so that compact JSON is that form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegisterValue {
    /// Under [`RegisterKey::Award`].
    Award {
        /// Head of the hash chain over the negotiation's inputs when it was made.
        chain: Digest,
        /// Digest of the decision record.
        decision: Digest,
        /// The winning offer.
        offer_id: OfferId,
    },
    /// Under [`RegisterKey::AwardEnd`].
    AwardEnd {
        /// Head of the hash chain.
        chain: Digest,
        /// How.
        end: AwardEnd,
    },
    /// What a bargain agreed on, under the key of lot 0, award 1.
    Agreement {
        /// Head of the negotiation's hash chain.
        chain: Digest,
        /// The accepted offer.
        offer_id: OfferId,
        /// Digest of its terms.
        terms_digest: Digest,
    },
    /// Who formed a team, under the key of lot 0, award 1.
    Formed {
        /// Head of the team's hash chain.
        chain: Digest,
        /// Digest of the decision record.
        decision: Digest,
    },
    /// The result of a panel, under the key of lot 0, award 1.
    Finding {
        /// Head of the negotiation's hash chain.
        chain: Digest,
        /// Digest of the decision record.
        decision: Digest,
    },
    /// Under [`RegisterKey::Closed`].
    Closed {
        /// Head of the hash chain.
        chain: Digest,
        /// How.
        outcome: Outcome,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_subject() {
        let negotiation = NegotiationId::try_new("alice~job").unwrap();
        for key in [
            RegisterKey::Award(negotiation.clone(), Lot(0), AwardNo(1)),
            RegisterKey::AwardEnd(negotiation.clone(), Lot(2), AwardNo(31)),
            RegisterKey::Closed(negotiation),
        ] {
            assert_eq!(RegisterKey::parse(&key.to_string()), Some(key));
        }
        assert_eq!(RegisterKey::parse("award.alice~job.0.1.begin"), None);
    }
}
