//! What a run came to: everything the recorder of the contract net watches, and what only bargains have.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agents::bargain::{BargainEvent, BargainOutcome, BargainReport, TurnView};
use agents::observer::{Observed, Observer};
use schemas::bargain::BargainSpec;
use schemas::delivery::{Notification, Outcome};
use schemas::{Act, AgentId, NegotiationId};
use tokio::time::Instant;

use super::Catalog;
use crate::bargain::figures::MatchupCounts;
use crate::bargain::{BargainEnd, Played};
use crate::latency::Latency;
use crate::recorder::Recorder;

/// What only bargains have.
#[derive(Debug, Clone, Default)]
pub struct Traded {
    /// Agreements and how good they are.
    pub tally: MatchupCounts,
    /// Turns taken in bargains that have ended.
    pub steps: u64,
    /// From sending a move until the party whose turn is next knows of it; the last move: until the first party is told the
    /// end. Moves that were refused are not counted.
    pub step: Latency,
    /// Bargains and agreements, by domain.
    pub by_domain: BTreeMap<String, (u64, u64)>,
    /// Why there was no agreement.
    pub without: BTreeMap<String, u64>,
    /// Moves the exchange refused.
    pub refused: u64,
    /// Agents that would not, or could not, take part.
    pub declined: u64,
}

#[derive(Default)]
struct LedgerState {
    traded: Traded,
    domains: BTreeMap<NegotiationId, usize>,
    /// The move under way in a bargain: there is one at a time.
    moves: BTreeMap<NegotiationId, Instant>,
}

/// Hears of a bargain that has ended: which, over which domain of the catalog, and what came of it.
pub type EndListener = Box<dyn Fn(&NegotiationId, usize, &Played) + Send + Sync>;

/// Watches every agent of a run. One lock, held for microseconds per event.
pub struct Ledger {
    recorder: Arc<Recorder>,
    catalog: Arc<Catalog>,
    ended: Option<EndListener>,
    inner: Mutex<LedgerState>,
}

impl Ledger {
    /// An empty ledger in front of a recorder, which hears everything too.
    #[must_use]
    pub fn new(recorder: Arc<Recorder>, catalog: Arc<Catalog>) -> Self {
        Self { recorder, catalog, ended: None, inner: Mutex::new(LedgerState::default()) }
    }

    /// The same, which passes on every end.
    #[must_use]
    pub fn with_ended(self, ended: EndListener) -> Self {
        Self { ended: Some(ended), ..self }
    }

    /// The recorder.
    #[must_use]
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// What it has come to so far.
    #[must_use]
    pub fn traded(&self) -> Traded {
        self.lock().traded.clone()
    }

    /// A bargain over a domain of the catalog is about to be opened; its latencies count from `intended`.
    pub fn opened(&self, negotiation: NegotiationId, domain: usize, intended: Instant) {
        self.lock().domains.insert(negotiation.clone(), domain);
        self.recorder.call_due(negotiation, intended);
    }

