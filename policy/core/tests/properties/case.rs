//! A case: up to three negotiations in one lane, and what everybody does. Moves name things by index ("my last award",
//! "the seventh delivery") and are resolved while the case runs, so that a shorter case is still a sensible one.

use schemas::Policy;
use schemas::payload::{FailurePhase, InformKind};

/// Contractors there are: `c0` to `c7`.
pub(crate) const CONTRACTORS: u8 = 8;
/// Protocol documents that calls and offers name.
pub(crate) const DOCUMENTS: u8 = 3;

/// One case.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) plans: Vec<Plan>,
    pub(crate) moves: Vec<Move>,
    /// What is said after everything has ended.
    pub(crate) epilogue: Vec<Move>,
    /// Messages remembered of one party; 64 is the exchange's own limit.
    pub(crate) messages_per_party_max: usize,
    pub(crate) tombstone_grace_ms: u64,
    /// Whether the drain also sends ticks at exactly a deadline, when nothing is due yet.
    pub(crate) has_early_ticks: bool,
    /// How far beyond a deadline a draining tick comes, in microseconds.
    pub(crate) lag_us: u64,
}

/// One negotiation.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) policy: Policy,
    /// Indices of the invited contractors; the first plan's initiator may be a contractor of the others.
    pub(crate) contractors: Vec<u8>,
    pub(crate) invites_first_initiator: bool,
    /// Called before this move.
    pub(crate) called_before: usize,
    /// `reply_within_ms`, where the call names one.
    pub(crate) reply_within_ms: Option<u64>,
    /// `scope.ttl` in seconds.
    pub(crate) ttl_s: Option<u64>,
    pub(crate) has_currency: bool,
    /// The protocol documents the call names, by their numbers, and whether it requires one.
    pub(crate) documents: Option<(Vec<u8>, bool)>,
    pub(crate) is_public: bool,
}

/// One move.
#[derive(Debug, Clone)]
pub(crate) struct Move {
    /// Whether its entry shares the record of the one before (group commit).
    pub(crate) joins: bool,
    pub(crate) time: TimeStep,
    /// Index of the plan, modulo their number.
    pub(crate) negotiation: usize,
    pub(crate) action: Action,
}

/// When, from the record before.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TimeStep {
    Same,
    Us(u64),
    Ms(u64),
    /// The log's clock went back.
    BackMs(u64),
    /// Exactly the next deadline, when everything is still on time; with nothing open, the last instant of a tombstone.
    Deadline,
    /// The first instant after it.
    PastDeadline,
}

/// What happens.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    /// A contractor does what its last delivery asks for.
    Sensible(Who, OfferPlan),
    /// Anyone says anything.
    Say(Who, ActPlan, SeqPlan),
    /// The n-th message so far is repeated, byte for byte.
    Repeat(usize),
    /// Its id is used again for another body.
    Conflict(usize),
    /// Its body cannot be read.
    Garble(usize),
    /// Someone speaks in a negotiation that does not exist.
    Nowhere(Who),
    /// The outbox gives up the n-th delivery from the end that can fail; the engine's epoch is that of the lane plus
    /// this.
    Undelivered(usize, i8),
    Claim(i8),
    Abort(i8),
    Delivered,
    Rules(i8),
    Tick,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Who {
    /// Index into the plan's contractors, modulo their number.
    Contractor(usize),
    /// The contractor of the n-th last ACCEPT.
    Winner(usize),
    Initiator,
    /// Any of the eight contractors, invited or not.
    Outsider(u8),
}

#[derive(Debug, Clone)]
pub(crate) enum ActPlan {
    Cfp,
    Offer(OfferPlan),
    Refuse(RoundPlan),
    NotUnderstood(RoundPlan),
    Withdraw(RoundPlan),
    /// The n-th of the offers there are, or one that does not exist.
    Accept(usize),
    Confirm(AwardPlan),
    Inform(InformKind, RoutinePlan),
    Failure(FailurePhase),
    Cancel(RoundPlan),
}

#[derive(Debug, Clone)]
pub(crate) struct OfferPlan {
    /// In tenths of the policy's range of prices; few values, so that offers tie.
    pub(crate) price: Price,
    pub(crate) delivery_ms: i64,
    pub(crate) colour: Option<bool>,
    pub(crate) validity: Validity,
    pub(crate) currency: Option<bool>,
    pub(crate) round: RoundPlan,
    /// The protocol documents it names, by their numbers.
    pub(crate) documents: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Price {
    Tenths(i64),
    Off(i64),
    Absent,
    Text,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Validity {
    Always,
    ForMs(u64),
    /// Up to exactly the lane's next deadline.
    UntilDeadline,
    Past,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum RoundPlan {
    Unnamed,
    Current,
    Earlier,
    Later,
}

/// What a report says of its routine.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RoutinePlan {
    Unnamed,
    Language,
    /// The document that the sender's last award pins; nothing, where it pins none.
    Pinned,
    /// One that no award pins.
    Foreign,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum AwardPlan {
    Latest,
    First,
    /// The latest plus this: somebody else's, or nobody's.
    Beside(i32),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum SeqPlan {
    /// Every other party numbers its messages.
    Habit,
    Low,
    Absent,
}
