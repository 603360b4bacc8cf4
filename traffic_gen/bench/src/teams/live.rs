//! Teams through everything: token, schema, consent, log, core, outbox, acknowledgements, and members that answer at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agents::AgentOptions;
use agents::routine::RoutineFault;
use agents::team::{
    AdvisedSpeaker, Advisor, PassingSpeaker, Scenario, ScenarioPlanner, TeamAgent, TeamHands, TeamMove, TeamPlanner,
    TeamRequest, TeamView, WillingPlanner, WorkRequest, WorkRunner, Worker,
};
use bus::Bus;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemas::control::Registration;
use schemas::team::{Seats, TeamRules};
use schemas::{AgentId, NegotiationId, Timestamp};
use serde_json::json;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use crate::rounds::{self, BenchError, stuck};
use crate::units::UnitCounter;
use traffic_gen::arrivals::{PoissonArrivals, pace};
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::latency::Latency;
use traffic_gen::live::{Access, LiveError, RunningAgents};
use traffic_gen::recorder::{Recorder, observed};
use traffic_gen::team::{TeamLedger, TeamState};

/// Members of the teams of the closed loop, the lead among them: as many agents as a round has, and its initiator.
const SEATS: u32 = 12;
/// Says of each member, and characters of each.
const SAYS: usize = 2;
const SAY_LEN: usize = 200;
/// Tasks of one team: the first ones by name, the others by award.
const TASKS: u64 = 4;
const TASKS_DIRECT: u64 = 2;
const TITLE: &str = "count";
/// Members of the teams that are kept open while says are waited for, and agents that they are taken from, in turn.
const SEATS_WAITED: u32 = 5;
const AGENTS_WAITED: u32 = 60;
/// How long members may hold the floor, and a team may last: longer than a benchmark runs.
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 86_400_000;
/// How long the invited have to join, in milliseconds; they answer at once.
const REPLY_MS: u64 = 20_000;
/// Longest wait for teams that are to form, or to end.
const PATIENCE: Duration = Duration::from_secs(90);
/// Seed of when members speak.
const SEED: u64 = 1;

/// Keeps `open` teams open for as long as the counter counts, then waits for their end. `run` begins their ids. Each has
/// twelve members, 24 says, two tasks of named owners, two by award, and a conclusion.
///
/// # Errors
/// [`BenchError`]; [`BenchError::Stuck`] as well where a team did not conclude with every task done.
pub async fn keep_open(bus: Bus, open: usize, counter: &Arc<UnitCounter>, run: &str) -> Result<(), BenchError> {
    let scenario = Arc::new(Scenario::parse(&scenario().to_string()).map_err(stuck)?);
    let names = scenario.agents.iter().map(|agent| agent.name.clone()).collect();
    let hands = TeamHands::new(WorkRunner::new(WorksAtOnce));
    let planner = |name: &AgentId| ScenarioPlanner::new(Arc::clone(&scenario), name.clone());
    let rig = TeamRig::start(bus, names, Some(counter), (planner, hands)).await?;
    let call =
        async |number| rig.call(&scenario.lead, &format!("{run}-{number}"), ScenarioPlanner::root(&scenario)).await;
    let called = rounds::keep_called(rig.ledger.recorder(), open, counter.duration(), call).await?;
    wait("teams to end", || rig.ledger.recorder().open() as u64).await?;
    let tally = rig.ledger.tally();
    rig.stop().await?;
    if tally.formed != called || tally.tasks != BTreeMap::from([("done".to_owned(), called * TASKS)]) {
        return Err(stuck(format!("{} of {called} teams, with tasks {:?}", tally.formed, tally.tasks)));
    }
    Ok(())
}

