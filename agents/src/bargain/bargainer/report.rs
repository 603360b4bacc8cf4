//! What a bargaining agent reports.

use schemas::delivery::{Agreement, Disposition, Misunderstanding, Outcome};
use schemas::{NegotiationId, Refusal, Timestamp};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::bargain::strategy::OfferMade;

/// Something that happened in a bargain.
#[derive(Debug, Clone)]
pub struct BargainEvent {
    /// The bargain.
    pub negotiation: NegotiationId,
    /// Local time at which the agent learned it.
    pub at: Instant,
    /// Log time of the record that caused it. Of a message of our own: the log time as far as we can tell.
    pub log_time: Timestamp,
    /// What happened.
    pub report: BargainReport,
}

/// What happened in a bargain.
#[derive(Debug, Clone, PartialEq)]
pub enum BargainReport {
    /// Called by another, the agent takes part.
    Joined {
        /// Its place in the order of turns, from 0.
        party: usize,
        /// How many parties there are.
        parties: usize,
    },
    /// Called by another, the agent does not take part. The last event.
    Declined {
        /// The reason it gave.
        reason: String,
    },
    /// The agent's own call is open.
    Opened {
        /// How many are invited.
        invited: u32,
        /// How many were left out ([`Pinned::left_out`](schemas::record::Pinned::left_out)).
        left_out: u32,
    },
    /// The agent's call, or its JOIN, was refused at the gateway. The last event.
    Refused(Refusal),
    /// The agent's own call is in the log, but the exchange did not open it. The last event but for the reason, which
    /// follows as [`BargainReport::Misunderstood`] where there is one.
    TurnedDown(Disposition),
    /// Nobody answered the agent's own call, however often it was sent: it may or may not exist. The last event.
    Unanswered,
    /// The exchange refused something the agent said, and told why.
    Misunderstood(Misunderstanding),
    /// The bargain ended. The last event.
    Ended(Box<BargainOutcome>),
    /// The bargain must have ended, and nobody told how. The last event.
    Lost,
}

impl BargainReport {
    /// Whether the bargain is over for the agent.
    #[must_use]
    pub fn is_last(&self) -> bool {
        !matches!(self, Self::Joined { .. } | Self::Opened { .. } | Self::Misunderstood(_))
    }
}

/// How a bargain ended for one party, as far as it was told.
#[derive(Debug, Clone, PartialEq)]
pub struct BargainOutcome {
    /// How it ended.
    pub outcome: Outcome,
    /// `rounds`, `deadline`, `step_timeout`, `unconfirmed`, `not_joined`, or who ended it.
    pub detail: Option<String>,
    /// The party, counted from 0 in the order of turns.
    pub party: usize,
    /// How many parties there were; 0 when the agent never learned it.
    pub parties: usize,
    /// What was agreed on.
    pub agreement: Option<Agreement>,
    /// The outcome agreed on.
    pub agreed: Option<usize>,
    /// What it is worth to this party.
    pub utility: Option<f64>,
    /// Turns taken. Without an agreement the last turn is told to nobody but who took it.
    pub steps: u32,
    /// The round it ended in, counted from 1; 0 when it never began.
    pub round: u32,
    /// The offers, in their order. Without an agreement the last is known to nobody but who made it.
    pub offers: Vec<OfferMade>,
}

/// Sends events to who listens.
pub(super) struct Reporter {
    pub(super) events: mpsc::Sender<BargainEvent>,
    pub(super) dropped: u64,
}

impl Reporter {
    /// Local time is read here, where the report leaves the pure part: what it means has been decided without it.
    pub(super) fn tell(&mut self, negotiation: &NegotiationId, log_time: Timestamp, report: BargainReport) {
        let event = BargainEvent { negotiation: negotiation.clone(), at: Instant::now(), log_time, report };
        if self.events.try_send(event).is_err() {
            self.dropped += 1;
        }
    }
}
