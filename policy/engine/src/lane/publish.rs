//! What leaves a lane: deliveries, public notices, writes of the register, and the entries an engine appends for them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bus::appender::{Appender, AppenderOptions};
use bus::{Blobs, Bus, BusError, Registered};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use policy_core::{Deliver, LaneState, PublicNotice, RegisterWrite};
use schemas::record::{EngineEvent, Entry, Qos};
use schemas::{Address, AgentId, DeliveryId, Lane, NegotiationId, RegisterKey, Timestamp, subject};
use tokio::time::{Instant, timeout};

use super::fold::Fold;
use super::{Answered, AppendDone, FLUSH_MAX, Inputs, Purpose, Shared, WriteDone, expired_name, register_fence};
use crate::config::WallClock;
use crate::lane::AbortCode;
use crate::lane::Batch;
use crate::lane::DeliveryEvent;
use crate::lane::abort::{ABORTS_MAX, Aborts};
use crate::lane::backlog::BacklogSender;
use crate::lane::checkpoint::Checkpoint;
use crate::lane::delivered::DeliveredBatch;
use crate::lane::observer::LaneObserver;
use crate::lane::outbox::Outbox;
use crate::lane::register::Registrar;
use crate::lane::{Destination, WRITES_PENDING_MAX, Write, WriteOutcome};
use crate::metrics::WriteResult;
use crate::routes::AgentRoutes;
use crate::status::{LaneStatus, StopReason};

/// Most engine entries in flight; more wait in the outbox. A quarter of what the appender queues.
const APPENDS_IN_FLIGHT_MAX: usize = 1024;
/// While a lane is not owned nothing leaves it, and what has failed is kept until the fold has read so; at this many times
/// `in_flight_max` deliveries it gives up.
const HELD_FACTOR: usize = 4;
/// At this many register writes not known to be answered it gives up as well: a minute of a very busy lane, during which
/// nobody has logged that the register answered.
const WRITES_HELD_MAX: usize = 64 * WRITES_PENDING_MAX;
/// Most refused keys of the register that are remembered. A refusal means two histories of one log, of which there should be
/// none: more mean that the register is another log's.
const REFUSED_MAX: usize = 4096;
/// What is ready to leave waits at most this long for what an answer of the register is about to let out, so that both share
/// their messages: an answer takes a third of it where nothing is synced.
const GATHER_MAX: Duration = Duration::from_millis(1);

/// Tells a write of the register that comes too late: entries of its time may have been removed (docs/spec/log.md#lg-44).
#[derive(Clone)]
struct Fence {
    lane: Lane,
    blobs: Arc<dyn Blobs>,
    /// Own time.
    clock: WallClock,
    /// A write is not looked at before the record that caused it is so old.
    after: Duration,
}

impl Fence {
    /// Whether nothing may follow from an answer to a write that is of log time `at`. `started`: an instant, and log time as
    /// it was estimated then. To be asked once the answer is there: entries are removed only after the document says so.
    async fn is_expired(
        &self,
        answer: &Result<Registered, BusError>,
        at: Timestamp,
        (started, log_time): (Instant, Timestamp),
    ) -> Result<bool, BusError> {
        let Ok(Registered::Written | Registered::Same) = answer else { return Ok(false) };
        let estimated = Duration::from_micros(log_time.since_us(at)) + started.elapsed();
        let by_own_clock = Duration::from_micros((self.clock)().since_us(at));
        if estimated.max(by_own_clock) < self.after {
            return Ok(false);
        }
        let expired = self.blobs.version(expired_name(self.lane)).await?;
        Ok(expired.is_some_and(|expired| expired > at.0))
    }
}

/// See the module.
pub(super) struct Publisher {
    lane: Lane,
    engine: String,
    bus: Bus,
    routes: Arc<AgentRoutes>,
    in_flight_max: usize,
    appender: Appender,
    outbox: Outbox,
    registrar: Registrar,
    aborts: Aborts,
    delivered: DeliveredBatch,
    backlog: BacklogSender,
    /// Last record that led to a register write.
    wrote_at: u64,
    /// Up to this record the log says that every register write is answered.
    answered: u64,
    fence: Fence,
    /// Public notices, and what gateways are told of the lane, to publish with the next flush.
    notices: Vec<(String, Bytes)>,
    /// What is ready waits for the register until then.
    gathers_until: Option<Instant>,
    /// How long writes of the register took that were answered since this was last asked.
    register_waits: Vec<Duration>,
}

