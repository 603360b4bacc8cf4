//! A whole exchange in one thread, on a virtual clock, from one seed: real gateways and real engines over a bus that
//! delays, loses, repeats and forgets, and agents that misbehave. The same seed gives the same [`Trace`].
//!
//! | module | question it answers |
//! |---|---|
//! | `scenario` | who takes part, with which settings and policies? |
//! | `faults` | what goes wrong, when? |
//! | `world` | what is under way, what has the broker stored, who is cut off, how does one process see all that? |
//! | `process` | who starts, kills and restarts gateways and engines? |
//! | `agents` | what do agents do? |
//! | `observer` | what do engines answer whoever asks for a view? |
//! | [`trace`](Trace) | what is left to judge? |
//! | [`Point`] | which rare paths must be taken? |
//! | [`check()`] | did anything happen that must never happen? |

mod agents;
mod check;
mod faults;
mod keys;
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
use std::sync::{Arc, Once, Weak};

use ::bus::Bucket;
use bytes::Bytes;
use policy_core::presets;
use policy_engine::EngineConfig;
use schemas::control::{Group, Registration};
use schemas::payload::Cfp;
use schemas::{Address, AgentId, NegotiationId, Policy};
use tokio::runtime::Builder;

use self::agents::Agents;
use self::faults::{AgentFaults, Faults};
use self::observer::{Observer, Views};
use self::process::ProcessManager;
use self::scenario::Upgrades;
use self::world::{Paces, World};

pub use check::check;
pub use points::Point;
pub use trace::{
    AnnouncedDigest, Answer, AnsweredView, Happening, Invited, JournalEntry, Noted, QueueLoad, StoredLedger, Trace,
};

/// After the faults everything must have ended within this time, in milliseconds: the longest negotiation there is, its
/// grace, and every repetition of a delivery, one wave after another where few may be under way and many to the unreachable are.
const REST_MS_MAX: u64 = 120_000;
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

/// What a run consists of, drawn from its seed.
#[derive(Debug, Clone)]
struct Scenario {
    lanes: u8,
    gateways: usize,
    engines: usize,
    /// For how long faults happen, in milliseconds.
    troubled_ms: u64,
    policies: Vec<Policy>,
    agents: Vec<AgentPlan>,
    group: Group,
    settings: EngineConfig,
    /// How long gateways wait for the log, in milliseconds.
    append_ms: u64,
    /// See `scenario::usurped`.
    is_usurped: bool,
    /// Nothing befalls gateways, so that it is known whom they have not heard.
    are_gateways_spared: bool,
    upgrades: Upgrades,
    /// In a flooded run: how long parts take for one thing, in microseconds.
    paces: Option<Paces>,
}

/// An agent of the run.
#[derive(Debug, Clone)]
struct AgentPlan {
    id: AgentId,
    registration: Registration,
    faults: AgentFaults,
    /// The calls it makes, of contract nets first; none for a contractor.
    calls: Vec<CallPlan>,
    absences: Vec<Absence>,
    /// Seed of its own decisions.
    seed: u64,
}

/// A call an initiator will make, under any protocol.
#[derive(Debug, Clone)]
struct CallPlan {
    /// When, in milliseconds since the run began.
    at_ms: u64,
    negotiation: NegotiationId,
    to: Vec<Address>,
    /// Whether it asks for those who are absent, too.
    invites_absent: bool,
    /// What is called for; the mandate of a bargain comes with its party.
    cfp: Cfp,
}

impl CallPlan {
    /// A call to those who are present, under an id that ends so.
    fn new(initiator: &AgentId, suffix: &str, at_ms: u64, to: Vec<Address>, cfp: Cfp) -> Self {
        let negotiation = NegotiationId::form(initiator, suffix).expect("a negotiation's id");
        Self { at_ms, negotiation, to, invites_absent: false, cfp }
    }