/// From sending a say until the member that has the floor next knows of it: `open` teams of five are open at once, and
/// `rate` says per second are said over all of them, for `duration`. `in_a_row` of them are said in one team, each as soon as
/// the one before is heard.
///
/// # Errors
/// [`BenchError`].
pub async fn to_next_speaker(
    bus: Bus,
    open: usize,
    (rate, in_a_row): (f64, u32),
    duration: Duration,
    run: &str,
) -> Result<Latency, BenchError> {
    let names = (0..AGENTS_WAITED).map(agent).collect();
    let (due, turns) = mpsc::channel(1);
    let said = SayWhenDue { due: Arc::new(Mutex::new(turns)), in_a_row, left: Arc::default() };
    let advisor = Some(Arc::new(said.clone()) as Arc<dyn Advisor>);
    let hands = TeamHands { advisor, ..TeamHands::new(WorkRunner::new(WorksAtOnce)) };
    let rig = TeamRig::start(bus, names, None, (|_: &AgentId| WillingPlanner::default(), hands)).await?;
    for number in 0..open {
        let seat = |seat: u32| agent((number as u32 + seat) % AGENTS_WAITED);
        let request = TeamRequest {
            goal: "talk".to_owned(),
            policy: None,
            reply_within_ms: REPLY_MS,
            rules: rules(SEATS_WAITED, schemas::team::TURNS_MAX),
            invites: (1..SEATS_WAITED).map(seat).collect(),
            search: Vec::new(),
            speaker: Box::new(AdvisedSpeaker::new(PassingSpeaker)),
        };
        rig.call(&seat(0), &format!("{run}-{number}"), request).await?;
    }
    wait("teams to form", || open as u64 - rig.ledger.tally().formed).await?;
    let arrivals = PoissonArrivals::try_new(rate / f64::from(in_a_row), SEED).map_err(stuck)?;
    let mut paced = pace(std::time::Instant::now(), arrivals, duration);
    while paced.recv().await.is_some() {
        due.send(()).await.map_err(stuck)?;
    }
    let unheard = || {
        let tally = rig.ledger.tally();
        tally.turns.values().sum::<u64>() - tally.say.count() + said.due_at_once()
    };
    wait("says to be heard", unheard).await?;
    let waited = rig.ledger.tally().say;
    rig.stop().await?;
    Ok(waited)
}

/// Has every task done as soon as it is asked.
struct WorksAtOnce;

impl Worker for WorksAtOnce {
    fn run(&self, _request: WorkRequest) -> BoxFuture<'static, Result<String, RoutineFault>> {
        async { Ok("done".to_owned()) }.boxed()
    }
}

/// Lets members speak when something is due, in the order in which they got the floor; then those of the same team, until
/// so many have spoken in a row.
#[derive(Clone)]
struct SayWhenDue {
    due: Arc<Mutex<mpsc::Receiver<()>>>,
    in_a_row: u32,
    /// Says that are due at once, by team.
    left: Arc<parking_lot::Mutex<BTreeMap<NegotiationId, u32>>>,
}

impl SayWhenDue {
    /// How many are due at once.
    fn due_at_once(&self) -> u64 {
        self.left.lock().values().copied().map(u64::from).sum()
    }

    /// Whether one more is due at once in a team.
    fn goes_on(&self, team: &NegotiationId) -> bool {
        let mut left = self.left.lock();
        let is_due = left.get(team).is_some_and(|left| *left > 0);
        left.entry(team.clone()).and_modify(|left| *left = left.saturating_sub(1));
        is_due
    }
}

impl Advisor for SayWhenDue {
    fn advise(&self, _asked_at: Timestamp, view: TeamView) -> BoxFuture<'static, Option<TeamMove>> {
        let all = self.clone();
        async move {
            if !all.goes_on(&view.team) {
                if all.due.lock().await.recv().await.is_none() {
                    // No more are due: the teams stay as they are until their agents end.
                    return std::future::pending().await;
                }
                all.left.lock().insert(view.team, all.in_a_row.saturating_sub(1));
            }
            Some(TeamMove::say(text(view.turn as usize)))
        }
        .boxed()
    }
}

/// An exchange with members of teams, and what is known of their teams.
struct TeamRig {
    exchange: Exchange,
    agents: RunningAgents<TeamAgent>,
    ledger: Arc<TeamLedger>,
}