impl Publisher {
    /// Publishes for a lane whose state stands at the record `position`.
    pub(super) fn new(
        lane: Lane,
        shared: &Shared,
        backlog: BacklogSender,
        (outbox, registrar, aborts): (Outbox, Registrar, Aborts),
        position: u64,
    ) -> Self {
        let Shared { bus, config, routes, .. } = shared;
        let options = AppenderOptions::default();
        Self {
            lane,
            engine: config.id.clone(),
            bus: bus.clone(),
            routes: Arc::clone(routes),
            in_flight_max: config.outbox.in_flight_max,
            appender: Appender::spawn(Arc::clone(&bus.log), lane, config.id.clone(), options),
            outbox,
            registrar,
            aborts,
            delivered: DeliveredBatch::new(&config.batch),
            backlog,
            wrote_at: position,
            answered: 0,
            fence: Fence {
                lane,
                blobs: Arc::clone(&bus.blobs),
                clock: Arc::clone(&config.clock.now),
                after: register_fence(config),
            },
            notices: Vec::new(),
            gathers_until: None,
            register_waits: Vec::new(),
        }
    }

    /// Starts over with what a state at the record `position` has left to do.
    pub(super) fn restart(
        &mut self,
        shared: &Shared,
        (outbox, registrar, aborts): (Outbox, Registrar, Aborts),
        position: u64,
    ) {
        (self.outbox, self.registrar, self.aborts) = (outbox, registrar, aborts);
        self.delivered = DeliveredBatch::new(&shared.config.batch);
        (self.wrote_at, self.answered) = (position, 0);
        self.notices.clear();
        self.gathers_until = None;
    }

    pub(super) fn outbox_mut(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// What became of deliveries since the last call.
    pub(super) fn take_delivery_events(&mut self) -> Vec<DeliveryEvent> {
        let events = self.outbox.take_events();
        self.backlog.note_dead_letters(&events);
        events
    }

    /// Deliveries neither acknowledged nor given up.
    pub(super) fn outbox_len(&self) -> usize {
        self.outbox.len()
    }

    /// Fills in what the publisher says of itself.
    pub(super) fn fill_status(&self, status: &mut LaneStatus) {
        status.outbox = self.outbox.len();
        status.register_pending = self.registrar.len();
    }

    /// How long writes of the register took, since the last call: those that were answered.
    pub(super) fn take_register_waits(&mut self) -> Vec<Duration> {
        std::mem::take(&mut self.register_waits)
    }

    /// Log time of the record that caused the oldest write of the register that is not answered.
    pub(super) fn register_asked_at(&self) -> Option<Timestamp> {
        self.registrar.oldest_at()
    }

    /// Whether there is no room for what further records cause.
    pub(super) fn is_full(&self) -> bool {
        self.outbox.is_full() || self.registrar.is_full()
    }

    /// Refuses a register that contradicts the log in too many negotiations, or under too many keys.
    pub(super) fn check_refused(&mut self, state: &LaneState) -> Result<(), StopReason> {
        if self.registrar.refused_len() > REFUSED_MAX {
            self.forget_refused(state);
        }
        let (aborts, refused) = (self.aborts.len(), self.registrar.refused_len());
        let is_foreign = aborts > ABORTS_MAX || refused > REFUSED_MAX;
        if is_foreign { Err(StopReason::RegisterForeign(aborts.max(refused))) } else { Ok(()) }
    }

    /// Forgets the refused keys of negotiations that the lane has forgotten, but for those a delivery still waits for.
    fn forget_refused(&mut self, state: &LaneState) {
        if self.registrar.refused_len() > 0 {
            let awaited: BTreeSet<_> = self.outbox.unsettled().filter_map(|deliver| deliver.after.as_ref()).collect();
            let is_known = |key: &RegisterKey| state.protocol(key.negotiation()).is_some();
            self.registrar.forget_refused(|key| is_known(key) || awaited.contains(key));
        }
    }

    /// Bounds what piles up while another engine owns the lane, or none does, and what waits to be read.
    pub(super) fn check_held(&self) -> Result<(), StopReason> {
        let (held, limit) = (self.outbox.len(), HELD_FACTOR.saturating_mul(self.in_flight_max));
        if held > limit {
            return Err(StopReason::BacklogTooLarge { held, limit });
        }
        let (pending, limit) = (self.registrar.len(), WRITES_HELD_MAX);
        if pending > limit { Err(StopReason::WritesTooMany { pending, limit }) } else { Ok(()) }
    }

    /// Adds what is not settled yet to a checkpoint of the state.
    pub(super) fn fill_checkpoint(&mut self, checkpoint: &mut Checkpoint, state: &LaneState) {
        self.forget_refused(state);
        checkpoint.deliveries = self.outbox.unsettled().cloned().collect();
        checkpoint.writes = self.registrar.pending();
        checkpoint.refused = self.registrar.refused();
        checkpoint.aborts = self.aborts.wanted();
    }

    /// How far the register is answered, and which negotiations have deliveries on their way.
    pub(super) fn answered(&self) -> Answered<'_> {
        let unsettled = self.outbox.unsettled().map(|deliver| &deliver.negotiation).collect();
        Answered { wrote_at: self.wrote_at, logged: self.answered, unsettled }
    }

