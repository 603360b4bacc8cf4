//! What evidence says of an agent in one number, and whom it recommends (docs/spec/panel.md#reputation).

use std::cmp::Reverse;

use schemas::evidence::{EvidenceCounts, EvidenceSource};
use schemas::panel::{ChooseSpec, SeatChoice};
use schemas::payload::INTEGER_MAX;
use schemas::{AgentId, Digest, NegotiationId};

/// The reputation of a fair share of importance, and of whoever has not shown enough: parts per million.
pub const REPUTATION_AVERAGE_PPM: u64 = 1_000_000;
/// Panels of average importance that count beside those of an agent, where a rule says no other number.
pub const PRIOR_RUNS: u32 = 10;
/// Fewest initiators whose panels make a median.
const INITIATORS_MIN: usize = 3;

/// How evidence becomes a reputation.
#[derive(Debug, Clone, Copy)]
pub struct ReputationBasis<'a> {
    /// Whose panels count.
    pub from: &'a EvidenceSource,
    /// Who asks: the initiator that [`EvidenceSource::Own`] means.
    pub own: &'a AgentId,
    /// Panels it takes to have a reputation; under [`EvidenceSource::All`] of each initiator.
    pub min_runs: u32,
    /// Panels of average importance that count beside them.
    pub prior_runs: u32,
}

/// An agent's importance as a share of the average, in parts per million; none without enough evidence. `shown` is what
/// panels of each initiator have shown about it in one domain; under [`EvidenceSource::All`] each initiator once.
#[must_use]
pub fn reputation<'e>(
    shown: impl Iterator<Item = (&'e AgentId, EvidenceCounts)>,
    basis: ReputationBasis<'_>,
) -> Option<u64> {
    let is_enough = |counts: &EvidenceCounts| counts.runs >= u64::from(basis.min_runs);
    let sum = |counts: EvidenceCounts, (_, more): (&AgentId, EvidenceCounts)| {
        let mut sum = counts;
        sum.add(&more);
        sum
    };
    let none = EvidenceCounts::default();
    let summed = match basis.from {
        EvidenceSource::Own => shown.filter(|(initiator, _)| *initiator == basis.own).fold(none, sum),
        EvidenceSource::Agents(agents) => shown.filter(|(initiator, _)| agents.contains(initiator)).fold(none, sum),
        EvidenceSource::All => {
            let enough = shown.map(|(_, counts)| counts).filter(is_enough);
            let mut each: Vec<u64> = enough.map(|counts| smoothed(&counts, basis.prior_runs)).collect();
            each.sort_unstable();
            let middle = each.len().saturating_sub(1) / 2;
            return each.get(middle).copied().filter(|_| each.len() >= INITIATORS_MIN);
        }
    };
    is_enough(&summed).then(|| smoothed(&summed, basis.prior_runs))
}

/// floor(10^6 · (total · runs + prior · fair) / (fair · (runs + prior))).
fn smoothed(counts: &EvidenceCounts, prior_runs: u32) -> u64 {
    let [runs, total, fair] = [counts.runs, counts.total_e12, counts.fair_e12].map(u128::from);
    let prior = u128::from(prior_runs);
    let over = total.saturating_mul(runs).saturating_add(prior.saturating_mul(fair));
    let under = fair.saturating_mul(runs.saturating_add(prior));
    let ppm = over.saturating_mul(u128::from(REPUTATION_AVERAGE_PPM)).checked_div(under);
    let ppm = ppm.map_or(REPUTATION_AVERAGE_PPM, |ppm| u64::try_from(ppm).unwrap_or(u64::MAX));
    ppm.min(INTEGER_MAX.unsigned_abs())
}

/// Whom evidence recommends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecommendedSeats {
    /// In the order of their ids.
    pub seats: Vec<AgentId>,
    /// Everybody is recommended where too few have shown enough, to learn about them.
    pub choice: SeatChoice,
}

