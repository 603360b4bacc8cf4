//! Teams in the core alone: what a say costs among few and many open teams and in small and large ones, and what a team
//! keeps in memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use policy_core::{Effect, preset};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha12Rng;
use schemas::AgentId;
use schemas::bargain::Join;
use schemas::payload::{Cfp, Payload};
use schemas::record::{Pinned, Record, TaskPolicy};
use schemas::team::Say;
use scripted::bargain::in_memory::pinned;
use serde_json::json;

use crate::fold::FoldBench;
use crate::rounds::{BenchError, stuck};
use crate::usage::resident_bytes;
use traffic_gen::live::initiator_name;

/// Says in each team.
const SAYS: u32 = 8;
/// Characters of each.
const SAY_LEN: usize = 200;
/// How long members may join, and the floor may be held, in milliseconds.
const HOUR_MS: u64 = 3_600_000;

/// What teams cost.
#[derive(Debug, Clone, Copy)]
pub struct TeamCost {
    /// Microseconds to fold one say, effects drained.
    pub us_per_say: f64,
    /// The same by each delivery that a say leads to, its receipt among them.
    pub us_per_delivery: f64,
    /// Bytes per open team, with what was said.
    pub bytes_per_team: f64,
}

/// Opens `open` teams of `members` and has each of them say eight things of 200 characters, the teams in random order.
/// Whoever weighs several keeps the lane of each until the last is weighed: what was freed would be taken again, and not be
/// seen.
///
/// # Errors
/// [`BenchError::Stuck`] when the log cannot be made up, or is not followed.
pub fn measure(open: usize, members: u32) -> Result<(TeamCost, TeamBench), BenchError> {
    let mut bench = TeamBench::new(members)?;
    let before = resident_bytes("self");
    for team in 0..open {
        bench.form(team)?;
    }
    let (mut took, mut deliveries) = (Duration::ZERO, 0_usize);
    let mut order: Vec<usize> = (0..open).collect();
    let mut random = ChaCha12Rng::seed_from_u64(1);
    for say in 0..SAYS {
        order.shuffle(&mut random);
        for &team in &order {
            let record = bench.say(team, say)?;
            let started = Instant::now();
            let told = bench.fold(&record);
            took += started.elapsed();
            deliveries += told;
        }
    }
    let resident = resident_bytes("self").saturating_sub(before);
    let says = open * SAYS as usize;
    let expected = says * members as usize;
    let formed = bench.lane.open_count();
    if formed != open || deliveries != expected {
        return Err(stuck(format!("{formed} of {open} teams, {deliveries} of {expected} deliveries")));
    }
    let us = took.as_secs_f64() * 1e6;
    let cost = TeamCost {
        us_per_say: us / says as f64,
        us_per_delivery: us / deliveries as f64,
        bytes_per_team: resident as f64 / open as f64,
    };
    Ok((cost, bench))
}

/// One lane, fed with calls to teams, those that join, and what they say in the order of their seats.
pub struct TeamBench {
    lane: FoldBench,
    members: u32,
}

impl TeamBench {
    fn new(members: u32) -> Result<Self, BenchError> {
        let policy_of = |name: &str| preset(name).ok_or_else(|| stuck(format!("{name} is no preset")));
        let tasks = policy_of("team-task")?;
        let task_policy = Some(TaskPolicy { digest: tasks.digest().map_err(stuck)?, policy: Arc::new(tasks) });
        let invited: Vec<AgentId> = (1..members).map(agent).collect();
        let pinned = Pinned { task_policy, ..pinned(&policy_of("team-seats")?, &invited) };
        Ok(Self { lane: FoldBench::pinning(pinned), members })
    }

    /// Folds a record; how many deliveries it leads to.
    fn fold(&mut self, record: &Record) -> usize {
        let mut deliveries = 0;
        self.lane.fold(record, |effect| deliveries += usize::from(matches!(effect, Effect::Deliver(_))));
        deliveries
    }

    /// The lead calls, and all join.
    fn form(&mut self, team: usize) -> Result<(), BenchError> {
        let day_ms = schemas::policy::TIMER_MS_MAX;
        let rules = json!({"members": {"min": 2, "max": self.members}, "turns": 1000, "speak_ms": HOUR_MS,
            "ends_within_ms": day_ms, "on_repeat": "pass"});
        let rules = serde_json::from_value(rules).map_err(stuck)?;
        let cfp = Cfp {
            task: Some("write".to_owned()),
            reply_within_ms: Some(HOUR_MS),
            team: Some(Box::new(rules)),
            ..Cfp::default()
        };
        let call = self.record(team, 0, "call", Payload::Cfp(cfp))?;
        self.fold(&call);
        for member in 1..self.members {
            let join = self.record(team, member, "join", Payload::Join(Join::default()))?;
            self.fold(&join);
        }
        Ok(())
    }

    /// The n-th say of a team: seats speak in turn.
    fn say(&self, team: usize, number: u32) -> Result<Record, BenchError> {
        let say = Say { turn: None, text: format!("{number:0>SAY_LEN$}"), next: None };
        self.record(team, number % self.members, &format!("say-{number}"), Payload::Say(say))
    }

    fn record(&self, team: usize, seat: u32, msg_id: &str, payload: Payload) -> Result<Record, BenchError> {
        self.lane.record(team, &agent(seat), (msg_id, None), payload)
    }
}

/// Whoever has a seat; the lead has the first.
fn agent(seat: u32) -> AgentId {
    if seat == 0 {
        initiator_name()
    } else {
        AgentId::try_new(&format!("member-{seat:02}")).expect("a number makes a name")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_say_of_every_team_is_followed_and_heard() {
        let (cost, _) = measure(3, 5).unwrap();
        assert!(cost.us_per_say > cost.us_per_delivery && cost.us_per_delivery > 0.0, "{cost:?}");
    }
}
