//! What the console shows: the engines' numbers as this gateway has heard them, and the control plane as it knows it.
//!
//! ```text
//! engine.<id>.statistics ──> EngineStatistics (the last of each engine, forgotten when it is silent) ──> snapshot ──> /v1/console
//! ```
//!
//! Nothing here is the ground of a decision. A gateway that hears no engine says so and serves on.
//!
//! Two documents exist, never mixed: [`Sight::Totals`] has counts only, [`Sight::All`] also names. Who may see which is
//! decided in `http/console`. A document is written at most every [`FRESH`], however many ask for it.

mod policies;
mod snapshot;
mod statistics;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bus::PubSub;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use schemas::statistics::{Quantiles, Statistics};
use schemas::subject::gateway_of;
use schemas::{Code, Refusal, Timestamp, subject};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::config::ConsoleAccess;
use crate::registry::{Registry, Tables};

/// How old a snapshot may be that is given out again: asking more often costs no more.
const FRESH: Duration = Duration::from_millis(400);
/// Between two looks whether the default policy has changed.
pub(crate) const LOOK: Duration = Duration::from_millis(200);
/// Looks between two points of the history, which are a second apart.
const LOOKS_PER_POINT: u32 = 5;
/// Pause before a subscription that ended is begun again.
const SUBSCRIBE_PAUSE: Duration = Duration::from_secs(1);
/// Streams of snapshots open at once, for administrators and, apart from them, for everybody else: nobody but another
/// administrator can take an administrator's place.
const STREAMS_MAX: usize = 32;
/// Journals being asked for at once.
const JOURNALS_MAX: usize = 16;

/// What a visitor may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Counts.
    Totals,
    /// Counts and names.
    All,
}

/// The console's memory, shared by handle.
pub(crate) struct Console {
    about: About,
    registry: Arc<Registry>,
    began: Instant,
    statistics: Mutex<EngineStatistics>,
    switches: Mutex<DefaultPolicyHistory>,
    gateways: Mutex<Gateways>,
    written: [Mutex<Option<RenderedSnapshot>>; 2],
    admin_streams: Arc<Semaphore>,
    other_streams: Arc<Semaphore>,
    journals: Arc<Semaphore>,
}

struct RenderedSnapshot {
    at: Instant,
    default_policy: String,
    text: Arc<str>,
}

impl Console {
    /// A console that has heard nothing yet; [`Console::drive`] listens.
    pub(crate) fn new(gateway: &str, lanes: u8, access: ConsoleAccess, registry: Arc<Registry>) -> Self {
        Self {
            about: About { gateway: gateway.to_owned(), lanes, access },
            registry,
            began: Instant::now(),
            statistics: Mutex::default(),
            switches: Mutex::default(),
            gateways: Mutex::default(),
            written: [Mutex::new(None), Mutex::new(None)],
            admin_streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            other_streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            journals: Arc::new(Semaphore::new(JOURNALS_MAX)),
        }
    }

