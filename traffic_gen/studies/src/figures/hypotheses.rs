//! H1 to H7: what the paper claims, restated so that rounds can contradict it; and the [`bounds`] of a plan.
//!
//! Every check has a value that theory names and a tolerance within which a difference would not matter. It is held when the
//! whole interval is within the tolerance, and broken when the interval excludes what theory names and the value is
//! outside of the tolerance. Between the two it cannot be said, and the number of rounds that would do is given. Intervals
//! are corrected for how many checks a hypothesis has.

pub mod bounds;

use std::collections::BTreeMap;

use serde::Serialize;
use statrs::statistics::Statistics;

use super::group::{Group, WINS, WINS_EXPECTED, Weighted};
use super::resample::{Estimate, Interval, SEEDS_MIN};

/// Share of contractors' answers above which there is nothing for H5 to show.
const ANSWERS_MAX: f64 = 0.999;
/// Costs of waiting that H6 looks at, from a hundredth to a hundred times what makes cost and time weigh the same.
const WAITING_COSTS: usize = 41;

/// What is known of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// Every check agrees with theory as closely as matters.
    Held,
    /// A check contradicts theory.
    Broken,
    /// These rounds cannot say.
    CannotBeSaid,
}

impl Judgement {
    /// As a reader says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Broken => "broken",
            Self::CannotBeSaid => "cannot be said",
        }
    }
}

/// A hypothesis, judged.
#[derive(Debug, Clone, Serialize)]
pub struct HypothesisVerdict {
    /// Its number.
    pub id: String,
    /// What it claims.
    pub claim: String,
    /// What is known.
    pub judgement: Judgement,
    /// Why, or what is needed.
    pub reason: String,
    /// Rounds per group that would decide it, where it is only a matter of more.
    pub rounds_needed: Option<u64>,
    /// What it was judged by.
    pub checks: Vec<Check>,
}

/// One comparison with theory.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    /// What is compared.
    pub subject: String,
    /// Measured.
    pub value: f64,
    /// Where the true value lies, corrected for the number of checks.
    pub interval: Option<Interval>,
    /// What theory names.
    pub theory: f64,
    /// What difference would not matter.
    pub tolerance: f64,
    /// What is known.
    pub judgement: Judgement,
    /// Rounds it was measured in.
    pub rounds: u64,
    /// Seeds it was measured in.
    pub seeds: usize,
    /// Rounds that would decide it.
    pub rounds_needed: Option<u64>,
}

/// A comparison before it is known how many there are.
struct Compared {
    subject: String,
    estimate: Estimate,
    theory: f64,
    tolerance: f64,
    side: Side,
    rounds: u64,
}

/// On which side of what is expected a value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// On neither, beyond the tolerance.
    Near,
    /// Below.
    AtMost,
    /// Above.
    AtLeast,
}

/// How a verdict is worded.
struct Words {
    /// Before what is expected.
    expected: &'static str,
    /// Behind how many agree.
    agree: &'static str,
}

const THEORY: Words = Words { expected: "theory says", agree: "checks agree within the tolerance" };

/// Judges all seven.
pub fn all(groups: &[Group]) -> Vec<HypothesisVerdict> {
    // Where a model decides, theory of the policy's own awards says nothing.
    let is_scripted = |group: &&Group| group.cell().protocol != "alternating" && group.cell().model.is_none();
    let nets: Vec<&Group> = groups.iter().filter(is_scripted).collect();
    let mut populations: BTreeMap<String, Vec<&Group>> = BTreeMap::new();
    for group in &nets {
        populations.entry(group.population()).or_default().push(group);
    }
    let populations: Vec<Vec<&Group>> = populations.into_values().collect();
    vec![
        judged(
            "H1",
            "Regret falls with the number k of offers waited for as (n - k)/((k + 1)(n + 1)).",
            nets.iter().filter_map(|group| regret(group)).collect(),
            "needs uniform costs, and contractors that offer after the close as well",
            &THEORY,
        ),
        judged(
            "H2",
            "Time to decision rises with k as H(n) - H(n - k) mean delays.",
            populations.iter().filter_map(|groups| latency(groups)).collect(),
            "needs scripted exponential delays, and at least two policies of the same population that wait for different numbers",
            &THEORY,
        ),
        judged(
            "H3",
            "The first to offer is chosen (n - 1)/(k - 1) times as often as any one other.",
            nets.iter().filter_map(|group| advantage(group)).collect(),
            "needs awards under a policy that waits for a number of offers, two at least",
            &THEORY,
        ),
        judged(
            "H4",
            "How many messages a negotiation takes does not depend on the policy, unless the close comes before the last offer.",
            populations.iter().flat_map(|groups| messages(groups)).collect(),
            "needs at least two policies of the same population whose completed rounds have every offer in time",
            &THEORY,
        ),
        judged(
            "H5",
            "Where contractors are silent at times, rounds with all answers fall as q^n; completion does so too only if the \
             policy fails on a missing answer.",
            nets.iter().flat_map(|group| completion(group)).collect(),
            "needs a policy that waits for all, and contractors that are silent at times",
            &THEORY,
        ),
        threshold(&populations),
        judged(
            "H7",
            "Sealed scoring brings the first-proposal advantage to 1 with a model in the loop, a list to choose from does not.",
            groups.iter().filter_map(drawn).collect(),
            "needs a deciding model",
            &THEORY,
        ),
    ]
}

