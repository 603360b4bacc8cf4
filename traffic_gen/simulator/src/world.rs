//! The world of one run: a virtual clock, everything that is under way, the broker, and a link to it for each process.
//!
//! One list of events, ordered by time and then by the order in which they were made, is the only thing that ever
//! happens by itself. Whatever is drawn is drawn from one generator, in that order: hence one seed, one history.

mod broker;
mod hearing;
mod link;
mod routing;
mod watcher;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemas::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;

pub(super) use broker::{Broker, LaneLog, Subscription};
pub(super) use link::{Departure, LinkId, ProcessRole};

use link::Link;

use super::points::{Point, Points};
use super::trace::Happening;

/// True time when a run begins: 2026-01-01T00:00:00Z, in microseconds.
const BEGIN_US: u64 = 1_767_225_600_000_000;

/// Something that will happen.
pub(super) type Event = Box<dyn FnOnce(&mut WorldState) + Send>;

/// How badly the network behaves. Rates are per mille.
#[derive(Debug, Clone, Default)]
pub(super) struct NetworkFaults {
    /// Usual latency of one way, in microseconds, at most.
    pub(super) latency_us: u64,
    /// Latency of a slow one, in microseconds, at most.
    pub(super) slow_us: u64,
    /// Ways that are slow.
    pub(super) slow: u32,
    /// Requests that never arrive.
    pub(super) request_lost: u32,
    /// Answers that never arrive.
    pub(super) answer_lost: u32,
    /// Appends that are stored twice.
    pub(super) append_twice: u32,
    /// Messages between subjects that never arrive.
    pub(super) message_lost: u32,
    /// Messages between subjects that arrive twice.
    pub(super) message_twice: u32,
    /// Keys of awards under which another history has written before the first write arrives.
    pub(super) register_foreign: u32,
    /// When a caller learns that there is no answer, in microseconds.
    pub(super) timeout_us: u64,
}

impl NetworkFaults {
    /// The same ways, and nothing lost or repeated.
    pub(super) fn calmed(&self) -> Self {
        Self { latency_us: self.latency_us, timeout_us: self.timeout_us, ..Self::default() }
    }
}

/// The world. Shared by handle; everything in it is behind one lock that is never held across an `await`.
pub(super) struct World {
    state: Mutex<WorldState>,
    wake: Notify,
    /// Told when a process has crashed by one of its calls.
    pub(super) crashed: Notify,
}

/// What the lock guards.
pub(super) struct WorldState {
    begin: Instant,
    queue: BinaryHeap<Reverse<Planned>>,
    made: u64,
    /// What the pump sleeps for; anything earlier must wake it.
    armed: Option<u64>,
    pub(super) rng: ChaCha8Rng,
    pub(super) weather: NetworkFaults,
    pub(super) broker: Broker,
    pub(super) links: Vec<Link>,
    pub(super) crashed: Vec<LinkId>,
    pub(super) points: Points,
    pub(super) story: Vec<Happening>,
    pub(super) is_broker_down: bool,
    /// The broker answers no call.
    pub(super) is_broker_mute: bool,
    /// Requests made, to name their answers' subjects.
    pub(super) requests: u64,
}

struct Planned {
    at_us: u64,
    made: u64,
    event: Event,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        (self.at_us, self.made) == (other.at_us, other.made)
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_us, self.made).cmp(&(other.at_us, other.made))
    }
}

impl World {
    /// A world with an empty broker. Call it inside the runtime, whose clock it reads.
    pub(super) fn new(seed: u64, lanes: u8, weather: NetworkFaults) -> Arc<Self> {
        let state = WorldState {
            begin: Instant::now(),
            queue: BinaryHeap::new(),
            made: 0,
            armed: None,
            rng: ChaCha8Rng::seed_from_u64(seed),
            weather,
            broker: Broker::new(lanes),
            links: Vec::new(),
            crashed: Vec::new(),
            points: Points::new(),
            story: Vec::new(),
            is_broker_down: false,
            is_broker_mute: false,
            requests: 0,
        };
        Arc::new(Self { state: Mutex::new(state), wake: Notify::new(), crashed: Notify::new() })
    }

    /// The state, for as long as no `await` stands between.
    pub(super) fn state(&self) -> MutexGuard<'_, WorldState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes the pump and whoever waits for crashes if need be.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut WorldState) -> T) -> T {
        let mut state = self.state();
        let crashes = state.crashed.len();
        let result = change(&mut state);
        let next = state.queue.peek().map(|planned| planned.0.at_us);
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

    /// Lets things happen when their time has come, for ever.
    pub(super) async fn drive(self: Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state();
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
}

impl WorldState {
    /// Microseconds since the run began.
    pub(super) fn now_us(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// True time.
    pub(super) fn now(&self) -> Timestamp {
        Timestamp(BEGIN_US + self.now_us())
    }

    /// What the log's clock says.
    pub(super) fn log_now(&self) -> Timestamp {
        Timestamp((BEGIN_US + self.now_us()).saturating_add_signed(self.broker.clock_offset_us))
    }

    fn instant(&self, at_us: u64) -> Instant {
        self.begin + Duration::from_micros(at_us)
    }

    /// Runs what is due and says when the next is.
    fn run_due(&mut self) -> Option<u64> {
        loop {
            let now_us = self.now_us();
            match self.queue.peek() {
                Some(Reverse(planned)) if planned.at_us <= now_us => {}
                Some(Reverse(planned)) => return Some(planned.at_us),
                None => return None,
            }
            if let Some(Reverse(planned)) = self.queue.pop() {
                (planned.event)(self);
            }
        }
    }

    /// Lets something happen after a while; at the same time, in the order of the calls.
    pub(super) fn after(&mut self, us: u64, event: Event) {
        self.at(self.now_us().saturating_add(us), event);
    }

    /// Lets something happen at a time, in microseconds since the run began.
    pub(super) fn at(&mut self, at_us: u64, event: Event) {
        self.made += 1;
        self.queue.push(Reverse(Planned { at_us, made: self.made, event }));
    }

    /// Whether something of this rate, in per mille, happens now.
    pub(super) fn happens(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.rng.random_range(0..1000) < per_mille
    }

    /// The latency of one way, in microseconds.
    pub(super) fn latency_us(&mut self) -> u64 {
        let (usual, slow) = (self.weather.latency_us, self.weather.slow_us);
        let most = if self.happens(self.weather.slow) { slow } else { usual };
        self.rng.random_range(0..=most)
    }

    /// The archive has everything that is in the log now.
    pub(super) fn archive(&mut self) {
        for index in 0..self.broker.lanes.len() {
            let position = self.broker.lanes[index].last_seq();
            let value = Bytes::from(format!("{{\"position\":{position}}}"));
            self.broker.blobs.insert(format!("archived-{index}"), (position, value));
        }
    }

    /// Notes a happening for people to read.
    pub(super) fn tell(&mut self, what: String) {
        let at = self.now();
        self.story.push(Happening { at, what });
    }

    /// A rare path was taken.
    pub(super) fn reached(&mut self, point: Point) {
        self.points.reached(point);
    }

    /// How often each rare path was taken, by name.
    pub(super) fn sometimes(&self) -> BTreeMap<&'static str, u64> {
        self.points.by_name()
    }
}