    /// When something is due while the lane is owned.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let all = [
            self.outbox.wake_at(),
            self.registrar.wake_at(),
            self.aborts.wake_at(),
            self.delivered.wake_at(),
            self.backlog.wake_at(&self.outbox),
            self.gathers_until,
        ];
        all.into_iter().flatten().min()
    }

    /// Hands on what was given up, and the backlogs of agents.
    pub(super) fn report_backlog(&mut self, is_owner: bool, now: Instant) {
        self.backlog.report(&mut self.outbox, is_owner, now);
    }
}

/// Effects of the fold.
impl Publisher {
    /// Takes note of what engines have logged. That something was acknowledged or registered is a fact, whoever says so;
    /// a failure or an abort counts only if the fold accepted it: not under an older epoch than the lane's, which was
    /// `epoch` before the record.
    pub(super) fn handle_logged(&mut self, mut epoch: u64, entries: &[Entry], is_owner: bool) {
        for entry in entries {
            let Entry::Engine { epoch: of, event } = entry else { continue };
            match event {
                EngineEvent::Claim { .. } => epoch = epoch.max(*of),
                EngineEvent::Delivered { ids, registered } => {
                    ids.iter().for_each(|id| self.outbox.settle(*id));
                    self.delivered.handle_logged(*registered);
                    self.answered = self.answered.max(*registered);
                    if !is_owner {
                        self.registrar.settle_through(*registered);
                    }
                }
                EngineEvent::DeliveryFailed { id, .. } if *of >= epoch => self.outbox.settle(*id),
                EngineEvent::Abort { negotiation, .. } if *of >= epoch => {
                    self.aborts.handle_logged(negotiation);
                    self.registrar.handle_abort_logged(negotiation);
                }
                EngineEvent::DeliveryFailed { .. } | EngineEvent::Abort { .. } | EngineEvent::Rules { .. } => {}
            }
        }
    }

    pub(super) fn handle_deliver(
        &mut self,
        deliver: Deliver,
        state: &LaneState,
        is_owner: bool,
        observer: &mut LaneObserver,
        now: Instant,
    ) {
        // Best effort is sent once. An earlier owner may have done so before this engine takes the lane.
        if deliver.told_before || (deliver.qos == Qos::BestEffort && !is_owner && state.epoch() > 0) {
            return;
        }
        let id = deliver.id;
        let gate = is_owner.then(|| self.registrar.gate(deliver.after.as_ref()));
        let trace = observer.trace_delivery(&deliver);
        let is_held = self.outbox.hold(deliver, trace, now);
        match gate {
            Some(gate) if is_held => self.outbox.release(id, gate),
            Some(_) => self.delivered.add(id, now),
            None => {}
        }
    }

