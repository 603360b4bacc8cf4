//! The world of one run: a virtual clock, everything that is under way, the broker, and a link to it for each process.
//!
//! One list of events, ordered by time and then by the order in which they were made, is the only thing that ever
//! happens by itself. Whatever is drawn is drawn from one generator, in that order: hence one seed, one history.

mod broker;
mod gateways;
mod link;
mod presence;
mod watcher;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bus::Bucket;
use bytes::Bytes;
use gateway::{Acknowledgements, AgentStreams};
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemas::{DeliveryId, Timestamp};
use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;

use self::broker::Broker;
use self::link::Link;
use self::presence::PresenceObserver;
use self::watcher::Watcher;
use super::Scenario;
use super::points::{Point, Points};
use super::scenario::{INITIATORS, agent};
use super::trace::{AckEvent, AckEventKind, Happening, Trace};

/// True time when a run begins: 2026-01-01T00:00:00Z, in microseconds.
const BEGIN_US: u64 = 1_767_225_600_000_000;

/// In one run of so many the register holds entries of another history.
const FOREIGN_ONE_IN: u32 = 8;

/// How long each [`PacedPart`] takes for one thing, in microseconds; 0: no time.
pub(super) type Paces = [u64; 3];

/// Latency and patience where nothing but [`Paces`] is in the way, in microseconds.
const PACED_US: [u64; 2] = [1_000, 500_000];

/// A part of the exchange that does one thing after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PacedPart {
    /// The engine reads a record.
    Records,
    /// The register stores an entry.
    Register,
    /// The engine hands over a message.
    Deliveries,
}

/// How badly the network behaves. Rates are per mille.
#[derive(Debug, Clone, Default)]
pub(super) struct NetworkFaults {
    /// Usual latency of one way, in microseconds, at most.
    latency_us: u64,
    /// Latency of a slow one, in microseconds, at most.
    slow_us: u64,
    /// Ways that are slow.
    slow: u32,
    /// Requests that never arrive.
    request_lost: u32,
    /// Answers that never arrive.
    answer_lost: u32,
    /// Appends that are stored twice.
    append_twice: u32,
    /// Messages between subjects that never arrive.
    message_lost: u32,
    /// Messages between subjects that arrive twice.
    message_twice: u32,
    /// Keys of awards under which another history has written before the first write arrives.
    register_foreign: u32,
    /// When a caller learns that there is no answer, in microseconds.
    timeout_us: u64,
    /// Nothing befalls gateways: who has not been heard is known to be absent.
    are_gateways_spared: bool,
    paces: Paces,
}

impl NetworkFaults {
    /// Draws how the network of a run behaves; in one run of five nothing is lost or repeated.
    pub(super) fn draw(rng: &mut ChaCha8Rng) -> Self {
        let latency_us = rng.random_range(300..6000);
        let timeout_us = rng.random_range(150_000..900_000);
        if rng.random_range(0..5) == 0 {
            return Self { latency_us, timeout_us, ..Self::default() };
        }
        let mut rate = |most: u32| if rng.random_range(0..2) == 0 { 0 } else { rng.random_range(1..=most) };
        Self {
            latency_us,
            slow: rate(100),
            request_lost: rate(40),
            answer_lost: rate(40),
            append_twice: rate(80),
            message_lost: rate(100),
            message_twice: rate(80),
            slow_us: rng.random_range(20_000..400_000),
            timeout_us,
            register_foreign: if rng.random_range(0..FOREIGN_ONE_IN) == 0 { rng.random_range(50..=500) } else { 0 },
            are_gateways_spared: false,
            paces: Paces::default(),
        }
    }

    /// Nothing is lost, repeated or late, but for what takes its time.
    pub(super) fn paced(paces: Paces) -> Self {
        let [latency_us, timeout_us] = PACED_US;
        Self { latency_us, timeout_us, paces, ..Self::default() }
    }

    /// Takes out whatever keeps a gateway from hearing the bus and knowing that it does.
    pub(super) fn spare_gateways(&mut self) {
        (self.slow, self.request_lost, self.answer_lost) = (0, 0, 0);
        self.are_gateways_spared = true;
    }

    /// The same ways, and nothing lost or repeated.
    fn calmed(&self) -> Self {
        let &Self { latency_us, timeout_us, are_gateways_spared, paces, .. } = self;
        Self { latency_us, timeout_us, are_gateways_spared, paces, ..Self::default() }
    }
}

/// How a delivery begins in an inbox message.
const ID_MEMBER: &str = "\"msg_id\":\"";
/// Digits of a delivery id.
const ID_LEN: usize = 32;

/// A link's place in the list of links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinkId(usize);

/// Whose link it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ProcessRole {
    /// A gateway's.
    Gateway,
    /// An engine's.
    Engine,
    /// An agent's.
    Agent,
}

