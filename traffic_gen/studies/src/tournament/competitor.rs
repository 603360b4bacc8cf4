//! Who plays: a strategy of the SDK, a negotiator of NegMAS, a model.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

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
    /// What decides for it.
    pub player: Player,
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
    /// Counts turns in which whoever sits here fails.
    pub failed_turns: &'a Arc<AtomicU64>,
}

impl Competitor {
    /// Its strategy for one bargain.
    pub fn strategy(&self, seat: &Seat<'_>) -> Box<dyn BargainStrategy> {
        let Seat { matchup, party, negotiation, seed, .. } = *seat;
        let preferences = Arc::clone(&matchup.preferences()[party]);
        match &self.player {
            Player::Strategy(kind) => kind.build(preferences, seed),
            Player::Negmas(process) => Box::new(NegmasNegotiator::new(Arc::clone(process), seat)),
            Player::Model(config, consultant) => {
                let scripted = StrategyKind::Boulware.build(Arc::clone(&preferences), seed);
                let (space, config) = (matchup.domain().space.clone(), Arc::clone(config));
                let table = PartyTable { space, preferences, config, marker_seed: seed };
                let identity = (matchup.parties()[party].agent.clone(), negotiation.clone(), None);
                let party = WaitingParty::new(table, Arc::clone(consultant), scripted, identity);
                Box::new(party.counting(Arc::clone(seat.failed_turns)))
            }
        }
    }

    /// Why the competitor cannot continue; none while it can.
    pub fn fault(&self) -> Option<String> {
        match &self.player {
            Player::Negmas(process) => process.fault(),
            Player::Strategy(_) | Player::Model(..) => None,
        }
    }
}
