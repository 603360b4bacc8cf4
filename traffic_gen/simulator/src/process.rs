//! The processes of a run: real gateways and engines, started, killed and started again as a supervisor would. A killed
//! process goes on computing for a moment, with a dead link: nothing it does is seen by anybody.

mod slot;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use policy_engine::{LanePhase, LaneStatus, StopReason};
use schemas::Lane;
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::slot::Slot;
use super::Scenario;
use super::faults::{BrokerFault, ProcessFault, SingleFault};
use super::points::Point;
use super::scenario::teams;
use super::trace::QueueLoad;
use super::world::{Intervention, LinkId, ProcessRole, World};

/// How often processes are looked at, in milliseconds.
const INSPECT_MS: u64 = 100;
/// Gap before a process that could not start, or has stopped, is started again, in milliseconds.
const RESTART_MS: u64 = 400;

/// A lane that is not owned holds this many times `in_flight_max` deliveries before it gives up; an owner starts with
/// what it held.
const HELD_FACTOR: usize = 4;

/// What an engine says that has found more deliveries than it may hold.
const REMEDY: &str = "raise `outbox.in_flight_max`";

/// Something the manager will do.
#[derive(Debug, Clone)]
enum Deed {
    Start(usize),
    Inject(SingleFault),
    Apply(Intervention),
    Inspect,
}

/// A process that could not start.
struct Failed {
    process: usize,
    incarnation: u32,
    why: String,
}

/// Runs the processes and injects the faults.
pub(super) struct ProcessManager {
    world: Arc<World>,
    begin: Instant,
    slots: Vec<Slot>,
    timeline: BTreeMap<(Instant, u64), Deed>,
    planned: u64,
    failures: mpsc::UnboundedReceiver<Failed>,
    loads: BTreeMap<String, QueueLoad>,
    folding: Folding,
}

impl ProcessManager {
    /// Plans the start of every process and every fault.
    pub(super) fn new(world: &Arc<World>, scenario: &Scenario, faults: Vec<(u64, SingleFault)>) -> Self {
        let (sender, failures) = mpsc::unbounded_channel();
        let scenario = Arc::new(scenario.clone());
        let slot = |role, index| Slot::new(role, index, Arc::clone(world), Arc::clone(&scenario), sender.clone());
        let gateways = (0..scenario.gateways).map(|index| slot(ProcessRole::Gateway, index));
        let engines = (0..scenario.engines).map(|index| slot(ProcessRole::Engine, index));
        let mut manager = Self {
            world: Arc::clone(world),
            begin: Instant::now(),
            slots: gateways.chain(engines).collect(),
            timeline: BTreeMap::new(),
            planned: 0,
            failures,
            loads: BTreeMap::new(),
            folding: Folding::default(),
        };
        for process in 0..manager.slots.len() {
            manager.plan(0, Deed::Start(process));
        }
        for (at_ms, fault) in faults {
            manager.plan(at_ms, Deed::Inject(fault));
        }
        manager.plan(INSPECT_MS, Deed::Inspect);
        manager
    }

    fn plan(&mut self, after_ms: u64, deed: Deed) {
        self.planned += 1;
        self.timeline.insert((Instant::now() + Duration::from_millis(after_ms), self.planned), deed);
    }

    /// Manages the processes until a time, in milliseconds since the run began.
    pub(super) async fn drive_until(&mut self, until_ms: u64) {
        let until = self.begin + Duration::from_millis(until_ms);
        loop {
            let next = self.timeline.first_key_value().map_or(until, |((at, _), _)| *at);
            tokio::select! {
                biased;
                crashed = self.world.crashed() => self.handle_crashes(&crashed),
                Some(failed) = self.failures.recv() => self.handle_failure(&failed),
                () = tokio::time::sleep_until(next.min(until)) => {}
            }
            if Instant::now() >= until {
                return;
            }
            while let Some(entry) = self.timeline.first_entry()
                && entry.key().0 <= Instant::now()
            {
                let deed = entry.remove();
                self.act(deed);
            }
        }
    }

    /// Ends every fault, and starts whatever is down.
    pub(super) fn calm(&mut self) {
        self.timeline.clear();
        self.world.note("faults end".to_owned());
        self.world.apply(Intervention::Calm);
        for process in 0..self.slots.len() {
            match self.slots[process].link() {
                Some(link) => self.world.apply(Intervention::Release(link)),
                None => self.plan(0, Deed::Start(process)),
            }
        }
        self.plan(0, Deed::Inspect);
    }

    fn act(&mut self, deed: Deed) {
        match deed {
            Deed::Start(process) => self.slots[process].start(),
            Deed::Inject(SingleFault::Process(process, fault)) => self.inject(process, &fault),
            Deed::Inject(SingleFault::Broker(fault)) => self.inject_broker(&fault),
            Deed::Apply(intervention) => self.world.apply(intervention),
            Deed::Inspect => {
                self.inspect();
                self.plan(INSPECT_MS, Deed::Inspect);
            }
        }
    }

