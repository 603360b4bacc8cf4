//! What is bargained about in a run: the domains shipped with the project.

use agents::bargain::{BargainPlan, DocumentFault, Domain, DomainPlanner, StrategyKind};
use schemas::bargain::BargainSpec;
use schemas::{Digest, NegotiationId};

use crate::bargain::analysis::{Plane, Solutions};
use crate::bargain::matchup::{Matchup, MatchupError};

/// The shipped domain files.
const SHIPPED: [&str; 5] = [
    include_str!("../../../../domains/ecommerce.json"),
    include_str!("../../../../domains/scheduling.json"),
    include_str!("../../../../domains/service_level.json"),
    include_str!("../../../../domains/car_purchase.json"),
    include_str!("../../../../domains/three_party.json"),
];

/// Domains with everything that is the same in each of their bargains.
#[derive(Debug)]
pub struct Catalog {
    goods: Vec<Good>,
}

#[derive(Debug)]
struct Good {
    matchup: Matchup,
    /// By party, by strategy in the order of [`StrategyKind::ALL`].
    planners: Vec<Vec<DomainPlanner>>,
}

impl Catalog {
    /// The domains shipped with the project.
    ///
    /// # Panics
    /// Never: a test reads the same files.
    pub fn shipped() -> Self {
        let read = |text: &str| Domain::parse(text).expect("a shipped domain is one");
        Self::try_new(SHIPPED.into_iter().map(read).collect()).expect("a shipped domain can be bargained over")
    }

    /// These domains.
    ///
    /// # Errors
    /// [`MatchupError`] when one of them cannot be bargained over under mandates.
    pub fn try_new(domains: Vec<Domain>) -> Result<Self, MatchupError> {
        Ok(Self { goods: domains.into_iter().map(Good::try_new).collect::<Result<_, _>>()? })
    }

    /// How many domains.
    #[expect(clippy::len_without_is_empty, reason = "a catalog without domains is never asked")]
    pub fn len(&self) -> usize {
        self.goods.len()
    }

    /// How many parties a domain has.
    pub fn parties(&self, domain: usize) -> usize {
        self.goods[domain].planners.len()
    }

    /// The name of a domain.
    pub fn name(&self, domain: usize) -> &str {
        &self.goods[domain].matchup.domain().name
    }

    /// The rules of a domain's bargains.
    pub fn rules(&self, domain: usize) -> BargainSpec {
        self.goods[domain].matchup.rules().clone()
    }

    /// All outcomes of a domain, and those that stand out.
    pub fn plane(&self, domain: usize) -> (&Plane, &Solutions) {
        let matchup = &self.goods[domain].matchup;
        (matchup.plane(), matchup.solutions())
    }

    /// The domain a call is about.
    pub fn domain_of(&self, rules: &BargainSpec) -> Option<usize> {
        self.goods.iter().position(|good| good.matchup.rules().issues == rules.issues)
    }

    /// How a party goes into a bargain: by one of these strategies, which one depends on the seed, the bargain and the party
    /// alone.
    ///
    /// # Panics
    /// When there is no such domain or party, or no strategy.
    pub fn plan(
        &self,
        domain: usize,
        party: usize,
        negotiation: &NegotiationId,
        kinds: &[StrategyKind],
        seed: u64,
    ) -> BargainPlan {
        let place = party as u64;
        let drawn = Digest::of_parts(&[&seed.to_be_bytes(), negotiation.as_str().as_bytes(), &place.to_be_bytes()]);
        let kind = kinds[usize::from(drawn.short()[0]) % kinds.len()];
        let planners = &self.goods[domain].planners[party];
        let at = StrategyKind::ALL.iter().position(|known| *known == kind).expect("all strategies are listed");
        planners[at].plan_for(negotiation)
    }
}

impl Good {
    fn try_new(domain: Domain) -> Result<Self, MatchupError> {
        let kinds = vec![StrategyKind::Linear; domain.parties.len()];
        let matchup = Matchup::try_new(domain, &kinds)?;
        let planners_of = |party: usize| {
            let planner =
                |(seed, kind): (u64, StrategyKind)| DomainPlanner::try_new(matchup.domain(), party, kind, seed);
            (0..).zip(StrategyKind::ALL.iter().copied()).map(planner).collect::<Result<Vec<_>, DocumentFault>>()
        };
        let planners = (0..kinds.len()).map(planners_of).collect::<Result<_, _>>()?;
        Ok(Self { matchup, planners })
    }
}