fn judged(id: &str, claim: &str, compared: Vec<Compared>, needs: &str, words: &Words) -> HypothesisVerdict {
    let family = compared.len();
    let checks: Vec<Check> = compared.into_iter().map(|compared| compared.check(family)).collect();
    let has = |judgement| checks.iter().filter(move |check: &&Check| check.judgement == judgement);
    let rounds_needed = has(Judgement::CannotBeSaid).filter_map(|check| check.rounds_needed).max();
    let (judgement, reason) = if checks.is_empty() {
        (Judgement::CannotBeSaid, needs.to_owned())
    } else if let Some(broken) = has(Judgement::Broken).next() {
        let Check { subject, value, theory, .. } = broken;
        (Judgement::Broken, format!("{subject}: {value:.3} where {} {theory:.3}", words.expected))
    } else if let Some(open) = has(Judgement::CannotBeSaid).next() {
        (Judgement::CannotBeSaid, open.needed())
    } else {
        (Judgement::Held, format!("{family} of {family} {}", words.agree))
    };
    HypothesisVerdict { id: id.to_owned(), claim: claim.to_owned(), judgement, reason, rounds_needed, checks }
}

impl Side {
    /// Whether a whole interval is where it may be.
    fn holds(self, interval: Interval, theory: f64, tolerance: f64) -> bool {
        let is_below = interval.high <= theory + tolerance;
        let is_above = interval.low >= theory - tolerance;
        match self {
            Self::Near => is_below && is_above,
            Self::AtMost => is_below,
            Self::AtLeast => is_above,
        }
    }
}

impl Compared {
    /// With what theory names, and its tolerance to both sides.
    fn near(subject: String, estimate: Estimate, (theory, tolerance): (f64, f64), rounds: u64) -> Self {
        Self { subject, estimate, theory, tolerance, side: Side::Near, rounds }
    }

    fn check(self, family: usize) -> Check {
        let Self { subject, estimate, theory, tolerance, side, rounds } = self;
        let (value, seeds) = (estimate.value, estimate.seeds());
        let interval = estimate.interval_among(family);
        let distance = (value - theory).abs();
        let judgement = match interval.filter(|_| seeds >= SEEDS_MIN) {
            Some(interval) if side.holds(interval, theory, tolerance) => Judgement::Held,
            Some(interval) if !interval.holds(theory) && distance > tolerance => Judgement::Broken,
            Some(_) | None => Judgement::CannotBeSaid,
        };
        // Half the width that would bring the nearer of the two judgements; intervals narrow with the root of the rounds.
        let wanted = if distance < tolerance { (tolerance - distance).max(tolerance / 4.0) } else { distance };
        let factor = interval.map(|interval| (interval.half_width() / wanted).powi(2));
        let by_seeds = SEEDS_MIN as f64 / seeds.max(1) as f64;
        let rounds_needed = (judgement == Judgement::CannotBeSaid)
            .then(|| (rounds as f64 * factor.unwrap_or(1.0).max(by_seeds)).ceil() as u64)
            .map(|needed| needed.max(rounds + 1));
        Check { subject, value, interval, theory, tolerance, judgement, rounds, seeds, rounds_needed }
    }
}