/// Something done to a process or to the broker from outside.
#[derive(Debug, Clone, Copy)]
pub(super) enum Intervention {
    /// The process is dead: nothing leaves it and nothing arrives, for ever.
    Kill(LinkId),
    /// The process will be killed by the call after the next so many.
    KillAtCall(LinkId, u64),
    /// The process stands still.
    Stall(LinkId),
    /// It goes on.
    Resume(LinkId),
    /// The network between the process and the broker is cut.
    Cut(LinkId),
    /// It is whole again.
    Mend(LinkId),
    /// Nothing befalls the process any more.
    Release(LinkId),
    /// The broker is gone.
    BrokerDown,
    /// It is back.
    BrokerUp,
    /// The log takes no more records, or does.
    LogFull(bool),
    /// The broker answers no call, or does.
    BrokerMute(bool),
    /// The log's clock jumps, by so many microseconds.
    ClockJump(i64),
    /// The archive has everything that is in the log now.
    Archive,
    /// The broker and the network commit no more faults.
    Calm,
}

/// The world. Shared by handle; everything in it is behind one lock that is never held across an `await`.
pub(super) struct World {
    state: Mutex<WorldState>,
    wake: Notify,
    /// Told when a process has crashed by one of its calls.
    crashed: Notify,
}

/// Something that will happen.
type ScheduledEvent = Box<dyn FnOnce(&mut WorldState) + Send>;

/// What the lock guards.
struct WorldState {
    begin: Instant,
    /// What happens next, by its time and the order in which it was planned.
    queue: BTreeMap<(u64, u64), ScheduledEvent>,
    made: u64,
    /// What the pump sleeps for; anything earlier must wake it.
    armed: Option<u64>,
    rng: ChaCha8Rng,
    network: NetworkFaults,
    /// Until when each part is at work, in microseconds since the run began.
    at_work_until_us: Paces,
    broker: Broker,
    broker_faults: BrokerFaults,
    links: Vec<Link>,
    /// Processes that crashed by one of their calls, and are not known to have.
    crashed: Vec<LinkId>,
    /// Follows whom gateways hear.
    presence: PresenceObserver,
    /// Follows what the log says about engines.
    watcher: Watcher,
    /// The gateways that run, in the order they started.
    gateways: BTreeMap<LinkId, RunningGateway>,
    points: Points,
}

/// A gateway that runs, as agents reach it.
struct RunningGateway {
    acknowledgements: Acknowledgements,
    streams: AgentStreams,
    /// Dropped with the gateway: its receivers fail then, in the order in which they began to wait. A `watch` channel would wake
    /// them in random order.
    runs: broadcast::Sender<()>,
}

/// What the broker suffers from.
#[derive(Debug, Clone, Copy, Default)]
struct BrokerFaults {
    is_down: bool,
    /// It answers no call.
    is_mute: bool,
    /// The log takes no more records.
    is_full: bool,
    /// What the log's clock is off by.
    clock_offset_us: i64,
}

impl World {
    /// A world with an empty broker. Call it inside the runtime, whose clock it reads.
    pub(super) fn new(seed: u64, lanes: u8, network: NetworkFaults) -> Arc<Self> {
        let state = WorldState {
            begin: Instant::now(),
            queue: BTreeMap::new(),
            made: 0,
            armed: None,
            rng: ChaCha8Rng::seed_from_u64(seed),
            network,
            at_work_until_us: Paces::default(),
            broker: Broker::new(lanes),
            broker_faults: BrokerFaults::default(),
            links: Vec::new(),
            crashed: Vec::new(),
            presence: PresenceObserver::default(),
            watcher: Watcher::new(lanes),
            gateways: BTreeMap::new(),
            points: Points::new(),
        };
        Arc::new(Self { state: Mutex::new(state), wake: Notify::new(), crashed: Notify::new() })
    }

    /// True time.
    pub(super) fn now(&self) -> Timestamp {
        self.state.lock().now()
    }

    /// Milliseconds since the run began.
    pub(super) fn elapsed_ms(&self) -> u64 {
        self.state.lock().now_us() / 1000
    }

    /// A rare path was taken.
    pub(super) fn reached(&self, point: Point) {
        self.state.lock().reached(point);
    }

    /// Notes a happening for people to read.
    pub(super) fn note(&self, what: String) {
        let mut state = self.state.lock();
        let at = state.now();
        state.broker.trace.story.push(Happening { at, what });
    }

    /// The last record of each lane; 0 before the first.
    pub(super) fn last_seqs(&self) -> Vec<u64> {
        self.state.lock().broker.last_seqs()
    }

    /// Stores what the log of every lane holds before the run.
    pub(super) fn begin_lanes(&self, record: &Bytes) {
        let mut state = self.state.lock();
        let now = state.log_now();
        state.broker.begin_lanes(now, record);
    }

    /// Stores a value in a bucket.
    pub(super) fn store(&self, bucket: Bucket, key: &str, value: Bytes) {
        self.change(|state| state.put(bucket, key, Some(value)));
    }

    /// Does something to a process or to the broker.
    pub(super) fn apply(&self, intervention: Intervention) {
        self.change(|state| state.apply(intervention));
    }

