//! What an agent receives: every delivery is an envelope and a payload, like what agents send.
//!
//! An inbox message on the bus is a JSON array of [`Delivery`] documents. `envelope.msg_id` is the delivery id: it is
//! the same on every repeat, and what the agent acknowledges.

mod bargain;
mod panel;
mod receipt;

use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;
use serde::{Deserialize, Serialize};

pub use bargain::{Agreement, BargainCall, Standing, Turn};
pub use panel::{
    Ask, Finding, PanelCalls, PanelistReport, RankAsk, Rated, ReviewerReport, ShownAnswer, Stopped, UsageTotal,
};
pub use receipt::{Disposition, Receipt};

use crate::digest::Digest;
use crate::document::{CallDocuments, DocumentHash, RoutineReport};
use crate::english_auction::{AuctionCall, StandingBid};
use crate::ids::{AgentId, AwardNo, Capability, DeliveryId, Lot, MsgId, NegotiationId, OfferId};
use crate::payload::{Act, Currency, Failure, Terms, acts};
use crate::team::{Brief, Conclusion, Floor, TeamCall, TeamTask};
use crate::time::WireTime;

crate::json_texts!(Arc<Notification>, Option<Arc<Call>>, Option<Box<Agreement>>, Box<[Receipt]>);

/// Longest that a client may let frames of its WebSocket wait for others, in ms (docs/spec/deliveries.md#dl-40).
pub const LINGER_MS_MAX: u64 = 100;
/// `from` of everything the exchange itself says.
pub const EXCHANGE: &str = "exchange://llmx";

/// One delivery to one agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Delivery {
    /// The envelope.
    pub envelope: DeliveryEnvelope,
    /// The payload.
    pub payload: Notification,
    /// What became of earlier messages of the recipient, where that was `ok` and was not told by itself, in their order
    /// (docs/spec/messages.md#ms-56).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<Receipt>,
}

impl Delivery {
    /// Reads a document as engines write it.
    ///
    /// # Errors
    /// The decoding error.
    pub fn decode(document: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(document)
    }

    /// Writes a document.
    ///
    /// # Errors
    /// The encoding error, which one that was read cannot cause.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// Reads a message to an inbox: an array of such documents.
    ///
    /// # Errors
    /// The decoding error of the first that cannot be read.
    pub fn decode_all(documents: &[u8]) -> Result<Vec<Self>, serde_json::Error> {
        serde_json::from_slice(documents)
    }

    /// Every receipt it carries: those of earlier messages, then the one it may be itself.
    pub fn receipts_told(&self) -> impl Iterator<Item = &Receipt> {
        self.receipts.iter().chain(self.payload.receipt())
    }
}

/// Whether a delivery, as an engine writes it, may wait for others where its recipient lets it: it tells that an offer is out.
#[must_use]
pub fn may_linger(document: &[u8]) -> bool {
    static REJECT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#","payload":{"act":"reject","#));
    REJECT.find(document).is_some()
}

/// The envelope of a delivery.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeliveryEnvelope {
    /// The delivery id.
    pub msg_id: DeliveryId,
    /// Log time of the record that caused it.
    pub ts: WireTime,
    /// `agent://<id>` where another agent's act is passed on, otherwise [`EXCHANGE`].
    pub from: String,
    /// The recipient, as `agent://<id>`, alone.
    pub to: [String; 1],
    /// The negotiation.
    pub negotiation: NegotiationId,
    /// The recipient's message this answers.
    pub in_reply_to: Option<MsgId>,
    /// W3C trace context of the negotiation's call.
    pub traceparent: Option<String>,
}