    /// Hears the engines until the gateway stops.
    pub(crate) async fn drive(self: Arc<Self>, pub_sub: Arc<dyn PubSub>, stop: CancellationToken) {
        let hear_engines = async {
            loop {
                self.hear_engines(pub_sub.as_ref()).await;
                tokio::time::sleep(SUBSCRIBE_PAUSE).await;
            }
        };
        let hear_gateways = async {
            loop {
                self.hear_gateways(pub_sub.as_ref()).await;
                tokio::time::sleep(SUBSCRIBE_PAUSE).await;
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = hear_engines => {}
            () = hear_gateways => {}
            () = self.look() => {}
        }
    }

    async fn hear_engines(&self, pub_sub: &dyn PubSub) {
        let mut received = match pub_sub.subscribe(subject::ALL_STATISTICS.to_owned(), None).await {
            Ok(received) => received,
            Err(error) => {
                tracing::warn!(%error, "the engines' numbers cannot be heard; trying again");
                return;
            }
        };
        while let Some(message) = received.next().await {
            let now = self.began.elapsed();
            let is_heard = self
                .with_statistics(|statistics| statistics.handle_statistics(&message.subject, &message.payload, now));
            if !is_heard {
                tracing::debug!(subject = message.subject, "not an engine's numbers, or one engine too many");
            }
        }
    }

    async fn hear_gateways(&self, pub_sub: &dyn PubSub) {
        // Where the bus does not answer, the engines' numbers are missed as well, and that is said.
        let Ok(mut received) = pub_sub.subscribe(subject::ALL_PRESENCE.to_owned(), None).await else { return };
        while let Some(message) = received.next().await {
            let now = self.began.elapsed();
            self.gateways.lock().handle_report(&message.subject, now);
        }
    }

    /// Notes changes of the default policy, and each second a point of the history.
    async fn look(&self) {
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for look in (0..LOOKS_PER_POINT).cycle() {
            looks.tick().await;
            if self.registry.is_caught_up() {
                let policy = self.default_policy();
                self.switches.lock().handle_default(&policy, now());
            }
            if look == 0 {
                let now = self.began.elapsed();
                self.with_statistics(|statistics| statistics.handle_second(now));
            }
        }
    }

    /// The policy of calls that name none.
    pub(crate) fn default_policy(&self) -> String {
        self.registry.read().policies.default_policy().to_owned()
    }

    /// The snapshot as JSON, at most [`FRESH`] old, and never older than the last change of the default policy.
    ///
    /// # Errors
    /// [`Code::Internal`] when it cannot be written.
    pub(crate) fn snapshot(&self, sight: Sight) -> Result<Arc<str>, Refusal> {
        let mut written = self.written[sight as usize].lock();
        let tables = self.registry.read();
        let default_policy = tables.policies.default_policy();
        let is_good = |known: &&RenderedSnapshot| known.at.elapsed() < FRESH && known.default_policy == default_policy;
        if let Some(known) = written.as_ref().filter(is_good) {
            return Ok(known.text.clone());
        }
        let now = self.began.elapsed();
        let switches = self.switches.lock();
        let gateways = self.gateways.lock();
        let text = self.with_statistics(|statistics| {
            statistics.forget_silent(now);
            let now_ms = self.registry.now_ms();
            let (about, tables, switches) = (&self.about, &*tables, &*switches);
            let faults = self.registry.openings().faults(about.lanes, Instant::now());
            let sources = Sources { about, statistics, tables, switches, gateways: &gateways, faults: &faults, now_ms };
            snapshot::write(sources, sight, now)
        });
        let text: Arc<str> = text.map_err(|_| Refusal::new(Code::Internal, "the snapshot cannot be written"))?.into();
        *written = Some(RenderedSnapshot {
            at: Instant::now(),
            default_policy: default_policy.to_owned(),
            text: text.clone(),
        });
        Ok(text)
    }

    /// A place among the streams of snapshots; dropping it frees the place.
    ///
    /// # Errors
    /// [`Code::Overloaded`] when all are taken.
    pub(crate) fn stream_place(&self, is_admin: bool) -> Result<OwnedSemaphorePermit, Refusal> {
        let places = if is_admin { &self.admin_streams } else { &self.other_streams };
        places.clone().try_acquire_owned().map_err(|_| {
            Refusal::new(Code::Overloaded, "too many consoles are open")
                .expecting(format!("at most {STREAMS_MAX}; GET /v1/console answers without a stream"))
                .retry_after_ms(5000)
        })
    }

    /// A place among the journals being asked for.
    ///
    /// # Errors
    /// [`Code::Overloaded`] when all are taken.
    pub(crate) fn journal_place(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        self.journals.clone().try_acquire_owned().map_err(|_| {
            Refusal::new(Code::Overloaded, "too many journals are being asked for; try again").retry_after_ms(1000)
        })
    }

    fn with_statistics<T>(&self, work: impl FnOnce(&mut EngineStatistics) -> T) -> T {
        work(&mut self.statistics.lock())
    }
}

/// What does not change while the gateway runs.
struct About {
    gateway: String,
    lanes: u8,
    access: ConsoleAccess,
}

/// What a snapshot is written from.
#[derive(Clone, Copy)]
struct Sources<'a> {
    about: &'a About,
    statistics: &'a EngineStatistics,
    tables: &'a Tables,
    switches: &'a DefaultPolicyHistory,
    gateways: &'a Gateways,
    /// Why openings are refused.
    faults: &'a [String],
    /// The registry's clock.
    now_ms: u64,
}

/// The time by this gateway's clock.
fn now() -> Timestamp {
    Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64))
}

/// The latest statistics of each engine, by id.
#[derive(Default)]
struct EngineStatistics {
    engines: BTreeMap<String, ReceivedStatistics>,
    history: VecDeque<RatePoint>,
    /// An engine that had counted something is gone, or began anew.
    has_lost_counts: bool,
}

/// One engine.
struct ReceivedStatistics {
    /// What it said last.
    latest: Statistics,
    /// When.
    at: Duration,
    marks: VecDeque<Mark>,
}

/// Counters of one engine as they stood once.
#[derive(Debug, Clone)]
struct Mark {
    at: Duration,
    counts: [u64; 4],
    ended_by_policy: BTreeMap<String, u64>,
}

/// Changes a second: of one engine or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
struct Rates {
    started: f64,
    ended: f64,
    awards: f64,
    offers: f64,
}

/// Counts over every engine that is heard.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct Totals {
    open: u64,
    started: u64,
    ended: u64,
    ended_by_outcome: BTreeMap<String, u64>,
    awards: u64,
    binding: u64,
    offers: u64,
    unacknowledged: u64,
    /// Engines that are gone, or began anew, have counted more.
    lower_bound: bool,
}

