//! What rating to one's own advantage brings: an agent that rates nobody else well, rings that rate each other, liars, and panels
//! staged by strangers.

use std::fmt;

use policy_core::panel::reputation::{PRIOR_RUNS, REPUTATION_AVERAGE_PPM, ReputationBasis, reputation};
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use schemas::AgentId;
use schemas::delivery::Ask;
use schemas::evidence::{EvidenceCounts, EvidenceSource};
use schemas::panel::{Asking, ChooseSpec, PanelAnswer, PanelSpec};
use serde::Serialize;

use super::DylanVerdict;
use super::crowd::{Crowd, MIN_RUNS, StubAgent, StubRating, add_all, best, judge, name, relative};
use super::folded::{FoldedPanels, OPTIONS, QUESTION, answered, rules};
use super::play::StubRanker;

/// Seeds unless others are asked for.
pub const SEEDS: u64 = 60;
const PANELS: u64 = 281;
const AGENTS: usize = 7;
/// Of those whose importance is looked at as the best.
const TOP: usize = 4;
const ACCURACY: f64 = 0.75;
/// Of the members of a ring.
const RING_ACCURACY: f64 = 0.35;
const DISCERNMENT: f64 = 0.8;
const LONE: &[usize] = &[6];
const TWO: &[usize] = &[5, 6];
const THREE: &[usize] = &[4, 5, 6];
/// What must hold: importance of one that rates only itself well, without and with its own ratings; seeds of [`SEEDS`] in which a
/// member of a ring of two comes among the best, by support and by a ranking agent; accuracy that ring may cost.
const LONE_APART: f64 = 0.03;
const COUNTED_MIN: f64 = 1.04;
const TOP_SHARE_MAX: [f64; 2] = [0.1, 2.0 / 60.0];
const LOST_MAX: f64 = 0.04;

/// Ranks by what it makes of the answers.
const JUDGING: StubRanker = StubRanker::Agent(|answers, random: &mut ChaCha8Rng| {
    let mut places: Vec<(usize, u32)> =
        answers.iter().enumerate().map(|(place, answer)| (place, judge(DISCERNMENT, *answer, random))).collect();
    places.shuffle(random);
    places.sort_by_key(|(_, rating)| std::cmp::Reverse(*rating));
    places.into_iter().map(|(place, _)| place).collect()
});

/// What gaming brings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GamingReport {
    /// Seeds played.
    pub seeds: u64,
    /// One that rates everybody else 1 and itself 5.
    pub lone: LoneGaming,
    /// Rings and liars.
    pub groups: Vec<GroupGaming>,
    /// Panels staged by strangers.
    pub staged: StagedGaming,
}

/// Mean importance of one that rates only itself well, 1 being a fair share.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LoneGaming {
    /// As panels compute it.
    pub relative: f64,
    /// Had ratings of own answers counted.
    pub counted: f64,
}

/// What became of agents that act together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupGaming {
    /// Who, and who ranks.
    pub what: &'static str,
    /// How many.
    pub members: usize,
    /// Seeds in which one of them is among the best four.
    pub top: u64,
    /// Their mean importance, 1 being a fair share.
    pub relative: f64,
    /// How often a panel is right.
    pub accuracy: f64,
    /// The same with honest agents in their place: of the same accuracy, in place of liars of the others'.
    pub accuracy_honest: f64,
}

/// The reputation of an agent before and after strangers have staged panels in which it alone contributes, in parts per million.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StagedGaming {
    /// Panels staged.
    pub panels: u64,
    /// From the panels of each honest initiator, before and after.
    pub own: Vec<[u64; 2]>,
    /// From those of all initiators, before and after.
    pub all: [u64; 2],
    /// The same of panels that are called and staged through the fold: what calls that choose their seats pin.
    pub called: CalledStaging,
}

/// What calls pin of one agent before and after strangers have staged panels, in parts per million.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CalledStaging {
    /// From the panels of each honest initiator, before and after.
    pub own: Vec<[u64; 2]>,
    /// From those of all initiators, before and after.
    pub all: [u64; 2],
}

/// Honest initiators, the panels of each, and strangers that stage as many panels as [`STAGED`] says.
const HONEST_INITIATORS: usize = 3;
const HONEST_PANELS: u64 = 50;
const STRANGERS: usize = 2;
const STAGED: u64 = 1_000;

