//! The one task of an engine that tells others it lives, and hears the same from them.

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

use super::{Beat, Heard, LaneBeat, Membership, View};
use crate::config::EngineConfig;
use crate::ingress::Signal;
use crate::metrics::EngineMetrics;
use crate::status::{LanePhase, LaneStatus};

/// Most notes of lanes that wait. A lane makes a few per claim; one that is lost costs a beat of delay.
const NOTES_MAX: usize = 1024;
/// Most heartbeats taken in before time is looked at.
const BEATS_PER_TURN_MAX: usize = 256;
/// Least gap between two heartbeats, however often something changes.
const BEAT_GAP_MIN: Duration = Duration::from_millis(10);

/// Heartbeats of an engine of the same name that may be missed before it counts as gone.
const BEATS_MISSED_MAX: u32 = 2;

/// What the rest of the engine tells the herald.
#[derive(Debug, Clone)]
pub(crate) enum Note {
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

/// A lane's connection to the herald.
#[derive(Debug, Clone)]
pub(crate) struct Tuned {
    /// Who is alive; absent until the herald has listened for one beat.
    pub(crate) view: watch::Receiver<Option<Arc<View>>>,
    /// Where to tell it something.
    pub(crate) notes: mpsc::Sender<Note>,
}

/// A lane of this engine.
struct Connected {
    status: watch::Receiver<LaneStatus>,
    signals: mpsc::Sender<Signal>,
}

/// See the module.
pub(crate) struct Herald {
    bus: Bus,
    metrics: Arc<EngineMetrics>,
    id: String,
    started: u64,
    rules_newest: u32,
    beat: Duration,
    dead_after: Duration,
    membership: Membership,
    beats: BoxStream<'static, Received>,
    notes: mpsc::Receiver<Note>,
    lanes: Vec<Connected>,
    /// One for each task that waits: a channel that several tasks wait on wakes them in random order.
    views: Vec<watch::Sender<Option<Arc<View>>>>,
    is_leaving: bool,
    listens_until: Instant,
    /// Whether the lanes know who is alive; from then on this engine gives way to nobody of its name.
    takes_part: bool,
    /// The heartbeats of another engine of this name: the first of those in a row, and the last.
    twin_heard: Option<(Instant, Instant)>,
    /// Set when an engine of this name was there first, and stays.
    id_in_use: watch::Sender<bool>,
    looked_at: Instant,
    told_at: Instant,
    tells_at: Instant,
}

impl Herald {
    /// Subscribes; heartbeats are heard from here on.
    pub(crate) async fn subscribe(
        bus: &Bus,
        config: &EngineConfig,
        lanes: Vec<Lane>,
        metrics: Arc<EngineMetrics>,
    ) -> Result<(Self, Tuned), BusError> {
        let beats = bus.pub_sub.subscribe(subject::ALL_HEARTBEATS.to_owned(), None).await?;
        let started = (config.clock.now)().0;
        let (beat, dead_after) = (config.membership.beat(), config.membership.dead_after());
        let (view, watched) = watch::channel(None);
        let (notes, noted) = mpsc::channel(NOTES_MAX);
        let now = Instant::now();
        let herald = Self {
            bus: bus.clone(),
            metrics,
            id: config.id.clone(),
            started,
            rules_newest: config.rules_newest,
            beat,
            dead_after,
            membership: Membership::new(config.id.clone(), started, lanes, dead_after),
            beats,
            notes: noted,
            lanes: Vec::new(),
            views: vec![view],
            is_leaving: false,
            listens_until: now + beat,
            takes_part: false,
            twin_heard: None,
            id_in_use: watch::Sender::new(false),
            looked_at: now,
            told_at: now,
            tells_at: now,
        };
        Ok((herald, Tuned { view: watched, notes }))
    }

    /// The same connection for another task to wait on.
    pub(crate) fn tune(&mut self, tuned: &Tuned) -> Tuned {
        let (view, watched) = watch::channel(None);
        self.views.push(view);
        Tuned { view: watched, notes: tuned.notes.clone() }
    }

    /// Becomes true when this engine must not start: another one of its name was there first, and stays.
    pub(crate) fn id_in_use(&self) -> watch::Receiver<bool> {
        self.id_in_use.subscribe()
    }

    /// Connects a lane: the heartbeats tell its state, and it is told the digests of others.
    pub(crate) fn connect(&mut self, status: watch::Receiver<LaneStatus>, signals: mpsc::Sender<Signal>) {
        self.lanes.push(Connected { status, signals });
    }

    /// Tells and hears until told to stop or the bus closes.
    pub(crate) async fn drive(mut self, cancel: CancellationToken) {
        loop {
            let now = Instant::now();
            self.handle_time(now);
            if self.tells_at <= now {
                self.tell(now).await;
            }
            let wake_at = self.wake_at(now);
            tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                received = self.beats.next() => match received {
                    Some(received) => self.handle_received(&received),
                    None => return,
                },
                note = self.notes.recv() => match note {
                    Some(note) => self.handle_note(&note),
                    None => return,
                },
                () = sleep_until(wake_at) => {}
            }
            for _ in 0..BEATS_PER_TURN_MAX {
                let Some(received) = self.beats.next().now_or_never().flatten() else { break };
                self.handle_received(&received);
            }
            for _ in 0..NOTES_MAX {
                let Ok(note) = self.notes.try_recv() else { break };
                self.handle_note(&note);
            }
        }
    }

