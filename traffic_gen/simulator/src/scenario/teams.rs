//! The teams of a run: few turns, few tasks, short times, so that they end in every way there is.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemas::payload::Cfp;
use schemas::team::{AtConclusion, OnRepeat, SPEAK_TIMES_MIN, Seats, TeamRules, TeamSpec, VoteOf, VoteRules};
use schemas::{Address, AgentId};

use super::{CONTRACTORS, agent, policies};
use crate::{CallPlan, Scenario};

/// Teams one initiator calls, at most.
const TEAMS_MAX: u32 = 3;
/// Teams with time and levels for sub-teams below them: one in so many.
const NESTED_ONE_IN: u32 = 2;
/// Those it invites to one, at most.
const INVITED_MAX: usize = 5;
/// Tasks of one team, at most.
pub(crate) const TASKS_MAX: usize = 5;
/// The policy under which most tasks are shared out.
pub(crate) const TASK_POLICY: &str = "tasks";

/// The one under which teams share them out that have time for sub-teams.
const NESTED_TASK_POLICY: &str = "nested-tasks";

/// Adds the teams. They draw from a generator of their own: everything else stays as it is without them.
pub(super) fn add(scenario: &mut Scenario, seed: u64) {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    scenario.policies.push(policies::draw_for_tasks(rng, &format!("{TASK_POLICY}@1")));
    let mut nested = policies::draw_for_tasks(rng, &format!("{NESTED_TASK_POLICY}@1"));
    nested.timers_ms.hard += rng.random_range(4000..8000);
    scenario.policies.push(nested);
    let is_contractor = |id: &AgentId| CONTRACTORS.contains(&id.as_str());
    let contractors = scenario.agents.iter().filter(|plan| is_contractor(&plan.id)).count();
    for plan in scenario.agents.iter_mut().filter(|plan| !plan.calls.is_empty()) {
        for n in 0..rng.random_range(0..=TEAMS_MAX) {
            let mut names: Vec<AgentId> = CONTRACTORS[..contractors].iter().map(|name| agent(name)).collect();
            names.shuffle(rng);
            names.truncate(rng.random_range(1..=INVITED_MAX));
            let join_within_ms = rng.random_range(250..1000);
            let mut rules = rules(rng, join_within_ms);
            let is_nested = rng.random_range(0..NESTED_ONE_IN) == 0;
            if is_nested {
                nest(rng, &mut rules);
            }
            let at_ms = rng.random_range(100..scenario.troubled_ms * 3 / if is_nested { 12 } else { 4 });
            let cfp = Cfp {
                task: Some("carry all parcels of a town".to_owned()),
                // What ranks those who join; absent: a hash.
                policy: (rng.random_range(0..3) == 0).then(|| "team-seats".to_owned()),
                reply_within_ms: Some(join_within_ms),
                team: Some(Box::new(TeamSpec { rules, of: None })),
                ..Cfp::default()
            };
            let to = names.into_iter().map(Address::Agent).collect();
            plan.calls.push(CallPlan::new(&plan.id, &format!("t{n}"), at_ms, to, cfp));
        }
    }
}

/// Levels for sub-teams, and the time that they take.
fn nest(rng: &mut ChaCha8Rng, rules: &mut TeamRules) {
    rules.depth = [1, 2, 2, 3, 4][rng.random_range(0..5)];
    rules.turns += 3;
    rules.tasks = rules.tasks.max(3);
    rules.members.min = 2;
    rules.speak_ms = rules.speak_ms.min(rng.random_range(150..400));
    rules.ends_within_ms += rng.random_range(4000..9000);
    rules.task_policy = NESTED_TASK_POLICY.to_owned();
}

/// The rules of a sub-team: so short that it may end in time, and so may another below it.
pub(crate) fn rules_below(rng: &mut ChaCha8Rng, join_within_ms: u64) -> TeamRules {
    let speak_ms = rng.random_range(100..160);
    TeamRules {
        members: Seats { min: 2, max: rng.random_range(2..=4) },
        turns: rng.random_range(1..6),
        speak_ms,
        ends_within_ms: join_within_ms + SPEAK_TIMES_MIN * speak_ms + rng.random_range(1000..6000),
        depth: rng.random_range(1..=3),
        tasks: rng.random_range(2..=4),
        task_policy: NESTED_TASK_POLICY.to_owned(),
        ..rules(rng, join_within_ms)
    }
}

fn rules(rng: &mut ChaCha8Rng, join_within_ms: u64) -> TeamRules {
    let speak_ms = rng.random_range(150..900);
    let max = rng.random_range(2..=5);
    TeamRules {
        members: Seats { min: rng.random_range(2..=max), max },
        turns: rng.random_range(1..12),
        speak_ms,
        ends_within_ms: join_within_ms + SPEAK_TIMES_MIN * speak_ms + rng.random_range(0..6000),
        depth: rng.random_range(0..3),
        tasks: u32::try_from(rng.random_range(1..=TASKS_MAX)).unwrap_or(1),
        at_conclusion: [AtConclusion::Settle, AtConclusion::Cancel, AtConclusion::Leave][rng.random_range(0..3)],
        vote: (rng.random_range(0..3) == 0).then(|| VoteRules {
            of: if rng.random_range(0..2) == 0 { VoteOf::All } else { VoteOf::Majority },
            vote_ms: rng.random_range(150..900),
            attempts: rng.random_range(1..=3),
        }),
        on_repeat: [OnRepeat::Pass, OnRepeat::Reference, OnRepeat::Refuse][rng.random_range(0..3)],
        max_strikes: rng.random_range(1..4),
        task_policy: if rng.random_range(0..5) == 0 { "team-task".to_owned() } else { TASK_POLICY.to_owned() },
        ..TeamRules::default()
    }
}