acts! {
    /// The acts the exchange tells agents.
    FROM_EXCHANGE;
    /// What an agent is sent: one act, with what it says.
    #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(tag = "act", rename_all = "snake_case")]
    Notification {
        /// To a contractor: a call for proposals.
        Cfp(Call),
        /// To a contractor: its offer is accepted; confirm in time.
        Accept(Award),
        /// To a contractor: its offer is not, or no longer, in the running. A final notice.
        Reject(Rejection),
        /// To a contractor: its award is taken back. A final notice when it follows an ACCEPT.
        Cancel(Cancellation),
        /// To the initiator: how its negotiation goes.
        Inform(ProgressReport),
        /// To the initiator: a contractor failed.
        Failure(ContractorFailure),
        /// To the sender: the act was not one the exchange could follow.
        NotUnderstood(Misunderstanding),
        /// To everyone concerned: the negotiation ended.
        Closed(Closing),
        /// To the sender: what became of one logged message.
        Ack(Receipt),
        /// To the parties of a bargain: how it stands, and whose turn it is.
        Turn(Turn),
        /// To a seat, the ranker or a reviewer of a panel: answer.
        Ask(Box<Ask>),
        /// To the members of a team: how it stands, and who holds the floor.
        Floor(Box<Floor>),
    }
}

impl Notification {
    /// Writes it as the payload of a delivery.
    ///
    /// # Errors
    /// The encoding error, which what the core says cannot cause.
    pub fn encode(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// The receipt it is, if it is one.
    #[must_use]
    pub const fn receipt(&self) -> Option<&Receipt> {
        if let Self::Ack(receipt) = self { Some(receipt) } else { None }
    }
}

/// A call as a contractor receives it, deadlines made absolute.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Call {
    /// What is wanted.
    pub task: Option<String>,
    /// The round, counted from 1.
    pub round: u32,
    /// Collection ends then; an offer at exactly this time is on time.
    pub reply_by: WireTime,
    /// The negotiation ends then at the latest.
    pub ends_by: WireTime,
    /// The acceptance policy.
    pub policy: String,
    /// Digest of its document.
    pub policy_digest: Digest,
    /// Lots to be awarded.
    pub lots: u32,
    /// Capabilities asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<Capability>,
    /// What offers should respect.
    #[serde(default, skip_serializing_if = "Terms::is_empty")]
    pub constraints: Terms,
    /// Currency of prices.
    pub currency: Option<Currency>,
    /// Protocol documents the award can pin, the preferred first.
    pub documents: Option<CallDocuments>,
    /// Of a call to a bargain: its rules and parties. `reply_by` is then when all must have joined.
    pub bargain: Option<Box<BargainCall>>,
    /// Of a call to a team: its lead and rules. `reply_by` is then when all must have joined.
    pub team: Option<Box<TeamCall>>,
    /// Of a call to an English auction: its rules. `reply_by` is then when bidding ends.
    pub auction: Option<Box<AuctionCall>>,
    /// Of a task of a team: what is to be done.
    pub brief: Option<Box<Brief>>,
}

impl Call {
    /// A call to one lot in the first round, with nothing else in it.
    #[must_use]
    pub fn new(reply_by: WireTime, ends_by: WireTime, policy: String, policy_digest: Digest) -> Self {
        Self {
            task: None,
            round: 1,
            reply_by,
            ends_by,
            policy,
            policy_digest,
            lots: 1,
            requires: Vec::new(),
            constraints: Terms::new(),
            currency: None,
            documents: None,
            bargain: None,
            team: None,
            auction: None,
            brief: None,
        }
    }
}

/// An award as the winner receives it.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Award {
    /// The accepted offer.
    pub offer_id: OfferId,
    /// The lot.
    pub lot: Lot,
    /// The fencing token; CONFIRM repeats it.
    pub award_no: AwardNo,
    /// The accepted terms.
    pub terms: Terms,
    /// Digest of the terms.
    pub terms_digest: Digest,
    /// What is paid, in micro-units, where the terms have a price.
    pub payment: Option<i64>,
    /// The protocol document the award pins, where the call and the offer name one in common.
    pub document: Option<DocumentHash>,
    /// CONFIRM by then.
    pub confirm_by: WireTime,
    /// Of a task of a team: what is to be done.
    pub brief: Option<Box<Brief>>,
}