    /// Processes that crashed by one of their calls, once there are any.
    pub(super) async fn crashed(&self) -> Vec<LinkId> {
        self.crashed.notified().await;
        std::mem::take(&mut self.state.lock().crashed)
    }

    /// What the run leaves behind here; what processes, agents and observers add is empty.
    pub(super) fn trace(&self, seed: u64, scenario: &Scenario) -> Trace {
        let state = self.state.lock();
        Trace {
            seed,
            lanes: scenario.lanes,
            limits: scenario.settings.limits.clone(),
            flooded_by: scenario.paces.map(|_| agent(INITIATORS[0])),
            invited: state.presence.invited(),
            digests: state.watcher.digests(),
            sometimes: state.points.by_name(),
            ended_at: state.now(),
            ..state.broker.trace()
        }
    }

    /// Lets things happen when their time has come, for ever.
    pub(super) async fn drive(self: Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state.lock();
                let crashes = state.crashed.len();
                let next = state.run_due();
                if state.crashed.len() > crashes {
                    self.crashed.notify_one();
                }
                state.armed = next;
                next.map(|at_us| state.instant(at_us))
            };
            match next {
                Some(at) => tokio::select! {
                    biased;
                    () = self.wake.notified() => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => self.wake.notified().await,
            }
        }
    }

    /// Changes the state, and wakes the pump and whoever waits for crashes if need be.
    fn change<T>(&self, change: impl FnOnce(&mut WorldState) -> T) -> T {
        let mut state = self.state.lock();
        let crashes = state.crashed.len();
        let result = change(&mut state);
        let next = state.queue.first_key_value().map(|((at_us, _), _)| *at_us);
        let is_earlier = next.is_some_and(|next| state.armed.is_none_or(|armed| next < armed));
        let has_crashed = state.crashed.len() > crashes;
        drop(state);
        if is_earlier {
            self.wake.notify_one();
        }
        if has_crashed {
            self.crashed.notify_one();
        }
        result
    }
}

impl WorldState {
    /// Microseconds since the run began.
    fn now_us(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn now(&self) -> Timestamp {
        Timestamp(BEGIN_US + self.now_us())
    }

    /// What the log's clock says.
    fn log_now(&self) -> Timestamp {
        Timestamp(self.now().0.saturating_add_signed(self.broker_faults.clock_offset_us))
    }

    fn instant(&self, at_us: u64) -> Instant {
        self.begin + Duration::from_micros(at_us)
    }

    /// Runs what is due and says when the next is.
    fn run_due(&mut self) -> Option<u64> {
        loop {
            let (at_us, _) = *self.queue.first_key_value()?.0;
            if at_us > self.now_us() {
                return Some(at_us);
            }
            if let Some((_, event)) = self.queue.pop_first() {
                event(self);
            }
        }
    }

    /// Lets something happen after a while; at the same time, in the order of the calls.
    fn after(&mut self, us: u64, event: ScheduledEvent) {
        self.at(self.now_us().saturating_add(us), event);
    }

    /// Lets something happen at a time, in microseconds since the run began.
    fn at(&mut self, at_us: u64, event: ScheduledEvent) {
        self.made += 1;
        self.queue.insert((at_us, self.made), event);
    }

    /// Whether something of this rate, in per mille, happens now.
    fn happens(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.rng.random_range(0..1000) < per_mille
    }

    /// The latency of one way, in microseconds.
    fn latency_us(&mut self) -> u64 {
        let (usual, slow) = (self.network.latency_us, self.network.slow_us);
        let most = if self.happens(self.network.slow) { slow } else { usual };
        self.rng.random_range(0..=most)
    }

    /// How long a part takes for what it has to do and for one thing more, in microseconds.
    fn queue_work_us(&mut self, part: PacedPart) -> u64 {
        let (pace_us, now_us) = (self.network.paces[part as usize], self.now_us());
        let until_us = &mut self.at_work_until_us[part as usize];
        *until_us = now_us.max(*until_us) + pace_us;
        *until_us - now_us
    }

    /// Lets something happen once a part has worked on it; at once where that takes no time.
    fn once_worked_on(&mut self, part: PacedPart, event: ScheduledEvent) {
        match self.queue_work_us(part) {
            0 => event(self),
            us => self.after(us, event),
        }
    }

    fn note_acks(&mut self, link: LinkId, kind: AckEventKind) {
        let (at, process) = (self.now(), self.name(link).to_owned());
        self.broker.trace.acks.push(AckEvent { at, process, kind });
    }

    fn reached(&mut self, point: Point) {
        self.points.reached(point);
    }
}

/// The ids of the deliveries in an inbox message.
fn delivery_ids(payload: &[u8]) -> impl Iterator<Item = DeliveryId> {
    let text = std::str::from_utf8(payload).unwrap_or_default();
    text.match_indices(ID_MEMBER).filter_map(|(at, _)| {
        let begin = at + ID_MEMBER.len();
        DeliveryId::try_new(text.get(begin..begin + ID_LEN)?).ok()
    })
}