/// Strangers stage panels to praise the first agent.
fn staged(seed: u64) -> StagedGaming {
    let everybody: Vec<usize> = (0..AGENTS).collect();
    let honest = |initiator: usize| {
        let agents = vec![StubAgent::honest(ACCURACY, DISCERNMENT); AGENTS];
        let crowd = Crowd { agents, ranker: StubRanker::Support, seed: seed.wrapping_add(initiator as u64) };
        let mut shown = [EvidenceCounts::default(); AGENTS];
        (0..HONEST_PANELS).for_each(|panel| add_all(&mut shown, crowd.play(panel, &everybody).importance.as_ref()));
        shown[0]
    };
    let panels = STAGED / STRANGERS as u64;
    // Nobody contributes but the one that is praised.
    let praised = EvidenceCounts {
        runs: panels,
        layers: panels,
        total_e12: panels * 1_000_000_000_000,
        fair_e12: panels * (1_000_000_000_000 / AGENTS as u64),
        ..EvidenceCounts::default()
    };
    let before: Vec<(AgentId, EvidenceCounts)> =
        (0..HONEST_INITIATORS).map(|initiator| (name(AGENTS + initiator), honest(initiator))).collect();
    let strangers = (0..STRANGERS).map(|stranger| (name(AGENTS + HONEST_INITIATORS + stranger), praised));
    let after: Vec<(AgentId, EvidenceCounts)> = before.iter().cloned().chain(strangers).collect();
    let value = |evidence: &[(AgentId, EvidenceCounts)], from: &EvidenceSource, own: &AgentId| {
        let shown = evidence.iter().map(|(initiator, counts)| (initiator, *counts));
        let basis = ReputationBasis { from, own, min_runs: MIN_RUNS, prior_runs: PRIOR_RUNS };
        reputation(shown, basis).unwrap_or(REPUTATION_AVERAGE_PPM)
    };
    let own = |(initiator, _): &(AgentId, EvidenceCounts)| {
        [&before, &after].map(|evidence| value(evidence, &EvidenceSource::Own, initiator))
    };
    let all = [&before, &after].map(|evidence| value(evidence, &EvidenceSource::All, &name(0)));
    StagedGaming { panels: STAGED, own: before.iter().map(own).collect(), all, called: called(seed) }
}

/// Honest initiators call panels, strangers call panels in which only the first agent answers, and everybody's calls then choose
/// their seats.
fn called(seed: u64) -> CalledStaging {
    let agents: Vec<AgentId> = (0..AGENTS).map(name).collect();
    let honest: Vec<AgentId> = (0..HONEST_INITIATORS).map(|initiator| name(AGENTS + initiator)).collect();
    let mut panels = FoldedPanels::default();
    for (number, initiator) in (0..).zip(&honest) {
        let crowd = Crowd {
            agents: vec![StubAgent::honest(ACCURACY, DISCERNMENT); AGENTS],
            ranker: StubRanker::Support,
            seed: seed.wrapping_add(number),
        };
        for panel in 0..HONEST_PANELS {
            let says = |agent: &AgentId, ask: &Ask| Some(answered(&crowd, panel, agent, ask));
            panels.ask(initiator, (&rules("trial", OPTIONS, None), QUESTION), &agents, says);
        }
    }
    let before = looked(&mut panels, &honest, &agents);
    let staged = PanelSpec { rounds: 1, asking: Asking::All, select: None, ..rules("trial", OPTIONS, None) };
    for (panel, stranger) in (0..STAGED).zip((0..STRANGERS).cycle()) {
        let stranger = name(AGENTS + HONEST_INITIATORS + stranger);
        let praised = |agent: &AgentId, ask: &Ask| (*agent == name(0)).then(|| right(ask));
        let played = panels.ask(&stranger, (&staged, QUESTION), &agents, praised);
        debug_assert!(played.decision.is_some_and(|decision| decision.evidence), "panel {panel} is evidence");
    }
    let after = looked(&mut panels, &honest, &agents);
    let own = before.0.into_iter().zip(after.0).map(|(before, after)| [before, after]).collect();
    CalledStaging { own, all: [before.1, after.1] }
}

/// The right answer, without ratings.
fn right(ask: &Ask) -> PanelAnswer {
    PanelAnswer { round: ask.round, answer: Some(Some(OPTIONS[0].to_owned())), ..PanelAnswer::default() }
}

/// What a call of each honest initiator pins of the first agent by its own panels, and one of them by everybody's. Such a call
/// gives one seat away, so its panel is evidence of nothing.
fn looked(panels: &mut FoldedPanels, honest: &[AgentId], agents: &[AgentId]) -> (Vec<u64>, u64) {
    let mut pinned = |initiator: &AgentId, from: EvidenceSource| {
        let rule = ChooseSpec { keep: 1, from, min_runs: MIN_RUNS, newcomers: 0 };
        let rules = rules("trial", OPTIONS, Some(rule));
        let decision = panels.ask(initiator, (&rules, QUESTION), agents, |_, ask| Some(right(ask))).decision;
        let first = decision.as_ref().and_then(|decision| decision.choice.as_ref()?.candidates.first());
        first.and_then(|candidate| candidate.reputation).unwrap_or(REPUTATION_AVERAGE_PPM)
    };
    let own = honest.iter().map(|initiator| pinned(initiator, EvidenceSource::Own)).collect();
    (own, honest.first().map_or(0, |initiator| pinned(initiator, EvidenceSource::All)))
}