/// Why an offer is not awarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectReason {
    /// Others scored better.
    Outscored,
    /// It came after collection closed.
    Late,
    /// The contractor replaced it.
    Replaced,
    /// The negotiation ended without an award it could have had, or its validity ran out.
    Expired,
    /// It fails a gate.
    Policy,
    /// The initiator called it off.
    Cancelled,
    /// It was held as runner-up until another was committed.
    Awarded,
    /// The round ended without a valid offer; another begins.
    Round,
    /// Its sender withdrew it, or was excluded.
    Withdrawn,
}

impl RejectReason {
    /// Whether the negotiation goes on for who offered: another offer of theirs stands, or another round comes.
    #[must_use]
    pub const fn goes_on(self) -> bool {
        matches!(self, Self::Replaced | Self::Policy | Self::Round)
    }
}

/// A rejection.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rejection {
    /// The offer, where it was recorded.
    pub offer_id: Option<OfferId>,
    /// Why.
    pub reason: RejectReason,
    /// For `policy`: the gate, as `<attribute>.<condition>`, or `currency`, `documents`, `validity`.
    pub code: Option<String>,
}

/// An award taken back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cancellation {
    /// The award.
    pub award_no: AwardNo,
    /// `confirm_timeout`, `perform_timeout`, `cancelled`, `timeout`, `revoked`, `aborted`.
    pub reason: String,
}

/// How a negotiation goes, for its initiator.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ProgressReport {
    /// An award is registered.
    Awarded(AwardReport),
    /// `decider: initiator`: all valid offers, in a seeded permutation; ACCEPT one by `decide_by`.
    Offers(OffersReport),
    /// The contractor confirmed.
    Committed(ContractorReport),
    /// The contractor is done.
    Done(ContractorReport),
    /// The contractor is done, with a result.
    Result(ContractorReport),
    /// The contractor stopped.
    Cancelled(ContractorReport),
    /// A panel has come to a result.
    Finding(Box<Finding>),
    /// An auction has a new standing bid.
    Bid(Box<StandingBid>),
}

/// A registered award.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AwardReport {
    /// The offer.
    pub offer_id: OfferId,
    /// Its contractor.
    pub contractor: AgentId,
    /// The lot.
    pub lot: Lot,
    /// The award.
    pub award_no: AwardNo,
    /// The terms.
    pub terms: Terms,
    /// What is paid, in micro-units.
    pub payment: Option<i64>,
    /// Its score, 0 to 1 000 000.
    pub score: u32,
    /// Why collection closed.
    pub reason: CloseReason,
    /// Whether everybody invited had responded.
    pub complete: bool,
    /// Valid offers at the close.
    pub offers: u32,
    /// Digest of the decision record.
    pub decision: Digest,
    /// The protocol document the award pins, where the call and the offer name one in common.
    pub document: Option<DocumentHash>,
}

/// All valid offers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OffersReport {
    /// The offers.
    pub offers: Vec<OfferNews>,
    /// Choose by then; otherwise the score decides.
    pub decide_by: WireTime,
}

/// One valid offer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OfferNews {
    /// The offer.
    pub offer_id: OfferId,
    /// Its contractor.
    pub contractor: AgentId,
    /// Its terms.
    pub terms: Terms,
    /// Its score.
    pub score: u32,
    /// The protocol document an award of it pins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document: Option<DocumentHash>,
}

/// A contractor's report.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContractorReport {
    /// The contractor.
    pub contractor: AgentId,
    /// The award.
    pub award_no: AwardNo,
    /// The lot.
    pub lot: Lot,
    /// The result.
    pub result: Option<String>,
    /// The routine that carried the award out, where the contractor says.
    pub routine: Option<RoutineReport>,
}

