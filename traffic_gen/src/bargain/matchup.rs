//! A domain with a strategy for each party: what `llmx bargain` plays.

use std::ops::ControlFlow;
use std::sync::Arc;

use agents::bargain::{BargainStrategy, DocumentFault, Domain, Move, Preferences, StrategyKind, TurnView};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use schemas::bargain::BargainSpec;

use super::Played;
use super::analysis::{Plane, PlaneError, Solutions};
use super::figures::MatchupCounts;
use super::in_memory::InMemoryExchange;
use super::run::run;
use super::session::{BargainSessionError, SessionParty};

/// Bargains on one exchange before a new one is taken: it keeps a little of each.
const BARGAINS_PER_EXCHANGE: u64 = 256;

/// Why a domain cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum MatchupError {
    /// The domain.
    #[error(transparent)]
    Domain(#[from] DocumentFault),
    /// Its utilities.
    #[error(transparent)]
    Plane(#[from] PlaneError),
    /// Strategies and parties do not match.
    #[error("{domain} has {parties} parties ({names}); {given} strategies were given")]
    Strategies {
        /// The domain.
        domain: String,
        /// Its parties.
        parties: usize,
        /// Their names.
        names: String,
        /// Strategies given.
        given: usize,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Matchup {
    domain: Domain,
    kinds: Vec<StrategyKind>,
    preferences: Vec<Arc<Preferences>>,
    parties: Vec<SessionParty>,
    rules: BargainSpec,
    plane: Plane,
    solutions: Solutions,
}

impl Matchup {
    /// A strategy for each party of a domain, in the order of the file. Parties take turns in the exchange's order: the first,
    /// then the others by name; everything here is in that order. Each party declares its mandate, where mandates have words
    /// for its utility.
    ///
    /// # Errors
    /// [`MatchupError`].
    pub fn try_new(mut domain: Domain, kinds: &[StrategyKind]) -> Result<Self, MatchupError> {
        if domain.parties.len() != kinds.len() {
            let names: Vec<&str> = domain.parties.iter().map(|party| party.name.as_str()).collect();
            return Err(MatchupError::Strategies {
                domain: domain.name,
                parties: names.len(),
                names: names.join(", "),
                given: kinds.len(),
            });
        }
        let mut order: Vec<usize> = (0..kinds.len()).collect();
        order[1..].sort_by(|&a, &b| domain.parties[a].name.cmp(&domain.parties[b].name));
        domain.parties = order.iter().map(|&party| domain.parties[party].clone()).collect();
        let kinds = order.iter().map(|&party| kinds[party]).collect();
        let preferences: Vec<_> =
            (0..domain.parties.len()).map(|party| domain.preferences(party)).collect::<Result<_, _>>()?;
        let by_party: Vec<Vec<f64>> = preferences.iter().map(|known| known.utilities().to_vec()).collect();
        let reserved: Vec<f64> = preferences.iter().map(|known| known.reservation()).collect();
        let is_allowed = |outcome| preferences.iter().all(|known: &Arc<Preferences>| known.is_acceptable(outcome));
        let plane = Plane::try_new(&by_party, &reserved)?.only(is_allowed);
        let parties = (0..domain.parties.len())
            .map(|party| SessionParty {
                agent: domain.parties[party].name.clone(),
                mandate: domain.mandate(party).ok(),
            })
            .collect();
        let (rules, solutions) = (domain.bargain(), plane.solutions());
        Ok(Self { domain, kinds, preferences, parties, rules, plane, solutions })
    }

    /// The domain, its parties in the order of their turns.
    #[must_use]
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The strategies in the order of turns.
    #[must_use]
    pub fn kinds(&self) -> &[StrategyKind] {
        &self.kinds
    }

    /// Who sits down, with which mandate, in the order of turns.
    #[must_use]
    pub fn parties(&self) -> &[SessionParty] {
        &self.parties
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &BargainSpec {
        &self.rules
    }

    /// All outcomes.
    #[must_use]
    pub fn plane(&self) -> &Plane {
        &self.plane
    }

    /// Those that stand out.
    #[must_use]
    pub fn solutions(&self) -> &Solutions {
        &self.solutions
    }

    /// The strategies, for one bargain.
    #[must_use]
    pub fn strategies(&self, seed: u64) -> Vec<Box<dyn BargainStrategy>> {
        let build = |(party, kind): (u64, &StrategyKind)| {
            let preferences = Arc::clone(&self.preferences[usize::try_from(party).unwrap_or_default()]);
            kind.build(preferences, seed.wrapping_add(party))
        };
        (0..).zip(&self.kinds).map(build).collect()
    }

    /// Runs one bargain on an exchange in memory.
    ///
    /// # Errors
    /// [`BargainSessionError`].
    pub fn run(&self, exchange: &mut InMemoryExchange, own_id: &str, seed: u64) -> Result<Played, BargainSessionError> {
        let mut strategies = self.strategies(seed);
        run(exchange, own_id, &self.parties, &self.rules, &self.domain.space, &mut strategies)
    }

    /// Plays `bargains` of them. The first party opens each with an outcome drawn from those it may agree to, and goes on by
    /// its strategy: what it gets beside what it first asked for is the anchoring. `tell` is given the tally now and then,
    /// and may break off.
    ///
    /// # Errors
    /// [`BargainSessionError`].
    pub fn repeat(
        &self,
        bargains: u64,
        seed: u64,
        mut tell: impl FnMut(&MatchupCounts) -> ControlFlow<()>,
    ) -> Result<MatchupCounts, BargainSessionError> {
        let mut tally = MatchupCounts::default();
        let mut exchange = InMemoryExchange::new();
        for number in 0..bargains {
            if number % BARGAINS_PER_EXCHANGE == 0 {
                exchange = InMemoryExchange::new();
                if tell(&tally).is_break() {
                    break;
                }
            }
            let mut random = ChaCha12Rng::seed_from_u64(seed);
            random.set_stream(number);
            let mut strategies = self.strategies(random.random());
            let openings = self.preferences[0].ranking();
            if !openings.is_empty() {
                let opening = openings[random.random_range(0..openings.len())];
                let first = OpeningScore { opening: Some(opening), then: strategies.remove(0) };
                strategies.insert(0, Box::new(first));
            }
            let space = &self.domain.space;
            let played =
                run(&mut exchange, &format!("run-{number}"), &self.parties, &self.rules, space, &mut strategies)?;
            tally.add(&self.plane, &self.solutions, &played);
        }
        Ok(tally)
    }
}

/// A strategy whose first offer is given.
struct OpeningScore {
    opening: Option<usize>,
    then: Box<dyn BargainStrategy>,
}

impl BargainStrategy for OpeningScore {
    fn decide(&mut self, view: &TurnView<'_>) -> Move {
        match self.opening.take() {
            Some(opening) => Move::Offer(opening),
            None => self.then.decide(view),
        }
    }
}