    /// Takes in a write that the record at `position` caused.
    pub(super) fn handle_register_write(
        &mut self,
        write: RegisterWrite,
        position: u64,
        state: &LaneState,
        is_owner: bool,
        observer: &mut LaneObserver,
    ) {
        debug_assert!(position >= self.wrote_at, "records are folded in order");
        let RegisterWrite { key, value, after } = write;
        if is_owner {
            observer.handle_write_wanted(&key);
        }
        let negotiation = key.negotiation().clone();
        let value = match schemas::digest::canonical_ordered(&value) {
            Ok(value) => Bytes::from(value),
            Err(error) => {
                // Digests, ids and names always have a canonical form; without one the gate must stay shut.
                let trace_id = observer.trace_id(&negotiation, state);
                tracing::error!(%negotiation, %trace_id, %key, %error, "a register value cannot be written");
                self.aborts.want(negotiation, AbortCode::Internal);
                self.registrar.refuse(key, position, false);
                return;
            }
        };
        let refused = self.registrar.add(Write { key: key.clone(), value }, after, position, state.now());
        if !refused.is_empty() {
            let trace_id = observer.trace_id(&negotiation, state);
            tracing::error!(%negotiation, %trace_id, %key, "the log leads to two values for one key of the register; the negotiation is aborted");
            observer.handle_register_conflict(&negotiation, state);
            self.aborts.want(negotiation, AbortCode::RegisterConflict);
            refused.iter().for_each(|key| self.outbox.handle_register(key, true));
        }
        self.wrote_at = position;
    }

    /// Takes in a notice that everybody may read.
    pub(super) fn handle_notice(&mut self, notice: &PublicNotice) {
        let Ok(payload) = serde_json::to_vec(&notice.notice).map(Bytes::from) else { return };
        let subjects = notice.to.iter().filter_map(|address| match address {
            Address::Topic(topic) => Some(subject::topic(topic)),
            Address::Group(group) => Some(subject::group(group)),
            Address::Agent(_) => None,
        });
        self.notices.extend(subjects.map(|subject| (subject, payload.clone())));
    }

    /// Takes in what is told at most once.
    pub(super) fn tell(&mut self, subject: String, payload: Bytes) {
        self.notices.push((subject, payload));
    }

    /// The negotiation must be stopped.
    pub(super) fn abort(&mut self, negotiation: NegotiationId, code: AbortCode) {
        self.aborts.want(negotiation, code);
    }
}

/// What agents, the register and the log say.
impl Publisher {
    /// An agent acknowledged deliveries.
    pub(super) fn handle_acked(&mut self, agent: &AgentId, ids: Vec<DeliveryId>, is_owner: bool) {
        if !is_owner {
            return ids.into_iter().for_each(|id| self.outbox.handle_ack_heard(agent, id));
        }
        let now = Instant::now();
        for id in ids {
            if self.outbox.handle_ack(agent, id, now) {
                self.delivered.add(id, now);
            } else {
                self.outbox.remember_early(agent, id);
            }
        }
    }

    /// An agent has connected.
    pub(super) fn handle_hello(&mut self, agent: &AgentId) {
        self.outbox.handle_hello(agent, Instant::now());
    }

    /// The register answered a write.
    pub(super) fn handle_write(&mut self, done: &WriteDone, state: &LaneState, observer: &mut LaneObserver) {
        let now = Instant::now();
        let result = match &done.answer {
            Ok(Registered::Written) => WriteResult::Written,
            Ok(Registered::Same) => WriteResult::Same,
            Ok(Registered::Different(_)) => WriteResult::Different,
            Err(_) => WriteResult::Error,
        };
        let result = if done.is_expired { WriteResult::Expired } else { result };
        if done.answer.is_ok() {
            self.register_waits.push(done.waited);
        }
        observer.handle_write_answered(&done.key, result, done.started, now, state);
        let outcome = if done.is_expired {
            let (negotiation, lane) = (done.key.negotiation(), self.lane.0);
            tracing::warn!(lane, %negotiation, key = %done.key, "a register write came after entries of its time were removed; nothing follows from it");
            self.registrar.handle_expired(&done.key)
        } else {
            self.registrar.handle_answer(&done.key, &done.answer, now)
        };
        match outcome {
            WriteOutcome::Written => self.outbox.handle_register(&done.key, false),
            WriteOutcome::Refused(negotiation, keys) => {
                let trace_id = observer.trace_id(&negotiation, state);
                tracing::error!(%negotiation, %trace_id, key = %done.key, "register conflict: another value stands there; the negotiation is aborted");
                observer.handle_register_conflict(&negotiation, state);
                self.aborts.want(negotiation, AbortCode::RegisterConflict);
                keys.iter().for_each(|key| self.outbox.handle_register(key, true));
            }
            WriteOutcome::RefusedAgain(keys) => keys.iter().for_each(|key| self.outbox.handle_register(key, true)),
            WriteOutcome::Retried => {
                let error = done.answer.as_ref().err().map(ToString::to_string);
                let negotiation = done.key.negotiation();
                let trace_id = observer.trace_id(negotiation, state);
                tracing::warn!(%negotiation, %trace_id, key = %done.key, error, "the register did not answer; the write is repeated");
            }
        }
    }

