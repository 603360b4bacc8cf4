//! The task of an engine that publishes its heartbeats and receives those of others.

use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, BusError, Received};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use schemas::{Lane, subject};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{Heartbeat, HeartbeatOrigin, LaneHeartbeat, LiveEngines, Membership};
use crate::config::EngineConfig;
use crate::ingress::Signal;
use crate::metrics::EngineMetrics;
use crate::status::{LanePhase, LaneStatus, lane_status};

/// Most inputs of lanes that wait. A lane makes a few per claim; one that is lost costs a heartbeat of delay.
const INPUTS_MAX: usize = 1024;
/// Most heartbeats taken in before time is looked at.
const HEARTBEATS_PER_TURN_MAX: usize = 256;
/// Least gap between two heartbeats, however often something changes.
const HEARTBEAT_GAP_MIN: Duration = Duration::from_millis(10);

/// Heartbeats of an engine of the same name that may be missed before it counts as gone.
const HEARTBEATS_MISSED_MAX: u32 = 2;

/// What lanes and the engine's handle report to the task.
#[derive(Debug, Clone)]
pub(crate) enum MembershipInput {
    /// The log gave a fresh claim.
    Claimed {
        /// The lane.
        lane: Lane,
        /// The engine that claims it.
        engine: Arc<str>,
    },
    /// A lane changed its phase: others should hear of it at once.
    Changed,
    /// The engine hands its lanes over.
    Leave,
}

/// The connection of a lane, or of the engine's handle, to the task.
#[derive(Debug, Clone)]
pub(crate) struct MembershipHandle {
    /// Absent until the task has listened for one heartbeat interval.
    pub(crate) live: watch::Receiver<Option<Arc<LiveEngines>>>,
    pub(crate) inputs: mpsc::Sender<MembershipInput>,
}

/// A lane of this engine.
struct Connected {
    status: watch::Receiver<LaneStatus>,
    signals: mpsc::Sender<Signal>,
}

/// See the module.
pub(crate) struct HeartbeatTask {
    bus: Bus,
    metrics: Arc<EngineMetrics>,
    id: String,
    started: u64,
    rules_newest: u32,
    interval: Duration,
    dead_after: Duration,
    membership: Membership,
    heartbeats: BoxStream<'static, Received>,
    inputs: mpsc::Receiver<MembershipInput>,
    lanes: Vec<Connected>,
    /// One for each handle.
    live: Vec<watch::Sender<Option<Arc<LiveEngines>>>>,
    is_leaving: bool,
    listen_until: Instant,
    /// Whether the lanes know who is alive; from then on this engine gives way to nobody of its name.
    is_participating: bool,
    /// The heartbeats of another engine of this name: the first of those in a row, and the last.
    duplicate_heard: Option<(Instant, Instant)>,
    /// Whether another engine of this name is heard.
    has_duplicate_id: watch::Sender<bool>,
    /// Set when an engine of this name was there first, and stays.
    id_in_use: watch::Sender<bool>,
    woke_at: Instant,
    published_at: Instant,
    publish_at: Instant,
}

impl HeartbeatTask {
    /// Subscribes; heartbeats are heard from here on.
    pub(crate) async fn subscribe(
        bus: &Bus,
        config: &EngineConfig,
        lanes: Vec<Lane>,
        metrics: Arc<EngineMetrics>,
    ) -> Result<(Self, MembershipHandle), BusError> {
        let heartbeats = bus.pub_sub.subscribe(subject::ALL_HEARTBEATS.to_owned(), None).await?;
        let started = (config.clock.now)().0;
        let (interval, dead_after) = (config.membership.interval(), config.membership.dead_after());
        let (live, watched) = watch::channel(None);
        let (sender, inputs) = mpsc::channel(INPUTS_MAX);
        let now = Instant::now();
        let task = Self {
            bus: bus.clone(),
            metrics,
            id: config.id.clone(),
            started,
            rules_newest: config.rules_newest,
            interval,
            dead_after,
            membership: Membership::new(config.id.clone(), started, lanes, dead_after),
            heartbeats,
            inputs,
            lanes: Vec::new(),
            live: vec![live],
            is_leaving: false,
            listen_until: now + interval,
            is_participating: false,
            duplicate_heard: None,
            has_duplicate_id: watch::Sender::new(false),
            id_in_use: watch::Sender::new(false),
            woke_at: now,
            published_at: now,
            publish_at: now,
        };
        Ok((task, MembershipHandle { live: watched, inputs: sender }))
    }

