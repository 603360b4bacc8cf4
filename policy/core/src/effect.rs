//! Everything the core may ask of the world, and every fact it reports. Read as a specification of the shell.

use std::sync::Arc;

use schemas::delivery::{Cancellation, CloseReason, Disposition, Notice, Notification, Outcome, Receipt};
use schemas::record::Qos;
use schemas::team::TaskMode;
use schemas::{
    Act, Address, AgentId, AwardNo, DeliveryId, Lot, MsgId, NegotiationId, OfferId, RegisterKey, RegisterValue,
    Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::acceptance::decision::{AwardLoss, Decision};
use crate::panel::decision::PanelDecision;
use schemas::protocols::{Phase, Protocol};

/// One request to the world, or one fact about it.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Deliver to one agent's inbox, retried until acknowledged or expired.
    Deliver(Deliver),
    /// Write to the write-once register. Always queued before the effects that wait for its key.
    Register(RegisterWrite),
    /// Publish a notice without terms; at most once.
    Notice(PublicNotice),
    /// A fact, for metrics and traces. Nothing to do.
    Event(Event),
}

/// A delivery to one agent. Checkpoints hold it but for what it says, which stands there once for all that say the same:
/// whoever reads one sets [`Deliver::told`]. Its fields stand in the order of their declaration.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Deliver {
    /// The same on every engine and every repeat: the hash of (negotiation, position, ordinal, recipient), behind the
    /// lane. The position of an effect caused by a timer is (sequence of the record that fired it, `u32::MAX - k`) for
    /// the k-th timer that record fires, so it cannot meet the position of an entry.
    pub id: DeliveryId,
    /// The recipient.
    pub to: AgentId,
    /// The negotiation.
    pub negotiation: NegotiationId,
    /// The agent whose act is passed on; absent when the exchange itself speaks.
    pub from: Option<AgentId>,
    /// The recipient's message this answers.
    pub in_reply_to: Option<MsgId>,
    /// What is said; shared between the recipients of a call.
    #[serde(skip, default = "untold")]
    pub told: Arc<Notification>,
    /// The receipts that waited for a delivery to this recipient, in the order of its messages.
    #[serde(with = "schemas::text::json")]
    pub receipts: Box<[Receipt]>,
    /// Log time of the record that caused it.
    pub at: Timestamp,
    /// Retry until then.
    pub expires: Timestamp,
    /// How it is delivered.
    pub qos: Qos,
    /// Most attempts, where fewer than usual: a call whose silence counts as an answer.
    pub attempts_max: Option<u32>,
    /// Hold it back until this key is registered.
    pub after: Option<RegisterKey>,
    /// Not to be sent: its recipient was answered so after the end, on another message (docs/spec/deliveries.md#dl-44).
    #[serde(skip)]
    pub told_before: bool,
    /// W3C trace context of the negotiation's call.
    pub traceparent: Option<Arc<str>>,
}

/// What stands in a delivery that was read until what it says is set.
fn untold() -> Arc<Notification> {
    Arc::new(Notification::Cancel(Cancellation { award_no: AwardNo(0), reason: String::new() }))
}

impl Deliver {
    /// Every receipt it carries: those that waited, then the one it may be itself.
    pub fn receipts_told(&self) -> impl Iterator<Item = &Receipt> {
        self.receipts.iter().chain(self.told.receipt())
    }
}

/// A write to the register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterWrite {
    /// The key.
    pub key: RegisterKey,
    /// Its one value.
    pub value: RegisterValue,
    /// Write only once this earlier key is registered.
    pub after: Option<RegisterKey>,
}

/// A notice to the topics and groups a call was addressed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicNotice {
    /// Topics and groups; never agents.
    pub to: Arc<[Address]>,
    /// The notice.
    pub notice: Notice,
}

/// A named invariant (ARCHITECTURE.md, "What must never happen") the fold checks on itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Invariant {
    /// At most one live award per lot.
    OneAward,
    /// A late, expired, withdrawn or gate-failing offer never wins.
    NoLateWinner,
    /// Every accepted offer ends in exactly one final notice.
    FinalNotice,
    /// In a bargain turns rotate, and nobody accepts its own offer, or one that is over.
    TurnOrder,
}

impl Invariant {
    /// The name as it stands in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// What members of a panel are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum AskKind {
    /// Seats: their answers.
    Answer,
    /// The ranker: an order.
    Rank,
    /// Reviewers: what they say of the answers.
    Review,
}

/// How a turn of a team was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum TurnKind {
    /// SAY of something new.
    Say,
    /// ASSIGN.
    Assign,
    /// PAUSE.
    Pause,
    /// CONCLUDE.
    Conclude,
    /// The floor was held in silence.
    Silence,
    /// SAY of what was said before.
    Repeat,
}