    /// The log answered an entry about a delivery or a negotiation; the others are answered elsewhere.
    pub(super) fn handle_append(&mut self, purpose: Purpose, is_appended: bool, now: Instant) {
        match purpose {
            Purpose::Delivered(batch) => self.delivered.handle_append((!is_appended).then_some(batch), now),
            Purpose::DeliveryFailed(id) if is_appended => self.outbox.handle_failure_logged(id),
            Purpose::DeliveryFailed(id) => self.outbox.handle_failure_unlogged(id, now),
            Purpose::Abort(negotiation) => self.aborts.handle_append(&negotiation, is_appended, now),
            Purpose::Claim | Purpose::Tick | Purpose::Rules => {}
        }
    }

    /// The lane is owned from now on. The owner before may have ended before it could log what was acknowledged.
    pub(super) fn handle_takeover(&mut self, now: Instant) {
        self.aborts.handle_takeover(now);
        for id in self.outbox.take_heard() {
            self.delivered.add(id, now);
        }
    }

    /// Lets go what was held back in favour of the owner before.
    pub(super) fn release_held(&mut self) {
        let registrar = &self.registrar;
        self.outbox.release_held(|after| registrar.gate(after));
    }

    /// The lane has another owner: what is not settled is held back again.
    pub(super) fn demote(&mut self) {
        self.outbox.demote();
        self.registrar.demote();
    }
}

/// What is due.
impl Publisher {
    /// Queues what is to be sent again and starts the register writes that may start, and takes the answers that are there
    /// at once: what they let out then shares the inbox messages of this flush.
    pub(super) fn start_due(&mut self, now: Instant, fold: &Fold, inputs: &mut Inputs, observer: &mut LaneObserver) {
        self.outbox.handle_time(now, fold.clock().log_time(now));
        loop {
            let mut is_started = false;
            while let Some((Write { key, value }, at)) = self.registrar.poll_write(now) {
                let (register, fence) = (Arc::clone(&self.bus.register), self.fence.clone());
                let read_at = fold.clock().log_time(now);
                inputs.writes.push(Box::pin(async move {
                    let answer = register.write(key.clone(), value).await;
                    let is_expired = fence.is_expired(&answer, at, (now, read_at)).await;
                    let (answer, is_expired) = is_expired.map_or_else(|error| (Err(error), false), |is| (answer, is));
                    let waited = Duration::from_micros(read_at.since_us(at)) + now.elapsed();
                    WriteDone { key, started: now, answer, waited, is_expired }
                }));
                is_started = true;
            }
            while let Some(Some(done)) = inputs.writes.next().now_or_never() {
                self.handle_write(&done, fold.state(), observer);
            }
            if !is_started {
                return;
            }
        }
    }

    /// Appends the aborts and failures that are due under an epoch, as many as may be in flight.
    pub(super) fn append_failures(&mut self, epoch: u64, now: Instant, inputs: &mut Inputs) {
        while inputs.appends.len() < APPENDS_IN_FLIGHT_MAX
            && let Some((negotiation, code)) = self.aborts.poll_abort(now)
        {
            let event = EngineEvent::Abort { negotiation: negotiation.clone(), code: code.as_str().to_owned() };
            self.append(Purpose::Abort(negotiation), Entry::Engine { epoch, event }, inputs);
        }
        while inputs.appends.len() < APPENDS_IN_FLIGHT_MAX
            && let Some((id, event)) = self.outbox.poll_given_up()
        {
            self.append(Purpose::DeliveryFailed(id), Entry::Engine { epoch, event }, inputs);
        }
    }

    /// Appends what was acknowledged and registered, when that is worth an entry.
    pub(super) fn append_delivered(&mut self, epoch: u64, position: u64, now: Instant, inputs: &mut Inputs) {
        self.note_registered(position, now);
        if let Some(batch) = self.delivered.poll_entry(now) {
            self.append_batch(epoch, batch, inputs);
        }
    }