/// One second of the past.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct RatePoint {
    /// Negotiations ended per second.
    ended_per_s: f64,
    /// From call to end, 95 of 100 of the last minute.
    p95_us: u64,
    /// From call to end, half of what ended in the last five seconds; 0 when nothing did.
    recent_p50_us: u64,
    /// The same, 95 of 100.
    recent_p95_us: u64,
    /// Negotiations ended per second under each policy: shown to those only who may see names.
    #[serde(skip)]
    ended_per_s_by_policy: BTreeMap<String, f64>,
}

/// Quantiles of several engines that do not tell their histograms: the true one is at most the largest of each.
fn largest(spreads: impl Iterator<Item = Quantiles>) -> Quantiles {
    spreads.filter(|spread| spread.count > 0).fold(Quantiles::default(), |one, other| Quantiles {
        count: one.count.saturating_add(other.count),
        p50_us: one.p50_us.max(other.p50_us),
        p95_us: one.p95_us.max(other.p95_us),
        p99_us: one.p99_us.max(other.p99_us),
    })
}

/// Whether a name can be one token of a subject.
fn is_token(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Changes remembered: the newest.
const SWITCHES_MAX: usize = 8;

/// When the default policy changed, as this gateway has seen it.
#[derive(Default)]
struct DefaultPolicyHistory {
    current: Option<String>,
    newest: VecDeque<DefaultPolicyChange>,
}

/// One change.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct DefaultPolicyChange {
    at: Timestamp,
    from: String,
    to: String,
}

impl DefaultPolicyHistory {
    /// Takes note of the default that is in force; the first one is no change.
    fn handle_default(&mut self, policy: &str, at: Timestamp) {
        if self.current.as_deref() == Some(policy) {
            return;
        }
        let Some(from) = self.current.replace(policy.to_owned()) else { return };
        if self.newest.len() == SWITCHES_MAX {
            self.newest.pop_front();
        }
        self.newest.push_back(DefaultPolicyChange { at, from, to: policy.to_owned() });
    }

    /// The newest changes, oldest first.
    fn iter(&self) -> impl Iterator<Item = &DefaultPolicyChange> {
        self.newest.iter()
    }
}

/// Gateways remembered; further ones are not counted.
const GATEWAYS_MAX: usize = 64;
/// A gateway that has reported nobody for this long is not counted: three of its reports.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// The others, by id, and when each reported last.
#[derive(Default)]
struct Gateways(BTreeMap<String, Duration>);

impl Gateways {
    /// Takes note of a report on a subject.
    fn handle_report(&mut self, on: &str, now: Duration) {
        let Some(gateway) = gateway_of(on).filter(|gateway| is_token(gateway)) else { return };
        self.0.retain(|_, at| now.saturating_sub(*at) <= SILENCE_MAX);
        if self.0.contains_key(gateway) || self.0.len() < GATEWAYS_MAX {
            self.0.insert(gateway.to_owned(), now);
        }
    }

    /// How many there are, the one called `own` included whether it reports or not.
    fn count(&self, own: &str, now: Duration) -> usize {
        let is_other =
            |(gateway, at): &(&String, &Duration)| *gateway != own && now.saturating_sub(**at) <= SILENCE_MAX;
        1 + self.0.iter().filter(is_other).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_noted_once_each_and_only_the_newest_are_kept() {
        let mut changes = DefaultPolicyHistory::default();
        for number in 0..20_u64 {
            let policy = format!("p{number}");
            changes.handle_default(&policy, Timestamp(number));
            changes.handle_default(&policy, Timestamp(number));
        }
        let seen: Vec<(u64, &str, &str)> =
            changes.iter().map(|change| (change.at.0, change.from.as_str(), change.to.as_str())).collect();
        assert_eq!(seen.len(), SWITCHES_MAX);
        assert_eq!((seen[0], seen[7]), ((12, "p11", "p12"), (19, "p18", "p19")));
    }
}

#[cfg(test)]
mod gateways_tests {
    use super::*;

    #[test]
    fn gateways_that_reported_of_late_are_counted_each_once_and_this_one_always() {
        let mut gateways = Gateways::default();
        assert_eq!(gateways.count("a", Duration::ZERO), 1);
        for (on, at) in [("presence.a", 0), ("presence.b", 1), ("presence.b", 2), ("presence.<img>", 2), ("other.c", 2)]
        {
            gateways.handle_report(on, Duration::from_secs(at));
        }
        let counts = [2, 17, 18].map(|at| gateways.count("a", Duration::from_secs(at)));
        assert_eq!(counts, [2, 2, 1]);
        (0..1000).for_each(|number| gateways.handle_report(&format!("presence.g{number}"), Duration::from_secs(20)));
        assert_eq!(gateways.count("a", Duration::from_secs(20)), 1 + GATEWAYS_MAX);
    }
}
