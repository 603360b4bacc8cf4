//! What a run came to: everything the recorder of the contract net watches, and what only bargains have.

use std::collections::BTreeMap;
use std::sync::Arc;

use agents::bargain::{BargainEvent, BargainOutcome, BargainReport, TurnView};
use agents::observer::{Observed, Observer};
use schemas::bargain::BargainSpec;
use schemas::delivery::Notification;
use schemas::{Act, AgentId, NegotiationId};
use tokio::time::Instant;

use super::Catalog;
use crate::bargain::figures::MatchupCounts;
use crate::bargain::{BargainEnd, Played};
use crate::latency::Latency;
use crate::load::Ledger;

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

/// What is known of the bargains of a run.
pub struct BargainState {
    traded: Traded,
    catalog: Arc<Catalog>,
    ended: Option<Arc<EndListener>>,
    domains: BTreeMap<NegotiationId, usize>,
    /// The move under way in a bargain: there is one at a time.
    moves: BTreeMap<NegotiationId, Instant>,
}

/// Hears of a bargain that has ended: which, over which domain of the catalog, and what came of it.
pub type EndListener = dyn Fn(&NegotiationId, usize, &Played) + Send + Sync;

impl BargainState {
    /// Nothing yet, of bargains over a catalog.
    pub fn new(catalog: Arc<Catalog>) -> Self {
        Self { traded: Traded::default(), catalog, ended: None, domains: BTreeMap::new(), moves: BTreeMap::new() }
    }
}

/// Watches every agent of a run of bargains.
pub type BargainLedger = Ledger<BargainState>;

impl BargainLedger {
    /// Passes on every end from now on.
    pub fn on_end(&self, ended: Arc<EndListener>) {
        self.lock().ended = Some(ended);
    }

    /// What it has come to so far.
    pub fn traded(&self) -> Traded {
        self.lock().traded.clone()
    }

    /// A bargain over a domain of the catalog is about to be opened; its latencies count from `intended`.
    pub fn opened(&self, negotiation: NegotiationId, domain: usize, intended: Instant) {
        self.lock().domains.insert(negotiation.clone(), domain);
        self.recorder().call_due(negotiation, intended);
    }

    /// An agent's news.
    pub fn note(&self, event: BargainEvent) {
        let mut state = self.lock();
        let inner = &mut *state;
        match event.report {
            BargainReport::Ended(outcome) if outcome.party == 0 => {
                inner.moves.remove(&event.negotiation);
                let Some(domain) = inner.domains.remove(&event.negotiation) else { return };
                let (plane, solutions) = inner.catalog.plane(domain);
                let played = played(&outcome, &inner.catalog.rules(domain));
                let traded = &mut inner.traded;
                traded.steps += u64::from(played.steps);
                traded.tally.add(plane, solutions, &played);
                let (bargains, agreements) = traded.by_domain.entry(inner.catalog.name(domain).to_owned()).or_default();
                *bargains += 1;
                *agreements += u64::from(played.agreement().is_some());
                if let Some(why) = why_not(&played.end) {
                    *traded.without.entry(why.to_owned()).or_default() += 1;
                }
                let ended = inner.ended.clone();
                drop(state);
                ended.iter().for_each(|ended| ended(&event.negotiation, domain, &played));
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
}

impl Observer for BargainLedger {
    fn handle(&self, agent: &AgentId, at: Instant, event: Observed<'_>) {
        self.recorder().handle(agent, at, event);
        if let Observed::Transmitted { negotiation, act: Act::Offer | Act::Accept | Act::End, attempt: 1, .. } = event {
            self.lock().moves.insert(negotiation.clone(), at);
        }
        let Observed::Delivered { delivery, is_repeat: false } = event else { return };
        let negotiation = &delivery.envelope.negotiation;
        let is_turn = matches!(&delivery.payload, Notification::Turn(turn) if turn.party == *agent);
        let is_end = matches!(delivery.payload, Notification::Closed(_)) && negotiation.initiator() == agent.as_str();
        if is_turn || is_end {
            let mut state = self.lock();
            if let Some(moved) = state.moves.remove(negotiation) {
                state.traded.step.record(at.saturating_duration_since(moved));
            }
        }
    }
}

/// What an outcome says, in the words of the analysis.
fn played(outcome: &BargainOutcome, rules: &BargainSpec) -> Played {
    let by = outcome.offers.last().map_or(0, |offer| offer.party);
    let end = BargainEnd::of(outcome.outcome, outcome.agreed.map(|agreed| (agreed, by)), outcome.detail.as_deref());
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
