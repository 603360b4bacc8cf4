//! Settings of an engine. Every bound has a default with the reason for its value.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use policy_core::Limits;
use policy_core::lane::RULES_VERSION;
use schemas::{Lane, Timestamp};
use telemetry::Tracer;

/// Longest id of an engine, in characters, as of every other name of the exchange.
const ID_LEN_MAX: usize = 64;
/// Sequences between two points at which digests are compared. A few hundred thousand records a minute make a few points a
/// second: enough to notice a difference at once, few enough to cost nothing.
const DIGEST_EVERY: u64 = 1024;
/// Most engines that stand by for a lane: more survive what no exchange of this size does.
pub(crate) const STANDBYS_MAX: usize = 3;
/// One engine may fail at any time, and its lanes go on within a second.
const STANDBYS_DEFAULT: usize = 1;
/// What people watch changes once a second.
const STATISTICS_MS_DEFAULT: u64 = 1000;

/// An hour: thirty times what a server flushes to disk late, and a bound on the register of some hundred thousand entries at ten
/// negotiations a second.
const REGISTER_KEEP_MS_DEFAULT: u64 = 3_600_000;

/// Settings of one engine.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Names this running instance in the log (`by`, `claim`) and to other engines: 1 to 64 of `A-Z a-z 0-9 _ -`. Must
    /// differ between two engines that run at once.
    pub id: String,
    /// The lanes it may serve; absent: every lane of the log. It folds those it should own and those it stands by for.
    pub lanes: Option<Vec<Lane>>,
    /// Engines that stand by for each lane, 0 to 3; every engine of an exchange needs the same value. With 0 a lane whose
    /// owner is gone waits until another engine has read its checkpoint and the log behind it.
    pub standbys: usize,
    /// Bounds of each lane's state.
    pub limits: Limits,
    /// The outbox.
    pub outbox: OutboxConfig,
    /// How much is taken in before anything goes out.
    pub batch: BatchConfig,
    /// How engines notice each other.
    pub membership: MembershipConfig,
    /// Sequences between two records after which engines compare the digests of their states, at least 1; the same for
    /// every engine of an exchange. By default 1024: a difference is noticed at once, and looking costs nothing.
    pub digest_every: u64,
    /// How often the state is stored.
    pub checkpoint: CheckpointConfig,
    /// How far the log is trimmed.
    pub trim: Trim,
    /// How long an entry of the register stays at least, in milliseconds; 0: for ever, as it does without an archive
    /// ([`Trim::AfterArchive`]). More than the log can lose of its end, and the same for every engine of an exchange.
    pub register_keep_ms: u64,
    /// The engine's own clock, and how far the log's may be from it.
    pub clock: ClockConfig,
    /// The newest rules version this engine folds; lower than the build's only to hold a roll-out back.
    pub rules_newest: u32,
    /// Gap between two publications ([`schemas::statistics`]), in milliseconds. 0: the engine tells people who look nothing, and
    /// remembers nothing for them; neither statistics nor journals.
    pub statistics_ms: u64,
    /// Where spans go.
    pub tracer: Tracer,
}

impl EngineConfig {
    /// Default settings under a name.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            lanes: None,
            standbys: STANDBYS_DEFAULT,
            limits: Limits::default(),
            outbox: OutboxConfig::default(),
            batch: BatchConfig::default(),
            membership: MembershipConfig::default(),
            digest_every: DIGEST_EVERY,
            checkpoint: CheckpointConfig::default(),
            trim: Trim::default(),
            register_keep_ms: REGISTER_KEEP_MS_DEFAULT,
            clock: ClockConfig::default(),
            rules_newest: RULES_VERSION,
            statistics_ms: STATISTICS_MS_DEFAULT,
            tracer: Tracer::off(),
        }
    }

    /// Refuses settings that cannot work, with the reason.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let is_ours = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !(1..=ID_LEN_MAX).contains(&self.id.len()) || !self.id.bytes().all(is_ours) {
            return Err("`id` must be 1 to 64 characters of A-Z a-z 0-9 _ -");
        }
        if self.membership.heartbeat_ms == 0 || self.membership.dead_after_ms < 2 * self.membership.heartbeat_ms {
            return Err("`membership.dead_after_ms` must be at least twice `heartbeat_ms`, which is not 0");
        }
        if self.standbys > STANDBYS_MAX {
            return Err("`standbys` must be 0 to 3");
        }
        if self.outbox.backlog_max == 0 {
            return Err("`outbox.backlog_max` must be at least 1");
        }
        if !(1..=self.outbox.under_way_max).contains(&self.outbox.under_way_min) {
            return Err("`outbox.under_way_min` must be 1 to `under_way_max`");
        }
        if self.rules_newest > RULES_VERSION {
            return Err("`rules_newest` is above what this build knows");
        }
        Ok(())
    }
}

