//! Who plays: a strategy of the SDK, a negotiator of NegMAS, a model.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agents::bargain::{BargainStrategy, StrategyKind};
use agents::model::ModelAgentConfig;
use agents::model::party::PartyTable;
use schemas::NegotiationId;
use traffic_gen::bargain::matchup::Matchup;

use super::negmas::{NegmasNegotiator, NegmasProcess};
use crate::model::blocking::BlockingConsultant;
use crate::model::waiting::WaitingParty;

/// A competitor, which plays either party of every domain.
pub struct Competitor {
    /// What it is called.
    pub name: String,
    /// What it is made of: another competitor of this name is another one.
    pub made_of: String,
    player: Player,
    failed_turns: Arc<AtomicU64>,
}

/// What decides for a competitor.
pub enum Player {
    /// A strategy of the SDK.
    Strategy(StrategyKind),
    /// A negotiator of NegMAS.
    Negmas(Arc<NegmasProcess>),
    /// A model; it is shown no words of the other party.
    Model(Arc<ModelAgentConfig>, Arc<BlockingConsultant>),
}

/// The place of a party in a bargain.
pub struct Seat<'a> {
    /// Place of the domain in the plan.
    pub place: usize,
    /// Outcomes and preferences.
    pub matchup: &'a Matchup,
    /// 0 calls and has the first turn, 1 is called.
    pub party: usize,
    /// The bargain.
    pub negotiation: &'a NegotiationId,
    /// Seed of what the party draws.
    pub seed: u64,
}

impl Competitor {
    /// A competitor that has not played.
    #[must_use]
    pub fn new(name: String, made_of: String, player: Player) -> Self {
        Self { name, made_of, player, failed_turns: Arc::default() }
    }

    /// Its strategy for one bargain.
    #[must_use]
    pub fn strategy(&self, seat: &Seat<'_>) -> Box<dyn BargainStrategy> {
        let Seat { matchup, party, negotiation, seed, .. } = *seat;
        let (preferences, failed) = (Arc::clone(&matchup.preferences()[party]), Arc::clone(&self.failed_turns));
        match &self.player {
            Player::Strategy(kind) => kind.build(preferences, seed),
            Player::Negmas(process) => Box::new(NegmasNegotiator::new(Arc::clone(process), seat, failed)),
            Player::Model(config, consultant) => {
                let scripted = StrategyKind::Boulware.build(Arc::clone(&preferences), seed);
                let (space, config) = (matchup.domain().space.clone(), Arc::clone(config));
                let table = PartyTable { space, preferences, config, marker_seed: seed };
                let identity = (matchup.parties()[party].agent.clone(), negotiation.clone(), None);
                Box::new(WaitingParty::new(table, Arc::clone(consultant), scripted, identity).counting(failed))
            }
        }
    }

    /// Turns in which it failed so far.
    #[must_use]
    pub fn failed_turns(&self) -> u64 {
        self.failed_turns.load(Ordering::Relaxed)
    }

    /// Why it cannot go on, where it cannot.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        match &self.player {
            Player::Negmas(process) => process.fault(),
            Player::Strategy(_) | Player::Model(..) => None,
        }
    }
}
