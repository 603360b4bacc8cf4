//! The acts agents send (FIPA communicative acts, SC00037) and what each carries.
//!
//! What the exchange itself says to agents is in `delivery`.

use serde::{Deserialize, Deserializer, Serialize};

use crate::bargain::{BargainSpec, Conditions, Join, Mandate};
use crate::digest::Digest;
use crate::document::{CallDocuments, DocumentHash, RoutineReport};
use crate::english_auction::AuctionSpec;
use crate::ids::{AwardNo, Capability, OfferId};
use crate::panel::{PanelAnswer, PanelSpec};
use crate::policy::Gate;
use crate::team::{Assign, Conclude, Pause, Say, TeamSpec};
pub use crate::terms::{ATTR_TEXT_LEN_MAX, AttrValue, Currency, INTEGER_MAX, TERMS_MAX, Terms, is_integer};
use crate::time::WireTime;

/// Longest free text, in characters.
pub const TEXT_LEN_MAX: usize = 4096;
/// Longest code of a contractor's failure, in characters.
pub const FAILURE_CODE_LEN_MAX: usize = 64;

crate::words! {
    /// Every act that may stand in a payload.
    pub enum Act {
        /// cfp: the initiator calls for proposals.
        Cfp,
        /// propose: a contractor offers terms.
        Offer,
        /// refuse: a contractor declines to offer, or declines an award.
        Refuse,
        /// not-understood.
        NotUnderstood,
        /// cancel of one's own propose: a contractor takes its offer back.
        Withdraw,
        /// accept-proposal.
        Accept,
        /// reject-proposal.
        Reject,
        /// agree: the awarded contractor commits.
        Confirm,
        /// inform-done / inform-result.
        Inform,
        /// failure.
        Failure,
        /// cancel.
        Cancel,
        /// The negotiation ended.
        Closed,
        /// The disposition of one logged message.
        Ack,
        /// agree, to bargain or to work in a team: an invited agent takes part (docs/spec/alternating-offers.md#ao-12).
        Join,
        /// A party leaves the bargain, which ends it, or a member its team.
        End,
        /// How a bargain stands, and whose turn it is.
        Turn,
        /// query-ref: a member of a panel is asked.
        Ask,
        /// inform-ref: it answers.
        Answer,
        /// inform, to a team: a member speaks (docs/spec/team.md#tm-25).
        Say,
        /// request, to a team: a member opens tasks.
        Assign,
        /// A member of a team waits for tasks.
        Pause,
        /// propose, to a team: a member concludes.
        Conclude,
        /// How a team stands, and who holds the floor.
        Floor,
    }
}

/// Declares an enum of acts with their contents, and in `Act` the list of them, in the same order.
macro_rules! acts {
    ($(#[$list_doc:meta])* $list:ident; $(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $act:ident($content:ty),)* }) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$doc])* $act($content),)*
        }

        impl crate::payload::Act {
            $(#[$list_doc])*
            pub const $list: [Self; [$(Self::$act),*].len()] = [$(Self::$act),*];
        }

        impl $name {
            /// The act.
            #[must_use]
            pub const fn act(&self) -> crate::payload::Act {
                match self {
                    $(Self::$act(_) => crate::payload::Act::$act,)*
                }
            }
        }
    };
}

pub(crate) use acts;

/// A call for proposals.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Cfp {
    /// What is wanted, for the contractors to read. Opaque to the exchange.
    pub task: Option<String>,
    /// Id of the acceptance policy, for example `medium` (absent: the exchange's default).
    pub policy: Option<String>,
    /// Collection deadline in milliseconds from the log time of this message.
    pub reply_within_ms: Option<u64>,
    /// Collection deadline as an absolute time; also spelled `deadline` (the paper's name).
    #[serde(alias = "deadline")]
    pub reply_by: Option<WireTime>,
    /// The paper's round; a first call carries 1 or none.
    pub round: Option<u32>,
    /// Capabilities every contractor must have, all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<Capability>,
    /// What offers should respect; opaque to the exchange (binding limits are the policy's gates).
    #[serde(default, skip_serializing_if = "Terms::is_empty")]
    pub constraints: Terms,
    /// Gates the policy gets for this call, behind its own. Contractors are not told them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Gate>,
    /// Currency of prices; an offer in another is a gate violation.
    pub currency: Option<Currency>,
    /// Protocol documents to carry the task out by; not in the call to a bargain.
    pub documents: Option<CallDocuments>,
    /// Makes this the call to a bargain (alternating offers) instead of a contract net: its rules.
    pub bargain: Option<Box<BargainSpec>>,
    /// Makes this the call to a team: its rules.
    pub team: Option<Box<TeamSpec>>,
    /// The initiator's own mandate in the bargain. Told to nobody.
    pub mandate: Option<Box<Mandate>>,
    /// Makes this the call to a panel: its rules.
    pub panel: Option<Box<PanelSpec>>,
    /// Makes this the call to an English auction: its rules.
    pub auction: Option<Box<AuctionSpec>>,
}

/// An offer. Paper, appendix A: value, timestamp, conditions. Members stand in the order of RFC 8785.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Offer {
    /// Free text, opaque to the exchange and never read by a policy; in a bargain, predicates.
    pub conditions: Option<Conditions>,
    /// Currency of `price`.
    pub currency: Option<Currency>,
    /// The documents its contractor can follow, at most [`DOCUMENTS_MAX`](crate::document::DOCUMENTS_MAX), none twice; not in
    /// a bargain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub documents: Vec<DocumentHash>,
    /// Round the offer answers (absent: the current one).
    pub round: Option<u32>,
    /// The terms offered.
    pub terms: Terms,
    /// Validity in milliseconds from the log time of this message.
    pub valid_for_ms: Option<u64>,
    /// Begin of the validity, as an absolute time; in a bargain only.
    pub valid_from: Option<WireTime>,
    /// Validity as an absolute time. With neither, the offer stands for the whole negotiation.
    pub valid_until: Option<WireTime>,
}