impl StagedGaming {
    /// G4: `own` as before, and `all` within what honest initiators have seen.
    fn verdicts(&self) -> impl Iterator<Item = DylanVerdict> {
        let played = [("", &self.own, self.all), (" called,", &self.called.own, self.called.all)];
        played.into_iter().flat_map(|(how, own, [_, all])| {
            let changed = own.iter().map(|[before, after]| before.abs_diff(*after)).max().unwrap_or(0);
            let seen = || own.iter().map(|[before, _]| *before);
            let (least, most) = (seen().min().unwrap_or(0), seen().max().unwrap_or(0));
            let is_within = (least..=most).contains(&all);
            [
                DylanVerdict::new(format!("G4{how} own, changed by ppm"), changed as f64, "0", changed == 0),
                DylanVerdict::new(format!("G4{how} all, in ppm"), all as f64, format!("{least} to {most}"), is_within),
            ]
            .map(DylanVerdict::exact)
        })
    }
}

/// What panels of one kind came to.
#[derive(Debug, Clone, Copy, Default)]
struct GamingMeans {
    top: u64,
    relative: f64,
    counted: f64,
    accuracy: f64,
}

/// A mean over seeds of panels in which the last `members` agents are looked at.
fn course(agents: &[StubAgent], ranker: StubRanker, members: usize, (seed, seeds): (u64, u64)) -> GamingMeans {
    let everybody: Vec<usize> = (0..AGENTS).collect();
    let first = AGENTS.saturating_sub(members);
    let mean = |shown: &[EvidenceCounts]| {
        let members = shown.iter().skip(first).map(relative);
        members.sum::<f64>() / (AGENTS - first).max(1) as f64
    };
    let mut course = GamingMeans::default();
    for seed in (0..seeds).map(|number| seed.wrapping_add(number)) {
        let crowd = Crowd { agents: agents.to_vec(), ranker, seed };
        let (mut shown, mut counted) = ([EvidenceCounts::default(); AGENTS], [EvidenceCounts::default(); AGENTS]);
        let mut right = 0;
        for panel in 0..PANELS {
            let played = crowd.play(panel, &everybody);
            add_all(&mut shown, played.importance.as_ref());
            if members == LONE.len() {
                add_all(&mut counted, played.counted().as_ref());
            }
            right += u64::from(played.answer == 0);
        }
        course.top += u64::from(best(&shown, TOP, PANELS).iter().any(|agent| *agent >= first));
        course.relative += mean(&shown) / seeds as f64;
        course.counted += mean(&counted) / seeds as f64;
        course.accuracy += right as f64 / (PANELS * seeds) as f64;
    }
    course
}

fn group(
    what: &'static str,
    (member, honest, members): (StubAgent, StubAgent, usize),
    ranker: StubRanker,
    seeds: (u64, u64),
) -> GroupGaming {
    let with = |last: StubAgent| {
        let mut agents = vec![StubAgent::honest(ACCURACY, DISCERNMENT); AGENTS - members];
        agents.resize(AGENTS, last);
        course(&agents, ranker, members, seeds)
    };
    let (gaming, honest) = (with(member), with(honest));
    let GamingMeans { top, relative, accuracy, .. } = gaming;
    GroupGaming { what, members, top, relative, accuracy, accuracy_honest: honest.accuracy }
}

/// Plays so many seeds from the first on.
pub fn run(seed: u64, seeds: u64) -> GamingReport {
    let (poor, good) = (StubAgent::honest(RING_ACCURACY, DISCERNMENT), StubAgent::honest(ACCURACY, DISCERNMENT));
    let ring =
        |members: &'static [usize]| (StubAgent { rates: StubRating::Ring(members), ..poor }, poor, members.len());
    let liars = |members| (StubAgent::liar(DISCERNMENT), good, members);
    let range = (seed, seeds);
    let mut lone = vec![good; AGENTS - LONE.len()];
    lone.resize(AGENTS, StubAgent { rates: StubRating::Ring(LONE), ..good });
    let GamingMeans { relative, counted, .. } = course(&lone, StubRanker::Support, LONE.len(), range);
    let groups = vec![
        group("ring, support", ring(TWO), StubRanker::Support, range),
        group("ring, ranking agent", ring(TWO), JUDGING, range),
        group("ring, rating", ring(TWO), StubRanker::Rating, range),
        group("ring, support", ring(THREE), StubRanker::Support, range),
        group("ring, rating", ring(THREE), StubRanker::Rating, range),
        group("liars, support", liars(1), StubRanker::Support, range),
        group("liars, support", liars(2), StubRanker::Support, range),
        group("liars, support", liars(3), StubRanker::Support, range),
    ];
    GamingReport { seeds, lone: LoneGaming { relative, counted }, groups, staged: staged(seed) }
}