    /// Whether it calls for offers of a contract net.
    fn is_of_net(&self) -> bool {
        let Cfp { bargain, team, panel, auction, .. } = &self.cfp;
        bargain.is_none() && team.is_none() && panel.is_none() && auction.is_none()
    }
}

/// A time in which an agent is away: it neither listens nor says that it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Absence {
    /// When it goes, in milliseconds since the run began.
    from_ms: u64,
    /// When it comes back.
    until_ms: u64,
}

/// Runs an exchange to its end. Takes milliseconds of real time, and no other thread.
///
/// # Panics
/// When no runtime can be built, which takes no resource but memory.
pub fn run(seed: u64, options: &Options) -> Trace {
    run_to_end(seed, options).0
}

/// What a run left, and its world, of which nothing may be left: a batch makes thousands of runs.
fn run_to_end(seed: u64, options: &Options) -> (Trace, Weak<World>) {
    watch_panics();
    let quiet = tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::new());
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime of this thread alone needs nothing of the system");
    let (mut trace, world) = runtime.block_on(run_in(seed, options));
    drop(runtime);
    drop(quiet);
    trace.panics = seen_panics();
    (trace, world)
}

async fn run_in(seed: u64, options: &Options) -> (Trace, Weak<World>) {
    // Each part draws from a generator of its own: one more draw in one of them leaves the others as they were.
    let part = |part: u64| seed.wrapping_mul(8).wrapping_add(part);
    let scenario = Scenario::draw(part(0));
    let faults = Faults::draw(part(1), &scenario);
    let world = World::new(part(2), scenario.lanes, faults.network);
    tokio::spawn(Arc::clone(&world).drive());
    let mut processes = ProcessManager::new(&world, &scenario, faults.single);
    prepare(&world, &scenario);
    let agents = Agents::start(&world, &scenario);
    let views = Views::default();
    if let Some(observer) = Observer::draw(part(3), &world, &scenario, views.clone()) {
        tokio::spawn(observer.drive());
    }
    processes.drive_until(scenario.troubled_ms).await;
    let unfinished = if options.liveness { rest(&agents, &mut processes, &scenario).await } else { Vec::new() };
    let trace = Trace {
        is_liveness: options.liveness,
        journals: agents.journals(),
        views: views.answered(),
        loads: processes.loads(),
        unfinished,
        ..world.trace(seed, &scenario)
    };
    (trace, Arc::downgrade(&world))
}

/// Stores what an exchange that has been up for a while has stored: agents, their group, policies.
fn prepare(world: &World, scenario: &Scenario) {
    let document = |value: serde_json::Result<Vec<u8>>| Bytes::from(value.expect("control documents can be written"));
    if let Some(record) = scenario.upgrades.earlier_rules() {
        world.begin_lanes(&document(serde_json::to_vec(&record)));
    }
    for agent in &scenario.agents {
        world.store(Bucket::Agents, agent.id.as_str(), document(serde_json::to_vec(&agent.registration)));
    }
    world.store(Bucket::Groups, scenario.group.id.as_str(), document(serde_json::to_vec(&scenario.group)));
    for policy in scenario.policies.iter().chain(&presets()) {
        let stored = document(serde_json::to_vec(policy));
        world.store(Bucket::Policies, policy.name(), stored.clone());
        world.store(Bucket::Policies, &policy.id.replacen('@', "~", 1), stored);
    }
}

/// Lets everything end without further faults, and says what had not when the time was up.
async fn rest(agents: &Agents, processes: &mut ProcessManager, scenario: &Scenario) -> Vec<String> {
    processes.calm();
    let mut waited_ms = 0;
    loop {
        waited_ms += REST_STEP_MS;
        processes.drive_until(scenario.troubled_ms + waited_ms).await;
        let mut unfinished = processes.unfinished();
        let pending = agents.pending();
        if pending > 0 {
            unfinished.push(format!("agents still have {pending} things to do"));
        }
        if unfinished.is_empty() || waited_ms >= REST_MS_MAX {
            return unfinished;
        }
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