impl Check {
    /// What would decide it.
    fn needed(&self) -> String {
        let Self { subject, rounds, seeds, .. } = self;
        let needed = self.rounds_needed.unwrap_or(*rounds);
        let per_seed = (*rounds as f64 / (*seeds).max(1) as f64).max(1.0);
        let seeds_needed = ((needed as f64 / per_seed).ceil() as usize).max(SEEDS_MIN);
        format!(
            "{subject}: {rounds} rounds of {seeds} seeds are too few; needs about {needed}, {seeds_needed} seeds as long as these"
        )
    }
}

/// Of a group, told what of it is compared.
fn compared(
    group: &Group,
    what: &str,
    expected: (f64, f64),
    of: impl Fn(Weighted<'_>) -> Option<f64>,
) -> Option<Compared> {
    Some(Compared::near(format!("{}{what}", group.name), group.estimate(of)?, expected, group.rounds()))
}

/// Regret in parts of the range, to a tenth of what theory says.
fn regret(group: &Group) -> Option<Compared> {
    let (expected, beyond) =
        group.whole(|seeds| Some((seeds.mean("theory regret")?, seeds.mean("beyond the first")?)))?;
    if group.is_threshold() || beyond == 0.0 {
        return None;
    }
    let range = group.uniform_range()?;
    compared(group, "", (expected, expected / 10.0 + 0.005), |seeds| Some(seeds.mean("regret")? / range))
}

/// Slope of the time to decision on the time theory says, over policies; what the exchange itself takes is the intercept.
fn latency(groups: &[&Group]) -> Option<Compared> {
    let delay = groups.iter().filter_map(|group| group.exponential_delay()).max_by(f64::total_cmp)?;
    // Of one that closes early the delays are not known, and its contractors are taken for alike.
    let is_alike = |group: &&&Group| group.exponential_delay().is_none_or(|own| own > delay * 0.8);
    let points = groups.iter().filter(is_alike).filter_map(|group| {
        let expected = group.whole(|seeds| seeds.mean("theory arrival"))? * delay;
        Some((expected, group.estimate(|seeds| seeds.mean("decision"))?))
    });
    let (expected, measured): (Vec<f64>, Vec<Estimate>) = points.unzip();
    let spread = expected.iter().population_variance();
    if measured.len() < 2 || spread.sqrt() < delay / 20.0 {
        return None;
    }
    let slope = |measured: &[f64]| expected.iter().population_covariance(measured.iter()) / spread;
    let subject = format!("slope over {} policies, {} contractors", measured.len(), groups[0].cell().contractors);
    let estimate = Estimate::combined(&measured.iter().collect::<Vec<_>>(), slope);
    Some(Compared::near(subject, estimate, (1.0, 0.1), groups.iter().map(|group| group.rounds()).min()?))
}

/// The advantage in parts of what theory says.
fn advantage(group: &Group) -> Option<Compared> {
    let expected = group.whole(|seeds| seeds.first_proposal_advantage(WINS_EXPECTED))?;
    if group.is_threshold() {
        return None;
    }
    compared(group, ", advantage", (expected, expected * 0.2), |seeds| seeds.first_proposal_advantage(WINS))
}

/// The advantage where a model decides that reads offers in a drawn order.
fn drawn(group: &Group) -> Option<Compared> {
    let cell = group.cell();
    let is_drawn = cell.model.is_some() && cell.labels.get("order").is_some_and(|order| order == "drawn");
    is_drawn.then(|| compared(group, ", advantage", (1.0, 0.2), |seeds| seeds.first_proposal_advantage(WINS)))?
}

/// Messages of each policy in parts of those of the first.
fn messages(groups: &[&Group]) -> Vec<Compared> {
    let full =
        groups.iter().filter_map(|group| Some((group, group.estimate(|seeds| seeds.mean("messages of full rounds"))?)));
    let full: Vec<_> = full.collect();
    let Some((first, rest)) = full.split_first() else { return Vec::new() };
    let ratio = |(group, estimate): &(&&Group, Estimate)| {
        let subject = format!("{} against {}", group.name, first.0.name);
        let estimate = Estimate::combined(&[estimate, &first.1], |values| values[0] / values[1]);
        Compared::near(subject, estimate, (1.0, 0.02), group.rounds().min(first.0.rounds()))
    };
    rest.iter().map(ratio).collect()
}

/// Rounds with all answers, and completed ones, less what the chance of an answer says.
fn completion(group: &Group) -> Vec<Compared> {
    let answers = group.whole(|seeds| seeds.mean("answered"));
    if !group.waits_for_all() || answers.is_none_or(|answers| answers > ANSWERS_MAX) {
        return Vec::new();
    }
    let n = f64::from(group.cell().contractors);
    let is_strict = group.cell().policy.contains("strict");
    let all = compared(group, ", share with all answers less theory", (0.0, 0.05), |seeds| {
        Some(seeds.mean("all answered")? - seeds.mean("answered")?.powf(n))
    });
    let completed = compared(group, ", completion less theory", (0.0, 0.05), |seeds| {
        let answers = seeds.mean("answered")?;
        let expected = if is_strict { answers.powf(n) } else { 1.0 - (1.0 - answers).powf(n) };
        Some(seeds.mean("completed")? - expected)
    });
    [all, completed].into_iter().flatten().collect()
}

/// Whether there is a cost of waiting at which the threshold policy costs less in all than every fixed number of offers.
fn threshold(populations: &[Vec<&Group>]) -> HypothesisVerdict {
    let mut verdict = HypothesisVerdict {
        id: "H6".to_owned(),
        claim: "At the cost of waiting it is made for, a threshold policy is better in cost and time together than every fixed number of offers."
            .to_owned(),
        judgement: Judgement::CannotBeSaid,
        reason:
            "needs a threshold policy and at least two policies with a fixed number of offers over the same population"
                .to_owned(),
        rounds_needed: None,
        checks: Vec::new(),
    };
    for groups in populations {
        let losses = |group: &&&Group| {
            Some((group.estimate(|seeds| seeds.mean("chosen cost"))?, group.estimate(|seeds| seeds.mean("decision"))?))
        };
        let (thresholds, fixed): (Vec<&&Group>, Vec<&&Group>) = groups.iter().partition(|group| group.is_threshold());
        let fixed: Vec<(Estimate, Estimate)> = fixed.iter().filter_map(losses).collect();
        for group in thresholds {
            if let Some(own) = losses(&group).filter(|_| fixed.len() >= 2) {
                judge_threshold(group, &own, &fixed, &mut verdict);
            }
        }
    }
    verdict
}

fn judge_threshold(
    group: &Group,
    own: &(Estimate, Estimate),
    fixed: &[(Estimate, Estimate)],
    verdict: &mut HypothesisVerdict,
) {
    let range = |of: fn(&(Estimate, Estimate)) -> f64| {
        let values: Vec<f64> = fixed.iter().map(of).collect();
        Statistics::max(values.as_slice()) - Statistics::min(values.as_slice())
    };
    let even = range(|losses| losses.0.value) / range(|losses| losses.1.value);
    let mut parts = vec![&own.0, &own.1];
    parts.extend(fixed.iter().flat_map(|losses| [&losses.0, &losses.1]));
    let difference = |cost: f64| {
        Estimate::combined(&parts, |values| {
            let losses: Vec<f64> = values.chunks(2).map(|pair| pair[0] + cost * pair[1]).collect();
            losses[0] - Statistics::min(&losses[1..])
        })
    };
    let checks = (0..WAITING_COSTS).map(|step| {
        let cost = even * 10_f64.powf(step as f64 / 10.0 - 2.0);
        let subject = format!("{} at {:.3} cost per second", group.name, cost * 1e6);
        Compared::near(subject, difference(cost), (0.0, 0.0), group.rounds()).check(WAITING_COSTS)
    });
    let checks: Vec<Check> = checks.filter(|check| check.interval.is_some() && check.seeds >= SEEDS_MIN).collect();
    let margin = |check: &Check| check.value / check.interval.map_or(1.0, |interval| interval.half_width().max(1e-12));
    let Some(best) = checks.iter().min_by(|a, b| margin(a).total_cmp(&margin(b))) else {
        verdict.reason = format!("{}: needs at least {SEEDS_MIN} seeds", group.name);
        return;
    };
    (verdict.judgement, verdict.reason) = match margin(best) {
        better if better < -1.0 => {
            (Judgement::Held, format!("{}: {:.3} below the best fixed number", best.subject, -best.value))
        }
        worse if worse > 1.0 => (Judgement::Broken, format!("{}: at no cost of waiting is it the best", group.name)),
        _ => (Judgement::CannotBeSaid, best.needed()),
    };
    verdict.rounds_needed = (verdict.judgement == Judgement::CannotBeSaid).then_some(best.rounds_needed).flatten();
    verdict.checks.push(best.clone());
}