    /// Does something to a process; one that is down already cannot be harmed.
    fn inject(&mut self, process: usize, fault: &ProcessFault) {
        let Some(link) = self.slots[process].link() else { return };
        let name = self.slots[process].name();
        self.world.note(format!("{name}: {fault:?}"));
        match fault {
            ProcessFault::Kill { back_after_ms } => {
                self.world.apply(Intervention::Kill(link));
                self.handle_death(process, *back_after_ms);
            }
            ProcessFault::KillAtCall { calls, back_after_ms } => {
                self.slots[process].back_after_ms = *back_after_ms;
                self.world.apply(Intervention::KillAtCall(link, *calls));
            }
            ProcessFault::Stall { for_ms } => {
                self.apply_for(*for_ms, Intervention::Stall(link), Intervention::Resume(link));
            }
            ProcessFault::Cut { for_ms } => {
                self.apply_for(*for_ms, Intervention::Cut(link), Intervention::Mend(link));
            }
            ProcessFault::Leave { back_after_ms } => {
                if self.slots[process].leave() {
                    self.world.reached(Point::EngineLeft);
                    self.plan(*back_after_ms, Deed::Start(process));
                }
            }
        }
    }

    fn inject_broker(&mut self, fault: &BrokerFault) {
        self.world.note(format!("broker: {fault:?}"));
        match fault {
            BrokerFault::Down { for_ms } => {
                self.apply_for(*for_ms, Intervention::BrokerDown, Intervention::BrokerUp);
            }
            BrokerFault::Full { for_ms } => {
                self.apply_for(*for_ms, Intervention::LogFull(true), Intervention::LogFull(false));
            }
            BrokerFault::Mute { for_ms } => {
                self.apply_for(*for_ms, Intervention::BrokerMute(true), Intervention::BrokerMute(false));
            }
            BrokerFault::Jump { by_us } => self.world.apply(Intervention::ClockJump(*by_us)),
            BrokerFault::Archived => self.world.apply(Intervention::Archive),
        }
    }

    fn apply_for(&mut self, ms: u64, begin: Intervention, end: Intervention) {
        self.world.apply(begin);
        self.plan(ms, Deed::Apply(end));
    }

    /// A process is dead: forgets it, and starts it again later.
    fn handle_death(&mut self, process: usize, back_after_ms: u64) {
        let point = match self.slots[process].role() {
            ProcessRole::Engine => Point::EngineCrashed,
            ProcessRole::Gateway | ProcessRole::Agent => Point::GatewayCrashed,
        };
        self.world.reached(point);
        self.slots[process].abandon();
        self.plan(back_after_ms, Deed::Start(process));
    }

    fn handle_crashes(&mut self, crashed: &[LinkId]) {
        for link in crashed {
            let Some(process) = self.slots.iter().position(|slot| slot.link() == Some(*link)) else { continue };
            let (name, back_after_ms) = (self.slots[process].name(), self.slots[process].back_after_ms);
            self.world.note(format!("{name} dies in a call"));
            self.handle_death(process, back_after_ms);
        }
    }

    fn handle_failure(&mut self, failed: &Failed) {
        if !self.slots[failed.process].is(failed.incarnation) {
            return;
        }
        let name = self.slots[failed.process].name();
        self.world.reached(Point::StartFailed);
        self.world.note(format!("{name} cannot start: {}", failed.why));
        self.retire(failed.process, &failed.why);
    }

    /// A process has given up by itself: it ends, as far as anybody can see, and is started again. Where it names the
    /// setting that stops it, its operator follows.
    fn retire(&mut self, process: usize, why: &str) {
        if why.contains(REMEDY) {
            self.slots[process].in_flight_max *= 2;
        }
        if let Some(link) = self.slots[process].link() {
            self.world.apply(Intervention::Kill(link));
        }
        self.slots[process].abandon();
        self.plan(RESTART_MS, Deed::Start(process));
    }

    fn inspect(&mut self) {
        let engines: Vec<_> = self.slots.iter().filter_map(|slot| Some((slot.name(), slot.lanes()?))).collect();
        for point in self.folding.handle(&engines) {
            self.world.reached(point);
        }
        for process in 0..self.slots.len() {
            let Some(lanes) = self.slots[process].lanes() else { continue };
            let slot = &self.slots[process];
            let (in_flight_max, open_max) = (slot.in_flight_max, slot.scenario().settings.limits.open_max);
            for lane in &lanes {
                let outbox = format!("outbox, in_flight_max {in_flight_max}");
                self.note_load(outbox, lane.outbox, HELD_FACTOR * in_flight_max, true);
                // Each may be a team with its tasks.
                self.note_load("open".to_owned(), lane.open, open_max * (1 + teams::TASKS_MAX), false);
            }
            if let Some(reason) = stopped(&lanes).map(ToString::to_string) {
                let name = self.slots[process].name();
                self.world.note(format!("{name} has stopped: {reason}"));
                self.retire(process, &reason);
            }
        }
    }

