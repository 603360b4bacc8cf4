//! Every field of the state, by name: one that is added and not listed here does not compile. `variants.rs` has the
//! enumerations that carry something.
//!
//! The order of the fields and the numbers of the words are the format: see [`super::SNAPSHOT_FORMAT`] before changing any.

use schemas::delivery::{Call, CloseReason, Disposition, Outcome};
use schemas::ids::Position;
use schemas::record::Qos;
use schemas::{Act, AwardNo, Digest, Lot, OfferId, Timestamp, WireTime};

use super::codec::{Fault, Reader, Stored, Writer};
use crate::acceptance::threshold::Period;
use crate::contract_net::awards::AwardStage;
use crate::contract_net::session::{CallDelivery, SessionState};
use crate::negotiation::header::Header;
use crate::negotiation::party::{Party, Pointed, SeenMessage};
use crate::negotiation::phase::{ActSet, NotUnderstoodReason, Phase};
use crate::negotiation::tombstone::{BargainEnd, PastAward, PastParty, SeenDigest, Tombstone};

/// Stores a part field by field. It stands beside the type where its fields are private.
macro_rules! fields {
    ($type:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::lane::snapshot::codec::Stored for $type {
            fn write(&self, out: &mut $crate::lane::snapshot::codec::Writer) {
                let Self { $($field),+ } = self;
                $($crate::lane::snapshot::codec::Stored::write($field, out);)+
            }

            fn read(
                input: &mut $crate::lane::snapshot::codec::Reader<'_>,
            ) -> Result<Self, $crate::lane::snapshot::codec::Fault> {
                $(let $field = $crate::lane::snapshot::codec::Stored::read(input)?;)+
                Ok(Self { $($field),+ })
            }
        }
    };
}
pub(crate) use fields;

macro_rules! words {
    ($type:ident { $($word:ident = $number:literal),+ $(,)? }) => {
        impl Stored for $type {
            fn write(&self, out: &mut Writer) {
                out.byte(match self {
                    $(Self::$word => $number,)+
                });
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
                match input.byte()? {
                    $($number => Ok(Self::$word),)+
                    _ => Err(input.fault(concat!("the byte before is no ", stringify!($type)))),
                }
            }
        }
    };
}

macro_rules! wrappers {
    ($($type:ident),+ $(,)?) => {$(
        impl Stored for $type {
            fn write(&self, out: &mut Writer) {
                self.0.write(out);
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
                Stored::read(input).map(Self)
            }
        }
    )+};
}

fields!(Party { agent, last_seq, seen });
fields!(Header { id, call_msg_id, left_out, notices, traceparent, started_at, ends_by, outcome, chain });
fields!(SeenMessage { msg_id, digest, act, disposition, reply, award_no, position, at });
fields!(Pointed { reason, expected, pointer });
fields!(Period { start, length_us });
/// Of a contract net. What one of a bargain has beside it follows it (`variants.rs`).
impl Stored for Tombstone {
    fn write(&self, out: &mut Writer) {
        let Self { id, outcome, chain, round, ends_by, expires_at, parties, seen, awards, bargain: _ } = self;
        id.write(out);
        outcome.write(out);
        chain.write(out);
        round.write(out);
        ends_by.write(out);
        expires_at.write(out);
        parties.write(out);
        seen.write(out);
        awards.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(Self {
            id: Stored::read(input)?,
            outcome: Stored::read(input)?,
            chain: Stored::read(input)?,
            round: Stored::read(input)?,
            ends_by: Stored::read(input)?,
            expires_at: Stored::read(input)?,
            parties: Stored::read(input)?,
            seen: Stored::read(input)?,
            awards: Stored::read(input)?,
            bargain: None,
        })
    }
}

fields!(BargainEnd { detail, agreement });
fields!(PastParty { agent, last_seq });
fields!(SeenDigest { party, disposition, msg_id, digest });
fields!(PastAward { award_no, party, is_revoked });
fields!(Position { seq, index });

wrappers!(ActSet, AwardNo, Digest, Lot, OfferId, Timestamp, WireTime);

words!(Phase {
    Collecting = 0, Deciding = 1, Awarding = 2, Performing = 3, Cancelling = 4, Ended = 5, Joining = 6, Bargaining = 7,
    Confirming = 8,
});
words!(AwardStage { Awarded = 0, Committed = 1, Done = 2, CancelPending = 3 });
words!(Qos { AtLeastOnce = 0, BestEffort = 1 });
words!(CallDelivery { AtLeastOnce = 0, BestEffort = 1, Durable = 2 });
words!(CloseReason { ScoreAtLeast = 0, KValid = 1, AllResponded = 2, Window = 3, Deadline = 4 });
words!(Outcome {
    Completed = 0, NoOffers = 1, Incomplete = 2, NoCandidate = 3, Timeout = 4, Cancelled = 5, Aborted = 6,
    Agreement = 7, NoAgreement = 8, Ended = 9,
});
words!(SessionState {
    Invited = 0, Offered = 1, PolicyRejected = 2, Refused = 3, NotUnderstood = 4, Withdrawn = 5, Excluded = 6,
    Standby = 7, Awarded = 8, Committed = 9, Done = 10, Failed = 11, Rejected = 12, Lapsed = 13, CancelPending = 14,
    Cancelled = 15, Undelivered = 16,
});
words!(Disposition {
    Ok = 0, Duplicate = 1, Late = 2, Expired = 3, StaleRound = 4, OutOfTurn = 5, Malformed = 6, Conflict = 7,
    StaleSeq = 8, Unauthorized = 9, Closed = 10, PolicyReject = 11, RateLimited = 12, Committed = 13, Revoked = 14,
    MandateViolation = 15,
});
words!(Act {
    Cfp = 0, Offer = 1, Refuse = 2, NotUnderstood = 3, Withdraw = 4, Accept = 5, Reject = 6, Confirm = 7, Inform = 8,
    Failure = 9, Cancel = 10, Closed = 11, Ack = 12, Join = 13, End = 14, Turn = 15,
});
words!(NotUnderstoodReason {
    OutOfTurn = 0, BadRound = 1, BadDeadline = 2, UseFailureDecommit = 3, UnknownOffer = 4, NoRecipient = 5,
    InvalidPolicy = 6, UnsupportedRules = 7, InvalidBargain = 8, InvalidMandate = 9, TooManyParties = 10, OutOfSpace = 11,
    Validity = 12, Condition = 13, Repeated = 14, Standing = 15, NotYetValid = 16, TermsDigest = 17, MandateViolation = 18,
    Currency = 19,
});

impl Stored for Call {
    /// Of a contract net's call only: a bargain keeps its own.
    fn write(&self, out: &mut Writer) {
        let Self {
            task,
            round,
            reply_by,
            ends_by,
            policy,
            policy_digest,
            lots,
            requires,
            constraints,
            currency,
            bargain: _,
        } = self;
        task.write(out);
        round.write(out);
        reply_by.write(out);
        ends_by.write(out);
        policy.write(out);
        policy_digest.write(out);
        lots.write(out);
        requires.write(out);
        constraints.write(out);
        currency.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(Self {
            task: Stored::read(input)?,
            round: Stored::read(input)?,
            reply_by: Stored::read(input)?,
            ends_by: Stored::read(input)?,
            policy: Stored::read(input)?,
            policy_digest: Stored::read(input)?,
            lots: Stored::read(input)?,
            requires: Stored::read(input)?,
            constraints: Stored::read(input)?,
            currency: Stored::read(input)?,
            bargain: None,
        })
    }
}
