//! A whole exchange in one thread, on a virtual clock, from one seed: real gateways and real engines over a bus that
//! delays, loses, repeats and forgets, and agents that misbehave. The same seed gives the same [`Trace`].
//!
//! | module | question it answers |
//! |---|---|
//! | `scenario` | who takes part, with which settings and policies? |
//! | `faults` | what goes wrong, when? |
//! | `world` | what is under way, what has the broker stored, who is cut off? |
//! | `bus` | how does one process see all that? |
//! | `process` | who starts, kills and restarts gateways and engines? |
//! | `agents` | what do agents do? |
//! | `observer` | what do engines answer whoever asks for a view? |
//! | [`trace`](Trace) | what is left to judge? |
//! | [`Point`] | which rare paths must be taken? |
//! | [`check()`] | did anything happen that must never happen? |

mod agents;
mod bus;
mod check;
mod faults;
mod observer;
mod points;
mod process;
pub mod report;
mod scenario;
mod trace;
mod world;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use ::bus::Bucket;
use bytes::Bytes;
use policy_core::presets;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use schemas::{AgentId, Digest, Lane};
use tokio::runtime::Builder;

use self::agents::{Agents, Profile, ReceivedJournal, SimulatedAgent};
use self::faults::Faults;
use self::observer::{Observer, Views};
use self::process::{ProcessManager, keys};
use self::scenario::Scenario;
use self::world::{ProcessRole, World};

pub use check::check;
pub use points::Point;
pub use trace::{AnnouncedDigest, Answer, AnsweredView, Happening, Invited, JournalEntry, Noted, QueueLoad, Trace};

/// After the faults everything must have ended within this time, in milliseconds: the longest negotiation there is, its
/// grace, and every repetition of a delivery, one wave after another where few may be under way and many to the deaf are.
const REST_MS_MAX: u64 = 60_000;
/// How often it is asked whether everything has ended, in milliseconds.
const REST_STEP_MS: u64 = 250;
/// Most panics described; the rest of a run that has one is of little interest.
const PANICS_MAX: usize = 8;

/// What a run is asked for. Everything else is drawn from the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Faults stop after a while and everything is given the time to end.
    pub liveness: bool,
}

/// Runs an exchange to its end. Takes milliseconds of real time, and no other thread.
///
/// # Panics
/// When no runtime can be built, which takes no resource but memory.
#[must_use]
pub fn run(seed: u64, options: &Options) -> Trace {
    watch_panics();
    let quiet = tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::new());
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime of this thread alone needs nothing of the system");
    let mut trace = runtime.block_on(run_in(seed, options));
    drop(runtime);
    drop(quiet);
    trace.panics = seen_panics();
    trace.digest = trace.fingerprint();
    trace
}

async fn run_in(seed: u64, options: &Options) -> Trace {
    // Each part draws from a generator of its own: one more draw in one of them leaves the others as they were.
    let part = |part: u64| seed.wrapping_mul(8).wrapping_add(part);
    let scenario = Scenario::draw(part(0));
    let faults = Faults::draw(part(1), &scenario);
    let world = World::new(part(2), scenario.lanes, faults.weather.clone());
    tokio::spawn(Arc::clone(&world).drive());
    let mut director = ProcessManager::new(&world, &scenario, faults.blows);
    prepare(&world, &scenario);
    let company = Agents { world: Arc::clone(&world), busy: Arc::new(AtomicUsize::new(0)) };
    let journals = start_agents(&company, &scenario);
    let views = Views::default();
    if let Some(observer) = Observer::draw(part(3), &world, &scenario, views.clone()) {
        tokio::spawn(observer.drive());
    }
    director.direct(scenario.troubled_ms).await;
    let unfinished = if options.liveness { rest(&company, &mut director, &scenario).await } else { Vec::new() };
    let views = views.answered();
    Trace { views, ..collect(seed, options, &scenario, &world, &director, &journals, unfinished) }
}

/// Stores what an exchange that has been up for a while has stored: agents, their group, policies.
fn prepare(world: &World, scenario: &Scenario) {
    let document = |value: serde_json::Result<Vec<u8>>| Bytes::from(value.expect("control documents can be written"));
    world.change(|state| {
        state.broker.hearing.are_gateways_spared = scenario.are_gateways_spared;
        if let Some(record) = scenario.earlier_rules() {
            let now = state.log_now();
            state.broker.begin_lanes(now, &document(serde_json::to_vec(&record)));
        }
        for agent in &scenario.agents {
            let registration = document(serde_json::to_vec(&agent.registration));
            state.put(Bucket::Agents, agent.id.as_str(), Some(registration));
        }
        let group = document(serde_json::to_vec(&scenario.group));
        state.put(Bucket::Groups, scenario.group.id.as_str(), Some(group));
        for policy in scenario.policies.iter().chain(&presets()) {
            let stored = document(serde_json::to_vec(policy));
            state.put(Bucket::Policies, policy.name(), Some(stored.clone()));
            state.put(Bucket::Policies, &policy.id.replacen('@', "~", 1), Some(stored));
        }
    });
}