impl GamingReport {
    /// G1, G2 and G4: own ratings bring nothing, a ring of two hardly anything, strangers nothing. G3 is shown, and not bounded.
    pub fn verdicts(&self) -> Vec<DylanVerdict> {
        let LoneGaming { relative, counted } = self.lone;
        let lone = DylanVerdict::near("G1 relative", relative, 1.0, LONE_APART);
        let counted = DylanVerdict::at_least("G1 own ratings counted", counted, COUNTED_MIN, "");
        let rings = self.groups.iter().zip(TOP_SHARE_MAX).flat_map(|(group, share)| {
            let (top, most) = (group.top as f64, (share * self.seeds as f64).round());
            let lost = group.accuracy_honest - group.accuracy;
            let id = |what| format!("G2 {} {what}", group.what);
            let top = DylanVerdict::at_most(id("in the top four"), top, most, " seeds");
            [top, DylanVerdict::at_most(id("accuracy lost"), lost, LOST_MAX, "")]
        });
        [lone, counted].into_iter().chain(rings).chain(self.staged.verdicts()).collect()
    }
}

impl fmt::Display for GamingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (LoneGaming { relative, counted }, seeds) = (self.lone, self.seeds);
        writeln!(f, "agents that rate to their own advantage among seven, {seeds} seeds of {PANELS} panels (stub)")?;
        writeln!(
            f,
            "one that rates itself 5 and others 1: importance {relative:.3}, own ratings counted {counted:.3}"
        )?;
        writeln!(
            f,
            "{:>3}  {:<20} {:>8} {:>10} {:>9} {:>7}",
            "of", "", "in top 4", "importance", "accuracy", "honest"
        )?;
        for group in &self.groups {
            let GroupGaming { what, members, top, relative, accuracy, accuracy_honest } = group;
            writeln!(f, "{members:>3}  {what:<20} {top:>8} {relative:>10.3} {accuracy:>9.3} {accuracy_honest:>7.3}")?;
        }
        let StagedGaming { panels, own, all, called } = &self.staged;
        writeln!(f, "reputation before and after {panels} staged panels: own {own:?}, all {all:?}")?;
        writeln!(f, "called, and pinned in calls that choose: own {:?}, all {:?}", called.own, called.all)?;
        writeln!(f, "A third of the members or more that act together are held back by nothing.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_rates_only_itself_well_gains_nothing_unless_own_ratings_count() {
        let good = StubAgent::honest(ACCURACY, DISCERNMENT);
        let mut agents = vec![good; AGENTS - LONE.len()];
        agents.push(StubAgent { rates: StubRating::Ring(LONE), ..good });
        let GamingMeans { relative, counted, .. } = course(&agents, StubRanker::Support, LONE.len(), (1, 4));
        assert!((relative - 1.0).abs() < 0.1 && counted > relative + 0.02, "{relative} {counted}");
    }

    #[test]
    fn strangers_change_nothing_that_calls_pin_of_own_panels_and_little_of_everybodys() {
        let staged = staged(1);
        assert_eq!(staged.called.own.len(), HONEST_INITIATORS);
        assert!(staged.called.own.iter().flatten().all(|ppm| *ppm > 0 && *ppm != REPUTATION_AVERAGE_PPM), "{staged:?}");
        assert_ne!(staged.called.all[0], staged.called.all[1], "the strangers' panels count: {staged:?}");
        assert!(staged.verdicts().all(|verdict| verdict.holds) && staged.verdicts().count() == 4, "{staged:?}");
    }

    #[test]
    fn liars_cost_a_panel_of_honest_agents_some_of_its_accuracy() {
        let good = StubAgent::honest(ACCURACY, DISCERNMENT);
        let gaming = group("liars", (StubAgent::liar(DISCERNMENT), good, 3), StubRanker::Support, (1, 2));
        assert!(gaming.accuracy < gaming.accuracy_honest && gaming.relative < 1.0, "{gaming:?}");
    }
}