/// A contractor's failure.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContractorFailure {
    /// The contractor.
    pub contractor: AgentId,
    /// The award.
    pub award_no: AwardNo,
    /// What it said.
    #[serde(flatten)]
    pub failure: Failure,
}

crate::words! {
    /// Why collection closed (docs/spec/contract-net.md#cn-20).
    pub enum CloseReason {
        /// The best score reached the threshold.
        ScoreAtLeast,
        /// Enough valid offers.
        KValid,
        /// Everybody responded.
        AllResponded,
        /// The window ended.
        Window,
        /// The collection deadline.
        Deadline,
    }
}

/// An act the exchange could not follow.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Misunderstanding {
    /// Why: `out_of_turn`, `bad_round`, `bad_deadline`, `use_failure_decommit`, ….
    pub reason: String,
    /// The acts that would have been legal.
    pub expected: Vec<Act>,
    /// JSON pointer into the message to what is at fault, where one member is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
}

crate::words! {
    /// How a negotiation ended.
    pub enum Outcome {
        /// Awarded, confirmed, performed.
        Completed,
        /// EXPIRED{no_offers}: no valid offer.
        NoOffers,
        /// EXPIRED{incomplete}: `on_incomplete: fail`, or the policy awards nobody.
        Incomplete,
        /// FAILED{no_candidate}: every award fell through.
        NoCandidate,
        /// FAILED{timeout}: the hard deadline.
        Timeout,
        /// CANCELLED by the initiator.
        Cancelled,
        /// ABORTED{internal}.
        Aborted,
        /// AGREEMENT: every party of the bargain accepted.
        Agreement,
        /// NO_AGREEMENT{rounds, deadline, step_timeout, unconfirmed, not_joined}.
        NoAgreement,
        /// ENDED by a party of the bargain.
        Ended,
        /// CONCLUDED: the team has a conclusion.
        Concluded,
        /// UNCONCLUDED{silence, deadline, rejected, left}.
        Unconcluded,
        /// NOT_FORMED: too few joined the team.
        NotFormed,
        /// CONSENSUS: more than two thirds of a panel gave the same answer.
        Consensus,
        /// PLURALITY{rounds, timeout, silence}: the answer most of a panel gave.
        Plurality,
        /// NO_ANSWER{rounds, timeout, silence}: nobody in the panel gave one.
        NoAnswer,
        /// RESERVE_NOT_MET: no bid of the auction reached the reserve.
        ReserveNotMet,
    }
}

/// The end of a negotiation.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Closing {
    /// How it ended.
    pub outcome: Outcome,
    /// Head of the hash chain over the negotiation's inputs.
    pub digest: Digest,
    /// Further detail, for example `done_before_cancel`; of a bargain `rounds`, `deadline`, `step_timeout`, `unconfirmed`,
    /// `not_joined`, or who ended it; of a team `silence`, `deadline`, `rejected`, `left`, `orphaned`; of a panel
    /// what stopped it ([`Stopped`]).
    pub detail: Option<String>,
    /// What a bargain agreed on.
    pub agreement: Option<Box<Agreement>>,
    /// What a team concluded.
    pub conclusion: Option<Box<Conclusion>>,
    /// The tasks of a team; results as digests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TeamTask>,
}

impl Closing {
    /// An end of which no more is told.
    #[must_use]
    pub const fn new(outcome: Outcome, digest: Digest) -> Self {
        Self { outcome, digest, detail: None, agreement: None, conclusion: None, tasks: Vec::new() }
    }
}

/// A public notice on `topic.<name>` or `group.<id>`: that a negotiation began or ended. Never terms, never offers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Notice {
    /// A call was published.
    Called {
        /// The negotiation.
        negotiation: NegotiationId,
        /// How many are invited.
        invited: u32,
        /// Collection ends then.
        reply_by: WireTime,
    },
    /// It ended.
    Closed {
        /// The negotiation.
        negotiation: NegotiationId,
        /// How.
        outcome: Outcome,
    },
}