    /// An agent's news.
    pub fn note(&self, event: BargainEvent) {
        let mut inner = self.lock();
        match event.report {
            BargainReport::Ended(outcome) if outcome.party == 0 => {
                inner.moves.remove(&event.negotiation);
                let Some(domain) = inner.domains.remove(&event.negotiation) else { return };
                let (plane, solutions) = self.catalog.plane(domain);
                let played = played(&outcome, &self.catalog.rules(domain));
                let traded = &mut inner.traded;
                traded.steps += u64::from(played.steps);
                traded.tally.add(plane, solutions, &played);
                let (bargains, agreements) = traded.by_domain.entry(self.catalog.name(domain).to_owned()).or_default();
                *bargains += 1;
                *agreements += u64::from(played.agreement().is_some());
                if let Some(why) = why_not(&played.end) {
                    *traded.without.entry(why.to_owned()).or_default() += 1;
                }
                drop(inner);
                self.ended.iter().for_each(|ended| ended(&event.negotiation, domain, &played));
            }
            BargainReport::Misunderstood(_) => inner.traded.refused += 1,
            BargainReport::Declined { .. } => inner.traded.declined += 1,
            BargainReport::Refused(_)
            | BargainReport::TurnedDown(_)
            | BargainReport::Unanswered
            | BargainReport::Lost => {
                inner.domains.remove(&event.negotiation);
            }
            BargainReport::Ended(_) | BargainReport::Joined { .. } | BargainReport::Opened { .. } => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, LedgerState> {
        // A panic while counting leaves counts that are still worth reading.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Ledger {
    fn handle(&self, agent: &AgentId, at: Instant, event: Observed<'_>) {
        self.recorder.handle(agent, at, event);
        match event {
            Observed::Transmitted { negotiation, act: Act::Offer | Act::Accept | Act::End, attempt: 1, .. } => {
                self.lock().moves.insert(negotiation.clone(), at);
            }
            Observed::Delivered { delivery, is_repeat: false } => {
                let is_next = match &delivery.payload {
                    Notification::Turn(turn) => turn.party == *agent,
                    Notification::Closed(_) => delivery.envelope.negotiation.initiator() == agent.as_str(),
                    Notification::Cfp(_)
                    | Notification::Accept(_)
                    | Notification::Reject(_)
                    | Notification::Cancel(_)
                    | Notification::Inform(_)
                    | Notification::Failure(_)
                    | Notification::NotUnderstood(_)
                    | Notification::Ack(_)
                    | Notification::Ask(_)
                    | Notification::Floor(_) => false,
                };
                if !is_next {
                    return;
                }
                let mut inner = self.lock();
                if let Some(moved) = inner.moves.remove(&delivery.envelope.negotiation) {
                    inner.traded.step.record(at.saturating_duration_since(moved));
                }
            }
            Observed::Transmitted { .. }
            | Observed::Delivered { .. }
            | Observed::Connected
            | Observed::Disconnected
            | Observed::Deferred { .. }
            | Observed::Decided { .. }
            | Observed::Settled { .. } => {}
        }
    }
}

/// What an outcome says, in the words of the analysis.
fn played(outcome: &BargainOutcome, rules: &BargainSpec) -> Played {
    let detail = outcome.detail.clone().unwrap_or_default();
    let by = outcome.offers.last().map_or(0, |offer| offer.party);
    let end = match (outcome.outcome, outcome.agreed) {
        (Outcome::Agreement, Some(outcome)) => BargainEnd::Agreement { outcome, by },
        (Outcome::NoAgreement, _) => BargainEnd::NoAgreement { detail },
        (Outcome::Ended, _) => BargainEnd::Ended { by: detail },
        (
            Outcome::Agreement
            | Outcome::Completed
            | Outcome::NoOffers
            | Outcome::Incomplete
            | Outcome::NoCandidate
            | Outcome::Timeout
            | Outcome::Cancelled
            | Outcome::Aborted
            | Outcome::Concluded
            | Outcome::Unconcluded
            | Outcome::NotFormed
            | Outcome::Consensus
            | Outcome::Plurality
            | Outcome::NoAnswer,
            _,
        ) => BargainEnd::Stopped,
    };
    let relative_time = rules.rounds.map_or(0.0, |rounds| TurnView::relative_time(outcome.round, rounds));
    let (rounds, steps, trace) = (outcome.round, outcome.steps, outcome.offers.clone());
    Played { end, rounds, steps, relative_time, trace }
}

fn why_not(end: &BargainEnd) -> Option<&str> {
    match end {
        BargainEnd::Agreement { .. } => None,
        BargainEnd::NoAgreement { detail } => Some(detail),
        BargainEnd::Ended { .. } => Some("ended"),
        BargainEnd::Stopped => Some("stopped"),
    }
}
