//! How a party goes into one bargain.

use std::sync::Arc;

use schemas::NegotiationId;
use schemas::bargain::Mandate;
use schemas::delivery::BargainCall;

use super::domain::Domain;
use super::strategy::{BargainStrategy, StrategyKind};
use super::utility::Preferences;
use super::{DocumentFault, Space};

/// What a party wants in one bargain, how it goes about it, and what it binds itself to.
pub struct BargainPlan {
    /// What it wants.
    pub preferences: Arc<Preferences>,
    /// What it does in its turns.
    pub strategy: Box<dyn BargainStrategy>,
    /// What the exchange holds it to; declared when it joins, told to nobody.
    pub mandate: Option<Box<Mandate>>,
    /// What it does when the exchange refuses its move.
    pub fallback: Fallback,
}

/// What a party does when the exchange refuses its offer: one outside its mandate, or made before where that is forbidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fallback {
    /// It ends the bargain.
    End,
    /// It offers the outcome nearest to it that it may agree to: a better one instead of one outside its mandate, a worse one
    /// instead of a repeat. It ends the bargain when there is none.
    #[default]
    NextBest,
}

impl BargainPlan {
    /// A plan without a mandate.
    #[must_use]
    pub fn new(preferences: Arc<Preferences>, strategy: Box<dyn BargainStrategy>) -> Self {
        Self { preferences, strategy, mandate: None, fallback: Fallback::default() }
    }

    /// The same under a mandate.
    #[must_use]
    pub fn with_mandate(mut self, mandate: Mandate) -> Self {
        self.mandate = Some(Box::new(mandate));
        self
    }
}

/// Decides whether an agent takes part in a bargain it is called to, and how. A plain function is a planner too.
pub trait Planner: Send {
    /// A plan for this bargain; `party` is the agent's place in the order of turns.
    ///
    /// # Errors
    /// Why it does not take part; the reason is told to the others.
    fn plan(&mut self, negotiation: &NegotiationId, call: &BargainCall, party: usize) -> Result<BargainPlan, String>;
}

impl<F> Planner for F
where
    F: FnMut(&NegotiationId, &BargainCall, usize) -> Result<BargainPlan, String> + Send,
{
    fn plan(&mut self, negotiation: &NegotiationId, call: &BargainCall, party: usize) -> Result<BargainPlan, String> {
        self(negotiation, call, party)
    }
}

/// Takes part in bargains over one domain, always as the same party of it.
#[derive(Debug, Clone)]
pub struct DomainPlanner {
    space: Space,
    preferences: Arc<Preferences>,
    mandate: Option<Mandate>,
    kind: StrategyKind,
    seed: u64,
}

impl DomainPlanner {
    /// Party number `party` of a domain, with a strategy, bound by the party's mandate. Draws differ from bargain to bargain
    /// and depend on the seed and the negotiation alone.
    ///
    /// # Errors
    /// A [`DocumentFault`] when there is no such party, or mandates have no words for its utility.
    pub fn try_new(domain: &Domain, party: usize, kind: StrategyKind, seed: u64) -> Result<Self, DocumentFault> {
        let mandate = Some(domain.mandate(party)?);
        Ok(Self { space: domain.space.clone(), preferences: domain.preferences(party)?, mandate, kind, seed })
    }

    /// The plan for a bargain over the domain's outcome space.
    #[must_use]
    pub fn plan_for(&self, negotiation: &NegotiationId) -> BargainPlan {
        let id = schemas::Digest::of_bytes(negotiation.as_str().as_bytes()).short();
        let seed = self.seed ^ u64::from_be_bytes(std::array::from_fn(|index| id[index]));
        let strategy = self.kind.build(Arc::clone(&self.preferences), seed);
        let plan = BargainPlan::new(Arc::clone(&self.preferences), strategy);
        match &self.mandate {
            Some(mandate) => plan.with_mandate(mandate.clone()),
            None => plan,
        }
    }
}

impl Planner for DomainPlanner {
    fn plan(&mut self, negotiation: &NegotiationId, call: &BargainCall, _party: usize) -> Result<BargainPlan, String> {
        if call.rules.issues == self.space.issues() {
            Ok(self.plan_for(negotiation))
        } else {
            Err("bargains about something else".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use schemas::AgentId;

    use super::*;
    use crate::bargain::{BargainRules, Move, TurnView};

    #[test]
    fn a_domains_planner_bargains_over_its_outcome_space_only_and_under_its_mandate() {
        let mut planner = planner(2);
        let negotiation = NegotiationId::try_new("alice~n1").unwrap();
        let plan = planner.plan(&negotiation, &call(2), 1).unwrap();
        assert_eq!(plan.mandate.map(|mandate| mandate.reservation), Some(300_000));
        assert_eq!(planner.plan(&negotiation, &call(3), 1).err().as_deref(), Some("bargains about something else"));
        let free = DomainPlanner { mandate: None, ..planner }.plan(&negotiation, &call(2), 1).unwrap();
        assert!(free.mandate.is_none());
    }

    #[test]
    fn draws_depend_on_the_negotiation_and_are_the_same_each_time() {
        let planner = planner(100);
        let moves = |name: &str| -> Vec<Move> {
            let mut plan = planner.plan_for(&NegotiationId::try_new(name).unwrap());
            let turn =
                |round| TurnView { party: 1, parties: 2, round, rounds: Some(9), t: 0.5, standing: None, offers: &[] };
            (1..10).map(|round| plan.strategy.decide(&turn(round))).collect()
        };
        assert_eq!(moves("alice~n1"), moves("alice~n1"));
        assert_ne!(moves("alice~n1"), moves("alice~n2"));
    }

    fn domain(outcomes: usize) -> Domain {
        let table = (0..outcomes).map(|outcome| outcome as f64 / outcomes as f64).collect::<Vec<_>>();
        Domain::tabular("ramp", &[outcomes], vec![(table.clone(), 0.0), (table, 0.3)], BargainRules::default()).unwrap()
    }

    fn planner(outcomes: usize) -> DomainPlanner {
        DomainPlanner::try_new(&domain(outcomes), 1, StrategyKind::Random, 1).unwrap()
    }

    fn call(outcomes: usize) -> BargainCall {
        let parties = ["alice", "bob"].map(|name| AgentId::try_new(name).unwrap()).to_vec();
        BargainCall { parties, rules: domain(outcomes).bargain() }
    }
}
