//! A domain with a strategy for each party: what bargains are played by.

use std::sync::Arc;

use agents::bargain::{BargainStrategy, DocumentFault, Domain, Preferences, StrategyKind};
use schemas::AgentId;
use schemas::bargain::{BargainSpec, Mandate};

use super::analysis::{Plane, PlaneError, Solutions};

/// A party that sits down.
#[derive(Debug, Clone)]
pub struct SessionParty {
    /// Its name. The order of turns is the initiator, then the others by name.
    pub agent: AgentId,
    /// What it binds itself to.
    pub mandate: Option<Mandate>,
}

impl SessionParty {
    /// A party without a mandate.
    pub fn new(agent: AgentId) -> Self {
        Self { agent, mandate: None }
    }
}

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
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The strategies in the order of turns.
    pub fn kinds(&self) -> &[StrategyKind] {
        &self.kinds
    }

    /// Who sits down, with which mandate, in the order of turns.
    pub fn parties(&self) -> &[SessionParty] {
        &self.parties
    }

    /// The rules.
    pub fn rules(&self) -> &BargainSpec {
        &self.rules
    }

    /// All outcomes.
    pub fn plane(&self) -> &Plane {
        &self.plane
    }

    /// Those that stand out.
    pub fn solutions(&self) -> &Solutions {
        &self.solutions
    }

    /// The strategies, for one bargain.
    pub fn strategies(&self, seed: u64) -> Vec<Box<dyn BargainStrategy>> {
        let build = |(party, kind): (u64, &StrategyKind)| {
            let preferences = Arc::clone(&self.preferences[usize::try_from(party).unwrap_or_default()]);
            kind.build(preferences, seed.wrapping_add(party))
        };
        (0..).zip(&self.kinds).map(build).collect()
    }

    /// What each party prefers, in the order of turns.
    pub fn preferences(&self) -> &[Arc<Preferences>] {
        &self.preferences
    }
}