fn start_agents(company: &Agents, scenario: &Scenario) -> BTreeMap<AgentId, ReceivedJournal> {
    let mut journals = BTreeMap::new();
    for (index, person) in scenario.agents.iter().enumerate() {
        let victim = &scenario.agents[(index + 1) % scenario.agents.len()];
        let profile = Profile {
            id: person.id.clone(),
            token: keys::token(&person.id),
            temper: person.temper.clone(),
            rng: ChaCha8Rng::seed_from_u64(person.seed),
            calls: person.calls.clone(),
            bargains: person.bargains.clone(),
            absences: person.absences.clone(),
            lease: Duration::from_millis(person.registration.lease_ms.into()),
            victim: victim.id.clone(),
            topic: scenario::topic(),
        };
        let link = company.world.change(|state| state.add_link(person.id.to_string(), ProcessRole::Agent));
        let pub_sub = bus::connect(&company.world, link).pub_sub;
        let journal = ReceivedJournal::default();
        tokio::spawn(SimulatedAgent::new(profile, company.clone(), pub_sub, journal.clone()).drive());
        journals.insert(person.id.clone(), journal);
    }
    journals
}

/// Lets everything end without further faults, and says what had not when the time was up.
async fn rest(company: &Agents, director: &mut ProcessManager, scenario: &Scenario) -> Vec<String> {
    director.calm();
    let mut waited_ms = 0;
    loop {
        waited_ms += REST_STEP_MS;
        director.direct(scenario.troubled_ms + waited_ms).await;
        let mut unfinished = director.unfinished();
        let busy = company.busy.load(Ordering::Relaxed);
        if busy > 0 {
            unfinished.push(format!("agents still have {busy} things to do"));
        }
        if unfinished.is_empty() || waited_ms >= REST_MS_MAX {
            return unfinished;
        }
    }
}

fn collect(
    seed: u64,
    options: &Options,
    scenario: &Scenario,
    world: &World,
    director: &ProcessManager,
    journals: &BTreeMap<AgentId, ReceivedJournal>,
    unfinished: Vec<String>,
) -> Trace {
    let loads = director.loads();
    let state = world.state();
    let mut records: Vec<_> = state.broker.lanes.iter().flat_map(|lane| lane.records.iter().cloned()).collect();
    records.sort_by_key(|record| record.seq);
    let trimmed = state.broker.lanes.iter().zip(0..).map(|(lane, index)| (Lane(index), lane.trimmed)).collect();
    Trace {
        seed,
        is_liveness: options.liveness,
        lanes: scenario.lanes,
        limits: scenario.settings.limits.clone(),
        records,
        trimmed,
        register: state.broker.register.clone(),
        foreign: state.broker.foreign.clone(),
        registered_at: state.broker.registered_at.clone(),
        journals: journals.iter().map(|(agent, journal)| (agent.clone(), journal.entries())).collect(),
        views: Vec::new(),
        invited: state.broker.hearing.invited.clone(),
        digests: state.broker.watcher.digests.iter().cloned().collect(),
        loads,
        story: state.story.clone(),
        panics: Vec::new(),
        unfinished,
        sometimes: state.sometimes(),
        ended_at: state.now(),
        digest: Digest([0; 32]),
    }
}

thread_local! {
    /// Panics of the run that this thread makes.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Begins to notice panics of this thread. The runtime keeps those of its tasks to itself, one task dies and the others go
/// on; a run must not. They are not printed: the trace holds them.
fn watch_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let is_ours = PANICS.with_borrow_mut(|seen| match seen {
                Some(seen) if seen.len() < PANICS_MAX => {
                    seen.push(panic.to_string());
                    true
                }
                Some(_) => true,
                None => false,
            });
            if !is_ours {
                before(panic);
            }
        }));
    });
    PANICS.set(Some(Vec::new()));
}

/// Ends the watch and says what was seen.
fn seen_panics() -> Vec<String> {
    PANICS.take().unwrap_or_default()
}