/// Settings of a lane's outbox.
#[derive(Debug, Clone)]
pub struct OutboxConfig {
    /// Gap before the first repeat, in milliseconds; each further gap is twice the one before. 500 is far above any
    /// healthy round trip, so that a repeat means a loss. To an agent that is slow to acknowledge it is up to eight times
    /// as long.
    pub retry_base_ms: u64,
    /// Largest gap, in milliseconds.
    pub retry_ms_max: u64,
    /// Most times one delivery is sent, the first included. Eight attempts at doubling gaps span about a minute, the
    /// default time to perform.
    pub attempts_max: u32,
    /// Most deliveries of a lane that wait for an acknowledgement; at this many the lane stops reading the log until
    /// some are acknowledged or given up.
    pub in_flight_max: usize,
    /// Most deliveries of a lane that are under way to one agent at a time; further ones leave as it acknowledges. One that
    /// takes long to acknowledge has as few as `under_way_min`.
    pub under_way_max: usize,
    /// Deliveries of a lane that may be under way to an agent however long it takes to acknowledge.
    pub under_way_min: usize,
    /// Most deliveries that wait for one agent; further ones are given up at once, so that one silent agent can never
    /// use up `in_flight_max`.
    pub per_agent_max: usize,
    /// Deliveries that one agent has not acknowledged beyond which gateways invite it no more: those that wait for it and
    /// those given up since it last acknowledged one or connected, in all lanes this engine owns. A quarter of what may
    /// wait for it in one lane; an agent that acknowledges what it reads has a few hundred at most.
    pub backlog_max: usize,
    /// Most deliveries in one inbox message.
    pub bundle_deliveries_max: usize,
    /// Most bytes in one inbox message, unless a single delivery is larger; a quarter of NATS's default payload limit.
    pub bundle_bytes_max: usize,
}

impl Default for OutboxConfig {
    fn default() -> Self {
        Self {
            retry_base_ms: 500,
            retry_ms_max: 30_000,
            attempts_max: 8,
            in_flight_max: 262_144,
            under_way_max: 1024,
            under_way_min: 64,
            per_agent_max: 16_384,
            backlog_max: 4096,
            bundle_deliveries_max: 256,
            bundle_bytes_max: 256 * 1024,
        }
    }
}

/// How much a lane takes in before it sends. Larger batches bundle more deliveries into one message; an idle lane never
/// waits for a batch to fill.
#[derive(Debug, Clone)]
pub struct BatchConfig {
    /// Most records folded between two flushes.
    pub records_max: usize,
    /// Most acknowledgement messages taken in between two flushes.
    pub acks_max: usize,
    /// Acknowledged deliveries that are worth a `delivered` entry while the lane is busy.
    pub delivered_ids: usize,
    /// Longest an acknowledgement waits for its `delivered` entry, in milliseconds.
    pub delivered_ms: u64,
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self { records_max: 64, acks_max: 1024, delivered_ids: 256, delivered_ms: 1000 }
    }
}

/// How engines notice each other. Every engine of an exchange needs the same values.
#[derive(Debug, Clone)]
pub struct MembershipConfig {
    /// Gap between two heartbeats, in milliseconds. Also how long a starting engine listens before it takes a lane.
    pub heartbeat_ms: u64,
    /// An engine unheard for so long is dead, in milliseconds. Five heartbeats: one lost message moves no lane, and a kill is
    /// noticed in time to stay below the gap of 1.5 s that operators are promised.
    pub dead_after_ms: u64,
}

impl Default for MembershipConfig {
    fn default() -> Self {
        Self { heartbeat_ms: 200, dead_after_ms: 1000 }
    }
}

impl MembershipConfig {
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_millis(self.heartbeat_ms)
    }

    pub(crate) fn dead_after(&self) -> Duration {
        Duration::from_millis(self.dead_after_ms)
    }
}

/// How often a lane's state is stored. Whichever of the two comes first counts, and only if something was folded.
#[derive(Debug, Clone)]
pub struct CheckpointConfig {
    /// Records between two checkpoints, 0 for never by number. 20 000 records are folded again in a few seconds.
    pub every_records: u64,
    /// Milliseconds between two checkpoints, 0 for never by time.
    pub every_ms: u64,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self { every_records: 20_000, every_ms: 60_000 }
    }
}

/// What must be durable before the owner of a lane removes records of its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trim {
    /// Nothing is trimmed: the log grows until the bus is full.
    Never,
    /// The lane's checkpoint. Nothing older than it can be audited any more.
    AfterCheckpoint,
    /// The lane's checkpoint and the archive (`llmx archive`). Without an archiver nothing is trimmed.
    #[default]
    AfterArchive,
}

/// Tells the engine's own time.
pub type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The engine's own clock, and how far the log's may be from it. It decides nothing: it only refuses readiness.
#[derive(Clone)]
pub struct ClockConfig {
    /// How far the log's clock may go back, in milliseconds.
    pub back_ms_max: u64,
    /// How far log time may be from the engine's own, in milliseconds: what well-kept clocks never reach.
    pub skew_ms_max: u64,
    /// The engine's own clock.
    pub now: WallClock,
}

impl Default for ClockConfig {
    fn default() -> Self {
        Self { back_ms_max: 1000, skew_ms_max: 5000, now: Arc::new(wall_clock) }
    }
}

impl fmt::Debug for ClockConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClockConfig")
            .field("back_ms_max", &self.back_ms_max)
            .field("skew_ms_max", &self.skew_ms_max)
            .finish_non_exhaustive()
    }
}

fn wall_clock() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
}