    /// Appends what was acknowledged and registered, whatever its size: the lane is handed over or shuts down.
    pub(super) fn append_all_delivered(&mut self, epoch: u64, now: Instant, inputs: &mut Inputs) {
        while let Some(batch) = self.delivered.take(now) {
            self.append_batch(epoch, batch, inputs);
        }
    }

    /// Takes note of how far the register has answered, for the next `delivered` entry.
    pub(super) fn note_registered(&mut self, position: u64, now: Instant) {
        let through = self.registrar.registered_through(position);
        self.delivered.note_registered(through.min(self.wrote_at), now);
    }

    fn append_batch(&self, epoch: u64, batch: Batch, inputs: &mut Inputs) {
        let event = EngineEvent::Delivered { ids: batch.ids.clone(), registered: batch.registered };
        self.append(Purpose::Delivered(batch), Entry::Engine { epoch, event }, inputs);
    }

    /// Appends a claim of the lane.
    pub(super) fn append_claim(&self, epoch: u64, inputs: &mut Inputs) {
        let event = EngineEvent::Claim { engine: self.engine.clone() };
        self.append(Purpose::Claim, Entry::Engine { epoch, event }, inputs);
    }

    /// Appends an entry of the engine.
    pub(super) fn append(&self, purpose: Purpose, entry: Entry, inputs: &mut Inputs) {
        let appender = self.appender.clone();
        inputs.appends.push(Box::pin(async move {
            let outcome = appender.append(&entry).await;
            AppendDone { purpose, outcome }
        }));
    }

    /// Whether what is ready is to wait: the register is about to answer, and the wait is not over.
    fn gathers(&mut self, now: Instant, is_register_asked: bool) -> bool {
        let is_ready = self.outbox.has_queued() || !self.notices.is_empty();
        if !is_register_asked || !is_ready {
            return false;
        }
        now < *self.gathers_until.get_or_insert(now + GATHER_MAX)
    }

    /// Publishes what the outbox and notices have ready, and `answers` to requests, by their subjects. Where there are none
    /// and the register is asked, it gets a moment to answer first.
    pub(super) async fn publish(
        &mut self,
        fold: &Fold,
        answers: Vec<(String, Bytes)>,
        is_register_asked: bool,
        observer: &LaneObserver,
    ) {
        let now = Instant::now();
        if answers.is_empty() && self.gathers(now, is_register_asked) {
            return;
        }
        self.gathers_until = None;
        let bundles = {
            let gateway_of = self.routes.lock(now);
            self.outbox.poll_bundles(now, fold.clock(), gateway_of)
        };
        let others: Vec<(String, Bytes)> = self.notices.drain(..).chain(answers).collect();
        if bundles.is_empty() && others.is_empty() {
            return;
        }
        let pub_sub = &self.bus.pub_sub;
        let mut is_published = vec![false; bundles.len()];
        let publishing = async {
            for (bundle, is_published) in bundles.iter().zip(&mut is_published) {
                let to = match &bundle.destination {
                    Destination::Inbox(agent) => subject::inbox(agent),
                    Destination::Gateway(gateway) => subject::gateway_deliveries(gateway),
                };
                let outcome = pub_sub.publish(to, bundle.payload.clone()).await;
                *is_published = outcome.is_ok();
            }
            for (subject, payload) in others {
                // At most once: a notice or an answer that is lost is lost.
                let _ = pub_sub.publish(subject, payload).await;
            }
        };
        if timeout(FLUSH_MAX, publishing).await.is_err() {
            tracing::warn!(lane = self.lane.0, "the bus takes no messages; deliveries are repeated");
        }
        let deliveries = &observer.metrics.deliveries;
        for (bundle, is_published) in bundles.iter().zip(is_published) {
            let (messages, failures) = match bundle.destination {
                Destination::Inbox(_) => (&deliveries.inbox_messages, &deliveries.inbox_failures),
                Destination::Gateway(_) => (&deliveries.gateway_messages, &deliveries.gateway_failures),
            };
            if is_published {
                messages.inc();
            } else {
                failures.inc();
                self.outbox.handle_unsent(bundle, now);
            }
        }
    }
}