    /// A handle for another task: a `watch` channel that several tasks wait on wakes them in random order.
    pub(crate) fn another_handle(&mut self, handle: &MembershipHandle) -> MembershipHandle {
        let (live, watched) = watch::channel(None);
        self.live.push(live);
        MembershipHandle { live: watched, inputs: handle.inputs.clone() }
    }

    /// Whether another engine runs under the same name.
    pub(crate) fn has_duplicate_id(&self) -> watch::Receiver<bool> {
        self.has_duplicate_id.subscribe()
    }

    /// Becomes true when this engine must not start: another one of its name was there first, and stays.
    pub(crate) fn id_in_use(&self) -> watch::Receiver<bool> {
        self.id_in_use.subscribe()
    }

    /// Connects a lane: heartbeats carry its state, and it receives the digests of others.
    pub(crate) fn connect(&mut self, status: watch::Receiver<LaneStatus>, signals: mpsc::Sender<Signal>) {
        self.lanes.push(Connected { status, signals });
    }

    /// Publishes and receives heartbeats until cancelled or the bus closes.
    pub(crate) async fn drive(mut self, cancel: CancellationToken) {
        loop {
            let now = Instant::now();
            self.handle_time(now);
            if self.publish_at <= now {
                self.publish(now).await;
            }
            let wake_at = self.wake_at(now);
            let heard = tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                received = self.heartbeats.next() => received.map(|received| self.handle_received(&received)),
                input = self.inputs.recv() => input.map(|input| self.handle_input(&input)),
                () = sleep_until(wake_at) => Some(()),
            };
            if heard.is_none() {
                return;
            }
            for _ in 0..HEARTBEATS_PER_TURN_MAX {
                let Some(received) = self.heartbeats.next().now_or_never().flatten() else { break };
                self.handle_received(&received);
            }
            for _ in 0..INPUTS_MAX {
                let Ok(input) = self.inputs.try_recv() else { break };
                self.handle_input(&input);
            }
        }
    }

    fn wake_at(&self, now: Instant) -> Instant {
        let listen_until = (self.listen_until > now).then_some(self.listen_until);
        [self.membership.wake_at(now), listen_until].into_iter().flatten().fold(self.publish_at, Instant::min)
    }

    fn handle_received(&mut self, received: &Received) {
        let Some(heartbeat) = Heartbeat::read(&received.subject, &received.payload) else {
            self.metrics.engines.heartbeats_ignored.inc();
            return;
        };
        match self.membership.handle_heartbeat(&heartbeat, Instant::now()) {
            HeartbeatOrigin::Own => {}
            HeartbeatOrigin::Known => self.forward_digests(heartbeat),
            HeartbeatOrigin::Newcomer => {
                tracing::info!(engine = heartbeat.engine, "another engine is alive");
                self.publish_soon();
                self.forward_digests(heartbeat);
            }
            HeartbeatOrigin::DuplicateId => {
                self.metrics.engines.heartbeats_ignored.inc();
                self.handle_duplicate_id(&heartbeat, Instant::now());
            }
            HeartbeatOrigin::Ignored => self.metrics.engines.heartbeats_ignored.inc(),
        }
    }

    /// Another engine of this name sent a heartbeat. One that was there first is given way to: while it is heard, this one
    /// takes no part, and after `dead_after` it does not start. What a killed engine left on its way ends before that.
    fn handle_duplicate_id(&mut self, heartbeat: &Heartbeat, now: Instant) {
        let goes_on = self.duplicate_heard.filter(|(_, last)| now.saturating_duration_since(*last) <= self.dead_after);
        let since = goes_on.filter(|_| !heartbeat.is_leaving).map_or(now, |(since, _)| since);
        self.duplicate_heard = Some((since, now));
        if goes_on.is_none() {
            tracing::warn!(
                engine = self.id,
                "another engine runs under the same id: give each its own (--id, LLMX_ENGINE_ID), or end the other"
            );
            // The other one is to hear it before it takes part.
            self.publish_soon();
        }
        let was_first = heartbeat.started < self.started || heartbeat.lanes.iter().any(LaneHeartbeat::is_owned);
        if self.is_participating || !was_first {
            return;
        }
        self.listen_until = self.listen_until.max(now + self.interval * HEARTBEATS_MISSED_MAX);
        if now.saturating_duration_since(since) >= self.dead_after {
            self.id_in_use.send_replace(true);
        }
    }

    /// Hands another engine's digests to the lanes. One that is lost comes with the next heartbeats as well.
    fn forward_digests(&self, heartbeat: Heartbeat) {
        for LaneHeartbeat { lane, digests, .. } in heartbeat.lanes.into_iter().filter(|lane| !lane.digests.is_empty()) {
            let connected = self.lanes.iter().find(|connected| {
                let status = connected.status.borrow();
                status.lane == lane && status.phase != LanePhase::Elsewhere
            });
            if let Some(connected) = connected {
                let _ = connected.signals.try_send(Signal::Digests(heartbeat.engine.clone(), digests));
            }
        }
    }

    fn handle_input(&mut self, input: &MembershipInput) {
        match input {
            MembershipInput::Claimed { lane, engine } => self.membership.handle_claim(engine, *lane, Instant::now()),
            MembershipInput::Changed => self.publish_soon(),
            MembershipInput::Leave => {
                self.is_leaving = true;
                self.membership.leave();
                self.publish_soon();
            }
        }
    }

    fn handle_time(&mut self, now: Instant) {
        if now.saturating_duration_since(self.woke_at) > self.dead_after / 2 {
            self.membership.handle_pause(now);
        }
        self.woke_at = now;
        if now < self.listen_until {
            return;
        }
        self.is_participating = true;
        for status in self.lanes.iter().map(|lane| lane_status(&lane.status)) {
            if matches!(status.phase, LanePhase::Stopped(_)) {
                self.membership.give_up(status.lane);
            }
        }
        self.has_duplicate_id.send_replace(self.membership.has_duplicate_id(now));
        let live = self.membership.live(now);
        self.metrics.engines.alive.set(i64::try_from(live.others.len() + 1).unwrap_or(i64::MAX));
        for watched in &self.live {
            watched.send_if_modified(|known| {
                let is_changed = known.as_ref() != Some(&live);
                if is_changed {
                    *known = Some(Arc::clone(&live));
                }
                is_changed
            });
        }
    }

    fn publish_soon(&mut self) {
        self.publish_at = self.publish_at.min(self.published_at + HEARTBEAT_GAP_MIN);
    }

    async fn publish(&mut self, now: Instant) {
        let heartbeat = Heartbeat {
            engine: self.id.clone(),
            started: self.started,
            is_leaving: self.is_leaving,
            rules_newest: self.rules_newest,
            // A lane whose task has ended is stopped, whatever it said last.
            lanes: self.lanes.iter().map(|lane| LaneHeartbeat::of(&lane_status(&lane.status))).collect(),
        };
        (self.published_at, self.publish_at) = (now, now + self.interval);
        let Ok(payload) = serde_json::to_vec(&heartbeat).map(Bytes::from) else { return };
        let published = self.bus.pub_sub.publish(subject::heartbeat(&self.id), payload);
        if !matches!(timeout(self.interval, published).await, Ok(Ok(()))) {
            tracing::debug!("the bus did not take a heartbeat");
        }
    }
}