    fn note_load(&mut self, what: String, seen: usize, limit: usize, is_asked_between_records: bool) {
        let (seen, limit) = (seen as u64, limit as u64);
        let load = self.loads.entry(what).or_insert(QueueLoad { seen_max: 0, limit, is_asked_between_records });
        load.seen_max = load.seen_max.max(seen);
    }

    /// What has not come to rest, in words; nothing when everything has.
    pub(super) fn unfinished(&self) -> Vec<String> {
        let stored = self.world.last_seqs();
        let (mut is_owned, mut is_folded) = (vec![false; stored.len()], vec![0; stored.len()]);
        let engines = self.slots.iter().filter(|slot| slot.role() == ProcessRole::Engine);
        let folding = engines.clone().map(|slot| slot.scenario().settings.standbys + 1).max().unwrap_or(0);
        let folding = folding.min(engines.count());
        let mut unfinished = Vec::new();
        for slot in &self.slots {
            if !slot.is_running() {
                unfinished.push(format!("{} is not running", slot.name()));
            }
            for lane in slot.lanes().unwrap_or_default() {
                let index = usize::from(lane.lane.0);
                is_owned[index] |= lane.phase == LanePhase::Owner;
                is_folded[index] += usize::from(lane.phase != LanePhase::Elsewhere);
                let is_behind = lane.phase != LanePhase::Elsewhere && lane.position < stored[index];
                if !is_at_rest(&lane) || is_behind {
                    unfinished.push(format!("{}: {lane:?}", slot.name()));
                }
            }
        }
        let orphans = is_owned.iter().enumerate().filter(|(_, is_owned)| !**is_owned);
        unfinished.extend(orphans.map(|(lane, _)| format!("nobody owns lane {lane}")));
        for (lane, engines) in is_folded.into_iter().enumerate().filter(|(_, engines)| *engines != folding) {
            unfinished.push(format!("{engines} engines fold lane {lane}, {folding} should"));
        }
        unfinished
    }

    /// The greatest loads seen.
    pub(super) fn loads(&self) -> BTreeMap<String, QueueLoad> {
        self.loads.clone()
    }
}

/// Which engines fold which lanes, as they say themselves: for the rare paths of lanes that are taken up and let go.
#[derive(Debug, Default)]
struct Folding {
    /// By engine and lane: whether the engine folded it when it was looked at last.
    is_folded: BTreeMap<(String, Lane), bool>,
    /// Lanes that an engine has taken up while nobody folded them, and nobody else has owned since.
    cold: BTreeSet<(String, Lane)>,
}

impl Folding {
    /// What the lanes of every running engine show.
    fn handle(&mut self, engines: &[(String, Vec<LaneStatus>)]) -> Vec<Point> {
        let (mut points, mut folded) = (Vec::new(), BTreeMap::new());
        let was_folded = std::mem::take(&mut self.is_folded);
        let lanes = || engines.iter().flat_map(|(engine, lanes)| lanes.iter().map(move |lane| (engine, lane)));
        let is_warm = |lane: &LaneStatus| matches!(lane.phase, LanePhase::Standby | LanePhase::Owner);
        for (engine, status) in lanes() {
            let is_folded = !matches!(status.phase, LanePhase::Elsewhere | LanePhase::Stopped(_));
            let place = (engine.clone(), status.lane);
            match (was_folded.get(&place), is_folded) {
                (Some(false), true) => {
                    points.push(Point::LaneTakenUp);
                    let is_others = |(other, lane): (&String, &LaneStatus)| {
                        other != engine && lane.lane == status.lane && is_warm(lane)
                    };
                    if !lanes().any(is_others) {
                        self.cold.insert(place.clone());
                    }
                }
                (Some(true), false) if status.phase == LanePhase::Elsewhere => points.push(Point::LaneLetGo),
                (Some(_) | None, _) => {}
            }
            if status.phase == LanePhase::Owner {
                if self.cold.contains(&place) {
                    points.push(Point::ColdTakeover);
                }
                self.cold.retain(|(_, lane)| *lane != status.lane);
            }
            folded.insert(place, is_folded);
        }
        self.is_folded = folded;
        points
    }
}

fn stopped(lanes: &[LaneStatus]) -> Option<&StopReason> {
    lanes.iter().find_map(|lane| match &lane.phase {
        LanePhase::Stopped(reason) => Some(reason),
        LanePhase::Elsewhere | LanePhase::CatchingUp | LanePhase::Standby | LanePhase::Claiming | LanePhase::Owner => {
            None
        }
    })
}

/// A standby need not be empty: what its owner heard and settled but had not logged when it died, it may hold until it
/// owns the lane itself. It is bounded, and then costs a repetition.
fn is_at_rest(lane: &LaneStatus) -> bool {
    let owes = if lane.phase == LanePhase::Standby { 0 } else { lane.outbox + lane.register_pending };
    lane.open == 0 && owes == 0
}