/// A fact. Durations are log time, in microseconds since the call.
#[derive(Debug, Clone)]
pub enum Event {
    /// A call opened a negotiation.
    Started {
        /// The negotiation.
        negotiation: NegotiationId,
        /// Its protocol.
        protocol: Protocol,
        /// The state it begins in: the protocol's first, but for a task whose owner is named.
        phase: Phase,
        /// Policy id; of a bargain the name of the protocol, because its policies belong to sealed mandates.
        policy: Arc<str>,
        /// Agents called.
        invited: u32,
        /// Addressed agents the gateway left out.
        left_out: u32,
        /// When.
        at: Timestamp,
    },
    /// A logged message got its disposition.
    Disposed {
        /// The negotiation it names.
        negotiation: NegotiationId,
        /// Its sender.
        from: AgentId,
        /// Its act.
        act: Act,
        /// What became of it.
        disposition: Disposition,
        /// Score of an offer that satisfies the gates, late ones included (regret is computed from it).
        score: Option<u32>,
        /// When.
        at: Timestamp,
    },
    /// The state changed.
    Transition {
        /// The negotiation.
        negotiation: NegotiationId,
        /// Its protocol.
        protocol: Protocol,
        /// From.
        from: Phase,
        /// To.
        to: Phase,
    },
    /// Collection closed.
    Closed {
        /// The negotiation.
        negotiation: NegotiationId,
        /// Its protocol.
        protocol: Protocol,
        /// The round.
        round: u32,
        /// Why.
        reason: CloseReason,
        /// Whether everybody called had responded.
        complete: bool,
        /// Valid offers.
        offers: u32,
        /// Contractors that responded.
        responded: u32,
        /// Contractors called.
        expected: u32,
        /// When; for a timer its deadline, not the record that fired it.
        at: Timestamp,
        /// Since the call.
        elapsed_us: u64,
    },
    /// An award was decided.
    Decided(Arc<Decision>),
    /// Members of a panel were asked.
    Asked {
        /// The negotiation.
        negotiation: NegotiationId,
        /// For what.
        kind: AskKind,
        /// In which round.
        round: u32,
        /// How many.
        count: u32,
        /// When.
        at: Timestamp,
    },
    /// A turn of a team was taken.
    TurnTaken {
        /// The team.
        negotiation: NegotiationId,
        /// How.
        kind: TurnKind,
    },
    /// A task of a team has ended.
    TaskEnded {
        /// The task.
        negotiation: NegotiationId,
        /// Whether the team waited for it.
        mode: TaskMode,
        /// Whether the assigner named its owner; otherwise an award found it.
        is_direct: bool,
        /// Whether it has a result.
        is_done: bool,
    },
    /// A panel has come to a result.
    Found(Arc<PanelDecision>),
    /// A contractor was struck out.
    Excluded {
        /// The negotiation.
        negotiation: NegotiationId,
        /// The contractor.
        contractor: AgentId,
    },
    /// An award became binding.
    Committed {
        /// The negotiation.
        negotiation: NegotiationId,
        /// The lot.
        lot: Lot,
        /// The award.
        award_no: AwardNo,
        /// The contractor.
        contractor: AgentId,
        /// Since the call.
        elapsed_us: u64,
    },
    /// An award fell through.
    AwardLost {
        /// The negotiation.
        negotiation: NegotiationId,
        /// The lot.
        lot: Lot,
        /// The award.
        award_no: AwardNo,
        /// The contractor.
        contractor: AgentId,
        /// How.
        loss: AwardLoss,
    },
    /// The negotiation ended.
    Ended {
        /// The negotiation.
        negotiation: NegotiationId,
        /// Its protocol.
        protocol: Protocol,
        /// Policy id, as in [`Event::Started`].
        policy: Arc<str>,
        /// Agents called.
        invited: u32,
        /// How.
        outcome: Outcome,
        /// Rounds of collection; of a bargain the round it ended in, 0 before its first turn.
        rounds: u32,
        /// Offers with disposition `ok`.
        offers: u32,
        /// ACCEPTs sent; of a bargain 1 when it came to an agreement.
        awards: u32,
        /// When.
        at: Timestamp,
        /// Since the call.
        elapsed_us: u64,
    },
    /// An engine took the lane.
    Claimed {
        /// The engine.
        engine: Arc<str>,
        /// Its epoch.
        epoch: u64,
    },
    /// The fold caught itself breaking a rule: a fault of ours, worth waking someone.
    InvariantViolated {
        /// The negotiation.
        negotiation: NegotiationId,
        /// The invariant.
        invariant: Invariant,
        /// The offer concerned.
        offer: Option<OfferId>,
    },
}