impl TeamRig {
    async fn start<P: TeamPlanner + 'static>(
        bus: Bus,
        names: Vec<AgentId>,
        counter: Option<&Arc<UnitCounter>>,
        (planner, hands): (impl Fn(&AgentId) -> P, TeamHands),
    ) -> Result<Self, BenchError> {
        let exchange = rounds::unlimited(bus, ExchangeOptions::default()).await?;
        let recorder = Recorder::start(Instant::now(), false, None);
        let ledger = Arc::new(TeamLedger::new(recorder, TeamState::default()));
        let options = observed(&observed(&AgentOptions::default(), counter), Some(&ledger));
        let members: Vec<_> = names.iter().map(|name| (name.clone(), planner(name))).collect();
        let starting = async |access: &Access<'_>| -> Result<_, BenchError> {
            let members = (members, &Registration::open_to_all());
            let spawn = |planner, way, cancel| TeamAgent::spawn(planner, hands.clone(), way, cancel);
            Ok(RunningAgents::start(access, members, &options, spawn).await?)
        };
        let agents = exchange.with_access(names, starting).await?;
        Ok(Self { exchange, agents, ledger })
    }

    async fn call(&self, lead: &AgentId, own_id: &str, request: TeamRequest) -> Result<(), BenchError> {
        let team = NegotiationId::form(lead, own_id).map_err(stuck)?;
        let agent = self.agents.get(lead).ok_or_else(|| stuck("the lead is nobody"))?;
        self.ledger.recorder().call_due(team.clone(), Instant::now());
        let called = agent.command(move |agent, now| agent.call(now, &team, request, None)).await;
        called.map_err(|error| LiveError::from(error).into())
    }

    async fn stop(self) -> Result<(), BenchError> {
        self.agents.stop().await?;
        self.exchange.shutdown().await;
        Ok(())
    }
}

/// Waits until `left` is 0.
async fn wait(what: &str, left: impl Fn() -> u64) -> Result<(), BenchError> {
    rounds::until_none(PATIENCE, left, |left| format!("waited in vain for {left} {what}")).await
}

fn rules(seats: u32, turns: u32) -> TeamRules {
    let members = Seats { min: seats, max: seats };
    TeamRules { members, turns, speak_ms: HOUR_MS, ends_within_ms: DAY_MS, ..TeamRules::default() }
}

/// What each team of the closed loop does.
fn scenario() -> serde_json::Value {
    let offer = json!({"fit": 500_000, "delivery_ms": 1_000});
    let task = json!({"title": TITLE, "result": "done", "offer": offer});
    let says = |seat: u32| (0..SAYS).map(move |say| json!({"act": "say", "text": text(seat as usize * SAYS + say)}));
    let assigned = |number: u64| {
        let mut task = json!({"title": TITLE, "text": "count to ten"});
        if number < TASKS_DIRECT {
            task["owner"] = json!(agent(1 + number as u32));
        }
        task
    };
    let tasks: Vec<_> = (0..TASKS).map(assigned).collect();
    let lead_moves: Vec<_> = says(0)
        .chain([json!({"act": "assign", "mode": "sync", "tasks": tasks}), json!({"act": "conclude", "text": "done"})])
        .collect();
    let members: serde_json::Map<_, _> = (1..SEATS)
        .map(|seat| (agent(seat).to_string(), json!({"moves": says(seat).collect::<Vec<_>>()})))
        .chain([(agent(0).to_string(), json!({"moves": lead_moves}))])
        .collect();
    let agents: Vec<_> = (0..SEATS).map(|seat| json!({"name": agent(seat), "tasks": [task]})).collect();
    json!({"name": "bench", "agents": agents, "team": {
        "lead": agent(0), "goal": "talk and count", "reply_within_ms": REPLY_MS, "rules": rules(SEATS, 2 * SEATS * SAYS as u32),
        "invites": (1..SEATS).map(agent).collect::<Vec<_>>(), "members": members,
    }})
}

/// What is said as the `number`-th of a team.
fn text(number: usize) -> String {
    format!("{number:0>SAY_LEN$}")
}

fn agent(number: u32) -> AgentId {
    AgentId::try_new(&format!("member-{number:02}")).expect("a number makes a name")
}

#[cfg(test)]
mod tests {
    use bus::memory::MemoryOptions;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn teams_are_kept_open_with_every_task_done_and_every_say_is_waited_for() {
        let memory = || bus::memory::open(MemoryOptions::default());
        let counter = UnitCounter::new(Duration::from_millis(300));
        keep_open(memory(), 2, &counter, "kept").await.unwrap();
        assert!(counter.units_per_s() > 0.0);
        for in_a_row in [1, 4] {
            let rate = (50.0 * f64::from(in_a_row), in_a_row);
            let waited = to_next_speaker(memory(), 20, rate, Duration::from_millis(300), "waited").await.unwrap();
            assert!(waited.count() >= u64::from(in_a_row) && waited.quantile_ms(0.5) > 0.0, "{}", waited.count());
        }
    }
}