/// A refusal to offer or to perform, a withdrawal, a cancellation: an act with a reason only.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Reasoned {
    /// Why, for people and logs.
    pub reason: Option<String>,
    /// Round it refers to (absent: the current one).
    pub round: Option<u32>,
}

/// The initiator's own choice, under `decider: initiator`; in a bargain, a party's acceptance of the standing offer; in a team, a
/// vote for the conclusion that is voted on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accept {
    /// The chosen offer.
    pub offer_id: OfferId,
    /// Digest of the accepted terms; a bargain and a team ask for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terms_digest: Option<Digest>,
}

/// The awarded contractor commits to one award.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirm {
    /// The award it answers: the fencing token. A bargain has one, number 1.
    pub award_no: AwardNo,
    /// Digest of the agreed terms, where the sender wants it compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terms_digest: Option<Digest>,
}

/// What an INFORM reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InformKind {
    /// The work is done.
    Done,
    /// The work is done, and here is its result.
    Result,
    /// In answer to a CANCEL: stopped.
    Cancelled,
}

/// A contractor reports.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inform {
    /// What is reported.
    pub kind: InformKind,
    /// The result, opaque to the exchange and forwarded to the initiator.
    pub result: Option<String>,
    /// The routine that carried the award out, where the contractor says.
    pub routine: Option<RoutineReport>,
}

/// In which phase something failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailurePhase {
    /// Before an offer could be made.
    Offer,
    /// While performing.
    Perform,
    /// The contractor leaves a commitment (docs/spec/contract-net.md#cn-49).
    Decommit,
    /// In answer to a CANCEL: it can no longer be stopped.
    CannotCancel,
}

/// A contractor failed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Failure {
    /// The phase.
    pub phase: FailurePhase,
    /// The contractor's own code for the fault, 1 to [`FAILURE_CODE_LEN_MAX`] characters.
    pub code: String,
    /// Whether the same contractor might succeed later.
    #[serde(default)]
    pub retryable: bool,
    /// Decommitment penalty offered, in micro-units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub penalty: Option<i64>,
}

/// Declares what agents say: each act with its content.
macro_rules! payload {
    ($($(#[$doc:meta])* $act:ident($content:ty),)*) => {
        acts! {
            /// The acts an agent may send.
            FROM_AGENTS;
            /// What an agent says: the act and its content. Serialises to the payload object, `act` included.
            #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
            #[serde(tag = "act", rename_all = "snake_case")]
            Payload { $($(#[$doc])* $act($content),)* }
        }

        impl Payload {
            /// Reads the content of `act` out of a payload object. Other members are ignored here: the act's JSON Schema has
            /// refused unknown ones before (only `act`, `$schema` and the paper's `timestamp` stand beside the content).
            ///
            /// # Errors
            /// The decoding error, when the object is not what the act carries, or agents do not send the act.
            pub fn read<'de, D: Deserializer<'de>>(act: Act, source: D) -> Result<Self, D::Error> {
                match act {
                    $(Act::$act => <$content>::deserialize(source).map(Self::$act),)*
                    Act::Reject | Act::Closed | Act::Ack | Act::Turn | Act::Ask | Act::Floor => {
                        Err(serde::de::Error::custom(format_args!("agents do not send `{act}`")))
                    }
                }
            }
        }
    };
}

payload! {
    /// Initiator: call for proposals.
    Cfp(Cfp),
    /// Contractor: offer.
    Offer(Offer),
    /// Contractor: decline the call, or the award.
    Refuse(Reasoned),
    /// Either: what was received makes no sense.
    NotUnderstood(Reasoned),
    /// Contractor: take the offer back.
    Withdraw(Reasoned),
    /// Initiator: choose (`decider: initiator`).
    Accept(Accept),
    /// Contractor: commit.
    Confirm(Confirm),
    /// Contractor: report.
    Inform(Inform),
    /// Contractor: failed.
    Failure(Failure),
    /// Initiator: call it off.
    Cancel(Reasoned),
    /// Invited party: take part in the bargain, or in the team.
    Join(Join),
    /// Party: leave the bargain, or the team.
    End(Reasoned),
    /// Seat, ranker or reviewer of a panel: answer an ask.
    Answer(Box<PanelAnswer>),
    /// Member of a team: speak.
    Say(Say),
    /// Member of a team: open tasks.
    Assign(Assign),
    /// Member of a team: wait for tasks.
    Pause(Pause),
    /// Member of a team: conclude.
    Conclude(Conclude),
}

impl Payload {
    /// The round it refers to, where it names one that counts (docs/spec/messages.md#ms-36).
    #[must_use]
    pub fn round(&self) -> Option<u32> {
        if let Self::Offer(Offer { round, .. })
        | Self::Refuse(Reasoned { round, .. })
        | Self::NotUnderstood(Reasoned { round, .. })
        | Self::Withdraw(Reasoned { round, .. })
        | Self::Cancel(Reasoned { round, .. }) = self
        {
            return *round;
        }
        None
    }

    /// [`Payload::read`] from text.
    ///
    /// # Errors
    /// As [`Payload::read`], or when the text is not JSON.
    pub fn decode(act: Act, json: &str) -> Result<Self, serde_json::Error> {
        let mut source = serde_json::Deserializer::from_str(json);
        let payload = Self::read(act, &mut source)?;
        source.end().map(|()| payload)
    }
}