    fn wake_at(&self, now: Instant) -> Instant {
        let listens_until = (self.listens_until > now).then_some(self.listens_until);
        [self.membership.wake_at(now), listens_until].into_iter().flatten().fold(self.tells_at, Instant::min)
    }

    fn handle_received(&mut self, received: &Received) {
        let Some(beat) = Beat::read(&received.subject, &received.payload) else {
            self.metrics.engines.count_beat_ignored();
            return;
        };
        match self.membership.handle_beat(&beat, Instant::now()) {
            Heard::Own => {}
            Heard::Known => self.pass_digests(beat),
            Heard::Newcomer => {
                tracing::info!(engine = beat.engine, "another engine is alive");
                self.tell_soon();
                self.pass_digests(beat);
            }
            Heard::Twin => {
                self.metrics.engines.count_beat_ignored();
                self.handle_twin(&beat, Instant::now());
            }
            Heard::Ignored => self.metrics.engines.count_beat_ignored(),
        }
    }

    /// Another engine of this name sent a heartbeat. One that was there first is given way to: while it is heard, this one
    /// takes no part, and after `dead_after` it does not start. What a killed engine left on its way ends before that.
    fn handle_twin(&mut self, beat: &Beat, now: Instant) {
        let goes_on = self.twin_heard.filter(|(_, last)| now.saturating_duration_since(*last) <= self.dead_after);
        let since = goes_on.filter(|_| !beat.is_leaving).map_or(now, |(since, _)| since);
        self.twin_heard = Some((since, now));
        if goes_on.is_none() {
            tracing::warn!(
                engine = self.id,
                "another engine runs under the same id: give each its own (--id, LLMX_ENGINE_ID), or end the other"
            );
            // The other one is to hear it before it takes part.
            self.tell_soon();
        }
        let was_first = beat.started < self.started || beat.lanes.iter().any(LaneBeat::is_owned);
        if self.takes_part || !was_first {
            return;
        }
        self.listens_until = self.listens_until.max(now + self.beat * BEATS_MISSED_MAX);
        if now.saturating_duration_since(since) >= self.dead_after {
            self.id_in_use.send_replace(true);
        }
    }

    /// Hands another engine's digests to the lanes. One that is lost comes with the next heartbeats as well.
    fn pass_digests(&self, beat: Beat) {
        for LaneBeat { lane, digests, .. } in beat.lanes.into_iter().filter(|lane| !lane.digests.is_empty()) {
            let connected = self.lanes.iter().find(|connected| connected.status.borrow().lane == lane);
            if let Some(connected) = connected {
                let _ = connected.signals.try_send(Signal::Digests(beat.engine.clone(), digests));
            }
        }
    }

    fn handle_note(&mut self, note: &Note) {
        match note {
            Note::Claimed { lane, engine } => self.membership.handle_claim(engine, *lane, Instant::now()),
            Note::Changed => self.tell_soon(),
            Note::Leave => {
                self.is_leaving = true;
                self.membership.leave();
                self.tell_soon();
            }
        }
    }

    fn handle_time(&mut self, now: Instant) {
        if now.saturating_duration_since(self.looked_at) > self.dead_after / 2 {
            self.membership.handle_pause(now);
        }
        self.looked_at = now;
        if now < self.listens_until {
            return;
        }
        self.takes_part = true;
        self.membership.set_settled(self.lanes.iter().all(is_settled));
        let view = self.membership.view(now);
        self.metrics.engines.set_alive(view.others.len() + 1);
        for watched in &self.views {
            watched.send_if_modified(|known| {
                let is_news = known.as_ref() != Some(&view);
                if is_news {
                    *known = Some(Arc::clone(&view));
                }
                is_news
            });
        }
    }

    fn tell_soon(&mut self) {
        self.tells_at = self.tells_at.min(self.told_at + BEAT_GAP_MIN);
    }

    async fn tell(&mut self, now: Instant) {
        let beat = Beat {
            engine: self.id.clone(),
            started: self.started,
            is_leaving: self.is_leaving,
            rules_newest: self.rules_newest,
            lanes: self.lanes.iter().map(lane_beat).collect(),
        };
        (self.told_at, self.tells_at) = (now, now + self.beat);
        let Ok(payload) = serde_json::to_vec(&beat).map(Bytes::from) else { return };
        let published = self.bus.pub_sub.publish(subject::heartbeat(&self.id), payload);
        if !matches!(timeout(self.beat, published).await, Ok(Ok(()))) {
            tracing::debug!("the bus did not take a heartbeat");
        }
    }
}

/// Whether a lane has caught up, or is given up; as others read it in the heartbeat.
fn is_settled(lane: &Connected) -> bool {
    let status = lane.status.borrow();
    let is_fit = status.is_fit && lane.status.has_changed().is_ok();
    is_fit || matches!(status.phase, LanePhase::Stopped(_))
}

/// What is said of a lane. One whose task has ended can own nothing, whatever it said last.
fn lane_beat(lane: &Connected) -> LaneBeat {
    let beat = LaneBeat::of(&lane.status.borrow());
    LaneBeat { is_fit: beat.is_fit && lane.status.has_changed().is_ok(), ..beat }
}