/// The `keep` of highest reputation, and `newcomers` of those that have none, drawn by a hash of the negotiation. Everybody
/// where fewer than `keep` have a reputation. Each candidate once, with its reputation.
#[must_use]
pub fn choose(
    negotiation: &NegotiationId,
    rule: &ChooseSpec,
    candidates: &[(AgentId, Option<u64>)],
) -> RecommendedSeats {
    let hash = |agent: &AgentId| Digest::of_parts(&[negotiation.as_str().as_bytes(), agent.as_str().as_bytes()]);
    let known = candidates.iter().filter_map(|(agent, reputation)| Some((Reverse((*reputation)?), hash(agent), agent)));
    let mut known: Vec<_> = known.collect();
    let [keep, newcomers] = [rule.keep, rule.newcomers].map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    let (choice, mut seats) = if known.len() < keep {
        (SeatChoice::Trial, candidates.iter().map(|(agent, _)| agent.clone()).collect::<Vec<_>>())
    } else {
        known.sort_unstable();
        let new = candidates.iter().filter(|(_, reputation)| reputation.is_none());
        let mut new: Vec<_> = new.map(|(agent, _)| (hash(agent), agent)).collect();
        new.sort_unstable();
        let kept = known.into_iter().take(keep).map(|(_, _, agent)| agent);
        let chosen = kept.chain(new.into_iter().take(newcomers).map(|(_, agent)| agent));
        (SeatChoice::Chosen, chosen.cloned().collect())
    };
    seats.sort_unstable();
    RecommendedSeats { seats, choice }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reputation_is_the_mean_importance_drawn_towards_the_average() {
        let of = |runs, total_e12, prior_runs| {
            let counts = EvidenceCounts { runs, total_e12, fair_e12: runs * 500, ..EvidenceCounts::default() };
            let (own, from) = (agent("alice"), EvidenceSource::Own);
            let basis = ReputationBasis { from: &from, own: &own, min_runs: 10, prior_runs };
            reputation([(&own, counts)].into_iter(), basis)
        };
        assert_eq!(of(9, 9_000, 10), None, "below `min_runs`");
        assert_eq!(of(10, 5_000, 10), Some(1_000_000));
        assert_eq!(of(10, 10_000, 10), Some(1_500_000), "twice the fair share in ten panels, and ten fair ones");
        assert_eq!(of(10, 10_000, 0), Some(2_000_000));
        assert_eq!(of(90, 0, 10), Some(100_000));
        assert_eq!(of(10, 10_001, 3), Some(1_769_384), "rounded down");
        assert_eq!(of(u64::MAX / 500, u64::MAX, 10).map(|ppm| ppm > 0), Some(true), "no sum overflows");
    }

    #[test]
    fn strangers_panels_count_by_their_median_only_and_the_own_not_at_all_by_them() {
        let counts = |runs, factor| EvidenceCounts {
            runs,
            total_e12: runs * factor,
            fair_e12: runs * 10,
            ..EvidenceCounts::default()
        };
        let names: Vec<AgentId> = ["alice", "bob", "carl", "dora", "few"].map(agent).into();
        let shown = [counts(10, 10), counts(10, 30), counts(10, 20), counts(10, 40), counts(9, 90)];
        let of = |from: &EvidenceSource, taken: usize| {
            let basis = ReputationBasis { from, own: &names[0], min_runs: 10, prior_runs: 0 };
            reputation(names.iter().zip(shown).skip(5 - taken), basis)
        };
        assert_eq!(of(&EvidenceSource::Own, 5), Some(1_000_000));
        assert_eq!(of(&EvidenceSource::Own, 4), None);
        assert_eq!(of(&EvidenceSource::All, 5), Some(2_000_000), "the lower median of four");
        assert_eq!(of(&EvidenceSource::All, 4), Some(3_000_000));
        assert_eq!(of(&EvidenceSource::All, 3), None, "two initiators have called enough panels");
        assert_eq!(of(&EvidenceSource::Agents(vec![names[0].clone(), names[1].clone()]), 5), Some(2_000_000));
        assert_eq!(of(&EvidenceSource::Agents(vec![names[4].clone()]), 5), None);
        let together = EvidenceSource::Agents(vec![names[4].clone(), names[0].clone()]);
        assert_eq!(of(&together, 5), Some(4_789_473), "sums of 19 panels");
    }

    #[test]
    fn the_best_are_chosen_with_a_newcomer_and_everybody_where_too_few_are_known() {
        let negotiation = NegotiationId::try_new("alice~panel").unwrap();
        let candidates: Vec<(AgentId, Option<u64>)> =
            [("ann", Some(2)), ("bob", None), ("cyd", Some(3)), ("dan", Some(1)), ("eve", None)]
                .map(|(name, reputation)| (agent(name), reputation))
                .into();
        let chosen = choose(&negotiation, &rule(2, 1), &candidates);
        assert_eq!(chosen.choice, SeatChoice::Chosen);
        let known: Vec<&str> =
            chosen.seats.iter().map(AgentId::as_str).filter(|name| !["bob", "eve"].contains(name)).collect();
        assert_eq!((known, chosen.seats.len()), (vec!["ann", "cyd"], 3));
        assert_eq!(choose(&negotiation, &rule(3, 0), &candidates).seats, ["ann", "cyd", "dan"].map(agent));
        let trial = choose(&negotiation, &rule(4, 0), &candidates);
        assert_eq!((trial.choice, trial.seats.len()), (SeatChoice::Trial, 5));

        let drawn = |number: usize| {
            let negotiation = NegotiationId::try_new(&format!("alice~panel-{number}")).unwrap();
            let equal: Vec<_> = candidates.iter().map(|(name, _)| (name.clone(), Some(7))).collect();
            (choose(&negotiation, &rule(1, 0), &equal).seats, choose(&negotiation, &rule(1, 1), &candidates).seats)
        };
        let draws: Vec<_> = (0..64).map(drawn).collect();
        let distinct = |mut names: Vec<Vec<AgentId>>| {
            names.sort_unstable();
            names.dedup();
            names.len()
        };
        assert_eq!(distinct(draws.iter().map(|(equal, _)| equal.clone()).collect()), 5, "ties are drawn");
        assert_eq!(distinct(draws.iter().map(|(_, new)| new.clone()).collect()), 2, "newcomers are drawn");
    }

    fn rule(keep: u32, newcomers: u32) -> ChooseSpec {
        ChooseSpec { keep, from: EvidenceSource::Own, min_runs: 10, newcomers }
    }

    fn agent(name: &str) -> AgentId {
        AgentId::try_new(name).unwrap()
    }
}
