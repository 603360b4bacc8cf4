//! What the parties of a bargain want: utilities over its outcomes, the mandates that declare them, the offers they make.
//! Mandates carry values that can be recognised wherever they should not turn up.

use schemas::WireTime;
use schemas::bargain::mandate::utility_ppm;
use schemas::bargain::space::OutcomeSpace;
use schemas::bargain::{
    ATTR_ROUND, BargainSpec, Comparison, Concession, Conditions, Issue, IssueValues, IssueWorth, Mandate, PPM,
    Predicate, Utility, Worth,
};
use schemas::delivery::{Delivery, Turn};
use schemas::payload::{AttrValue, Offer, Terms};

use super::{AgentContext, MARK, MARKED_MIN};
use crate::faults::AgentFault;
use crate::scenario::attr_name;

/// How many outcomes a party looks at before it offers the best of them.
const OUTCOMES_SEEN: u64 = 6;
/// Offers that are valid for a short time, whoever makes them, in per mille.
const BRIEF: u32 = 150;

/// What one party wants of a bargain.
#[derive(Debug, Clone)]
pub(super) struct Preferences {
    rules: BargainSpec,
    /// As the agent itself would declare it.
    mandate: Mandate,
}

impl Preferences {
    /// What an agent wants, and what of it it declares.
    pub(super) fn draw(context: &mut AgentContext, rules: &BargainSpec) -> (Self, Option<Mandate>) {
        let issues = u32::try_from(rules.issues.len()).unwrap_or(1);
        let mut rest = 1000;
        let mut worths = Vec::new();
        for (index, issue) in (1..).zip(&rules.issues) {
            let weight = if index == issues { rest } else { rest / 2 };
            rest -= weight;
            worths.push(IssueWorth { issue: issue.name.clone(), weight, worth: worth_of(context, issue) });
        }
        let reservation = u32::try_from(context.draw(u64::from(MARKED_MIN)..500_000)).unwrap_or(MARKED_MIN);
        let utility = Utility::Linear(worths);
        let own = Mandate { utility: Some(utility), reservation, ..Mandate::default() };
        let declared = context.happens(600).then(|| declare(context, rules, own.clone()));
        (Self { rules: rules.clone(), mandate: own }, declared)
    }

    /// What terms are worth to the agent, 0 to a million.
    pub(super) fn worth(&self, terms: &Terms) -> u32 {
        let space = OutcomeSpace::new(&self.rules.issues);
        space.ok().and_then(|space| utility_ppm(&self.mandate, space, terms)).unwrap_or_default()
    }

    /// Whether the agent may agree to terms by its own lights.
    pub(super) fn is_acceptable(&self, terms: &Terms) -> bool {
        self.worth(terms) >= self.mandate.reservation
    }

    /// The best of a few outcomes, or the worst, or none at all.
    pub(super) fn offer(
        &self,
        context: &mut AgentContext,
        delivery: &Delivery,
        turn: &Turn,
        overreaches: bool,
    ) -> Option<Offer> {
        let outcomes: Vec<Terms> = (0..OUTCOMES_SEEN).map(|_| self.outcome(context)).collect();
        let by_worth = |terms: &Terms| self.worth(terms);
        let mut terms = if overreaches {
            outcomes.into_iter().min_by_key(by_worth)?
        } else {
            outcomes.into_iter().max_by_key(by_worth)?
        };
        if context.errs(AgentFault::OfferUnfit) {
            terms.insert(attr_name("bribe"), AttrValue::Int(1));
        }
        let is_brief = context.happens(BRIEF) || context.errs(AgentFault::OfferBrief);
        let valid_for_ms = is_brief.then(|| context.draw(5..200));
        let conditions = context.errs(AgentFault::Revise).then(|| {
            let value = AttrValue::Int(i64::from(turn.round) + 1);
            Conditions::Predicates(vec![Predicate { attr: attr_name(ATTR_ROUND), op: Comparison::Le, value }])
        });
        let valid_from = (is_brief && context.happens(200)).then(|| WireTime(delivery.envelope.ts.0.plus_ms(100)));
        Some(Offer { terms, valid_for_ms, valid_from, conditions, ..Offer::default() })
    }

    fn outcome(&self, context: &mut AgentContext) -> Terms {
        let mut terms = Terms::new();
        for issue in &self.rules.issues {
            let value = match &issue.values {
                IssueValues::Discrete { values } => values[context.index(values.len())].clone(),
                IssueValues::Range { min, max } => {
                    let width = max.abs_diff(*min);
                    AttrValue::Int(min.saturating_add_unsigned(context.draw(0..width + 1)))
                }
            };
            terms.insert(issue.name.clone(), value);
        }
        terms
    }
}

/// Ends that lie far apart, so that parties want different things.
fn worth_of(context: &mut AgentContext, issue: &Issue) -> Worth {
    match &issue.values {
        IssueValues::Discrete { values } => Worth::Listed {
            worth: values.iter().map(|_| u32::try_from(context.draw(0..1_000_001)).unwrap_or(PPM)).collect(),
        },
        IssueValues::Range { .. } if context.happens(500) => Worth::Linear { at_min: PPM, at_max: 0 },
        IssueValues::Range { .. } => Worth::Linear { at_min: 0, at_max: PPM },
    }
}

fn declare(context: &mut AgentContext, rules: &BargainSpec, own: Mandate) -> Mandate {
    let policy = ["bargain-low", "bargain-medium", "bargain-high"];
    let policy = context.happens(500).then(|| policy[context.index(policy.len())].to_owned());
    let concession = match context.draw(0..4) {
        0 => Some(Concession::Boulware(u32::try_from(context.draw(2..5)).unwrap_or(2))),
        1 => Some(Concession::Conceder(u32::try_from(context.draw(2..5)).unwrap_or(2))),
        2 => Some(Concession::Linear),
        _ => None,
    };
    // One that always holds, and says whose it is.
    let mark = AttrValue::Text(format!("{MARK}{}", context.id));
    let mut limits = vec![Predicate { attr: rules.issues[0].name.clone(), op: Comparison::Ne, value: mark }];
    let range = rules.issues.iter().find_map(|issue| match issue.values {
        IssueValues::Range { min, max } => Some((issue.name.clone(), min, max)),
        IssueValues::Discrete { .. } => None,
    });
    if let Some((attr, min, max)) = range
        && context.happens(300)
    {
        let op = if context.happens(500) { Comparison::Le } else { Comparison::Ge };
        limits.push(Predicate { attr, op, value: AttrValue::Int(i64::midpoint(min, max)) });
    }
    Mandate { policy, limits, concession, ..own }
}
