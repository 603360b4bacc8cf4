//! The loop of one lane, and its beginning.

mod stop;

use std::time::Duration;

use bus::{BusError, LogRecord};
use futures_util::{FutureExt, StreamExt};
use schemas::admission::LaneQueue;
use schemas::record::{EngineEvent, Entry};
use schemas::{Lane, subject};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::Assignment;
use crate::ingress::Signal;
use crate::lane::Sinks;
use crate::lane::admission_rate::AdmissionRate;
use crate::lane::backlog::BacklogSender;
use crate::lane::checkpoint_and_trim::Maintenance;
use crate::lane::evidence::EvidenceSender;
use crate::lane::fold::Fold;
use crate::lane::observer::LaneObserver;
use crate::lane::ownership::Ownership;
use crate::lane::publish::Publisher;
use crate::lane::recovery::recover_with_retries;
use crate::lane::requests::Requests;
use crate::lane::{AppendDone, Inputs, LanePorts, LaneWake, Purpose, Recovered, Shared};
use crate::lane::{Claim, OwnershipStep};
use crate::membership::MembershipInput;
use crate::status::{LanePhase, LaneStatus, StopReason};

/// Most requests for views taken in between two flushes; each costs one look-up and one document.
const REQUESTS_PER_BATCH_MAX: usize = 16;

/// See [`super`].
pub(crate) struct LaneDriver {
    lane: Lane,
    shared: Shared,
    status: watch::Sender<LaneStatus>,
    inputs: Inputs,
    fold: Fold,
    ownership: Ownership,
    publisher: Publisher,
    requests: Requests,
    maintenance: Maintenance,
    observer: LaneObserver,
    assignment: Assignment,
    backlog: BacklogSender,
    evidence: EvidenceSender,
    admission: AdmissionRate,
    /// Why the log cannot be read on.
    broken: Option<BusError>,
}

impl LaneDriver {
    /// Runs until the engine shuts down or the lane cannot go on; or until others fold it, and gives its ports back.
    pub(super) async fn drive(mut self) -> Option<LanePorts> {
        self.handle_peers();
        let reason = loop {
            if let Err(reason) = self.handle_progress() {
                break reason;
            }
            self.act().await;
            if self.lets_go(Instant::now()) {
                return Some(self.into_ports());
            }
            let wake = self.inputs.wait(self.wake_at(), self.takes_records()).await;
            if let Err(reason) = self.handle(wake).and_then(|()| self.handle_ready()) {
                break reason;
            }
            if let Some(error) = self.broken.take()
                && let Err(reason) = self.rebuild(error).await
            {
                break reason;
            }
        };
        self.stop(reason).await;
        None
    }

    /// Whether the lane is let go now: others fold it, this engine neither owns it nor is about to, and nothing is left that
    /// only this one could do.
    fn lets_go(&self, now: Instant) -> bool {
        let is_over = self.assignment.let_go_at.is_some_and(|at| at <= now);
        let has_handed_over = match self.ownership.phase(true) {
            LanePhase::CatchingUp => true,
            LanePhase::Standby => {
                self.ownership.yielding().is_none() && !self.fold.state().is_owner(&self.shared.config.id)
            }
            LanePhase::Elsewhere | LanePhase::Claiming | LanePhase::Owner | LanePhase::Stopped(_) => false,
        };
        is_over && has_handed_over && self.inputs.is_idle()
    }

    /// Whether there is room for what further records cause. While the lane is not owned nothing can make room.
    fn takes_records(&self) -> bool {
        let is_stuck = self.ownership.yielding().is_some() || (self.ownership.is_owner() && self.publisher.is_full());
        self.broken.is_none() && !is_stuck
    }

    fn handle(&mut self, wake: LaneWake) -> Result<(), StopReason> {
        match wake {
            LaneWake::Record(Ok(record)) => return self.handle_record(&record),
            LaneWake::Record(Err(error)) => return self.handle_unreadable(error),
            LaneWake::Signal(signal) => return self.handle_signal(signal),
            LaneWake::Maintenance(done) => self.maintenance.handle(done, &self.observer),
            LaneWake::Write(done) => self.publisher.handle_write(&done, self.fold.state(), &mut self.observer),
            LaneWake::Append(done) => self.handle_append(done),
            LaneWake::Request(request) => self.requests.add(request),
            LaneWake::End(end) => self.requests.handle_end(end),
            LaneWake::Peers => self.handle_peers(),
            LaneWake::Time => {}
            LaneWake::Shutdown => return Err(StopReason::Shutdown),
        }
        Ok(())
    }

    /// Handles what is ready, a bounded part of each source, so that none starves another.
    fn handle_ready(&mut self) -> Result<(), StopReason> {
        self.handle_ready_signals()?;
        while let Some(Some(done)) = self.inputs.writes.next().now_or_never() {
            self.publisher.handle_write(&done, self.fold.state(), &mut self.observer);
        }
        self.handle_ready_appends();
        while let Some(Some(end)) = self.inputs.ends.next().now_or_never() {
            self.requests.handle_end(end);
        }
        for _ in 0..REQUESTS_PER_BATCH_MAX {
            let Some(requests) = &mut self.inputs.requests else { break };
            let Some(Some(request)) = requests.next().now_or_never() else { break };
            self.requests.add(request);
        }
        for _ in 1..self.shared.config.batch.records_max {
            if !self.takes_records() {
                break;
            }
            match self.inputs.log.next().now_or_never() {
                Some(Ok(record)) => self.handle_record(&record)?,
                Some(Err(error)) => self.handle_unreadable(error)?,
                None => break,
            }
        }
        while let Some(Some(done)) = self.inputs.maintenance.next().now_or_never() {
            self.maintenance.handle(done, &self.observer);
        }
        Ok(())
    }

    fn handle_record(&mut self, record: &LogRecord) -> Result<(), StopReason> {
        let before = self.fold.position();
        let Self { fold, ownership, publisher, observer, admission, .. } = self;
        fold.handle_record(record, &mut Sinks { ownership, publisher, observer, admission })?;
        if self.fold.position() == before {
            return Ok(());
        }
        self.maintenance.note_record();
        self.handle_progress()
    }

    /// The log does not go on from the last record read. Where it has lost or trimmed records, the lane begins anew.
    fn handle_unreadable(&mut self, error: BusError) -> Result<(), StopReason> {
        if !matches!(error, BusError::Diverged(_) | BusError::Trimmed(_)) {
            return Err(StopReason::LogUnreadable(error.to_string()));
        }
        self.broken = Some(error);
        Ok(())
    }

    fn handle_ready_signals(&mut self) -> Result<(), StopReason> {
        for _ in 0..self.shared.config.batch.acks_max {
            let Ok(signal) = self.inputs.signals.try_recv() else { break };
            self.handle_signal(signal)?;
        }
        Ok(())
    }

    fn handle_signal(&mut self, signal: Signal) -> Result<(), StopReason> {
        match signal {
            Signal::Acked(acks) => {
                let is_owner = self.ownership.is_owner();
                acks.into_iter().for_each(|(agent, ids)| self.publisher.handle_acked(&agent, ids, is_owner));
                self.observe_deliveries();
            }
            Signal::Hello(agent) => self.publisher.handle_hello(&agent),
            Signal::Digests(engine, points) => self.fold.handle_digests(&engine, &points, &self.observer)?,
        }
        Ok(())
    }

    /// The log answered an entry; each purpose is somebody's.
    fn handle_append(&mut self, done: AppendDone) {
        let now = Instant::now();
        let AppendDone { purpose, outcome } = done;
        if let Err(error) = &outcome {
            // Its name alone: a batch may hold thousands of ids.
            let purpose: &str = (&purpose).into();
            tracing::warn!(lane = self.lane.0, purpose, %error, "an engine's entry was not appended");
        }
        let failure = outcome.as_ref().err().map(ToString::to_string);
        let seq = outcome.ok().map(|position| position.seq);
        seq.into_iter().for_each(|seq| self.fold.handle_stored(seq));
        match purpose {
            Purpose::Claim => self.ownership.handle_claim_append(failure, now),
            Purpose::Tick => {
                self.observer.metrics.engines.ticks.inc();
                self.fold.handle_tick_append(seq, now);
            }
            Purpose::Rules => {}
            Purpose::Delivered(_) | Purpose::DeliveryFailed(_) | Purpose::Abort(_) => {
                self.publisher.handle_append(purpose, seq.is_some(), now);
            }
        }
    }

    fn handle_ready_appends(&mut self) {
        while let Some(Some(done)) = self.inputs.appends.next().now_or_never() {
            self.handle_append(done);
        }
    }

    /// Others came or went: does the lane fall to this engine now?
    fn handle_peers(&mut self) {
        if let Some(live) = self.inputs.take_live() {
            self.ownership.handle_live(&live, self.fold.state().rules());
            self.assignment.handle_live(&live, Instant::now());
        }
    }

    /// Moves on as far as what is folded and who is alive allow.
    fn handle_progress(&mut self) -> Result<(), StopReason> {
        self.fold.check_rules()?;
        self.publisher.check_refused(self.fold.state())?;
        self.publisher.check_held()?;
        let (now, live) = (Instant::now(), self.inputs.live());
        match self.ownership.progress(self.fold.state(), self.fold.position(), live.as_deref(), now) {
            OwnershipStep::Settled => {}
            OwnershipStep::Claim(epoch) => self.publisher.append_claim(epoch, &mut self.inputs),
            OwnershipStep::Owned(claim) => self.take_over(claim, now),
        }
        Ok(())
    }

    fn take_over(&mut self, claim: Claim, now: Instant) {
        self.handle_peers();
        self.admission = AdmissionRate::new(self.fold.state().open_count(), self.fold.state().epoch(), now);
        self.observer.handle_takeover(self.fold.state(), claim.is_orderly, claim.outlives);
        self.publisher.handle_takeover(now);
        let (epoch, unacknowledged) = (self.ownership.epoch(), self.publisher.outbox_len());
        let lane = self.lane.0;
        if claim.outlives {
            tracing::info!(target: "llmx::takeover", lane, epoch, unacknowledged, "the lane is taken over");
        } else {
            tracing::info!(lane, epoch, unacknowledged, "the lane is owned");
        }
        if !claim.is_orderly {
            self.publisher.release_held();
        }
    }

    /// Does everything that is due.
    async fn act(&mut self) {
        let now = Instant::now();
        if let Some(epoch) = self.ownership.epoch() {
            self.act_as_owner(epoch, now).await;
        } else if let Some(epoch) = self.ownership.yielding() {
            self.yield_lane(epoch).await;
        } else if let Some(epoch) = self.ownership.poll_claim(now) {
            self.publisher.append_claim(epoch, &mut self.inputs);
        }
        self.observe_deliveries();
        self.publisher.report_backlog(self.ownership.is_owner(), now);
        self.evidence.report(self.fold.state().evidence(), self.fold.position(), self.ownership.is_owner(), now);
        self.start_maintenance(now);
        self.report(now);
    }

    async fn act_as_owner(&mut self, epoch: u64, now: Instant) {
        self.requests.subscribe(now, self.observer.has_journals(), &mut self.inputs).await;
        if self.ownership.poll_release(now) {
            self.publisher.release_held();
        }
        self.publisher.start_due(now, &self.fold, &mut self.inputs, &mut self.observer);
        self.publisher.append_failures(epoch, now, &mut self.inputs);
        if let Some(version) = self.ownership.poll_rules(self.fold.state().rules(), now) {
            let event = EngineEvent::Rules { version };
            self.publisher.append(Purpose::Rules, Entry::Engine { epoch, event }, &mut self.inputs);
        }
        self.publisher.append_delivered(epoch, self.fold.position(), now, &mut self.inputs);
        if self.fold.poll_tick(now) {
            self.publisher.append(Purpose::Tick, Entry::Tick, &mut self.inputs);
        }
        self.handle_ready_appends();
        self.tell_admission(now);
        self.requests.ask_end(&mut self.inputs);
        let answers = self.requests.poll_answers(self.fold.position(), self.fold.state(), &self.observer);
        let is_register_asked = !self.inputs.writes.is_empty();
        self.publisher.publish(&self.fold, answers, is_register_asked, &self.observer).await;
    }

    /// Tells gateways how much the lane may be asked to open.
    fn tell_admission(&mut self, now: Instant) {
        let log_time = self.fold.clock().log_time(now);
        let since = |time| Duration::from_micros(log_time.since_us(time));
        for waited in self.publisher.take_register_waits() {
            self.admission.note_wait(LaneQueue::Register, waited);
        }
        if let Some(asked_at) = self.publisher.register_asked_at() {
            self.admission.note_unanswered(LaneQueue::Register, since(asked_at));
        }
        if self.publisher.is_full() {
            self.admission.note_wait(LaneQueue::Records, since(self.fold.state().now()));
        }
        let Some(word) = self.admission.poll_word(self.fold.state().open_count(), now) else { return };
        self.observer.set_admission(&word);
        if let Ok(word) = serde_json::to_vec(&word) {
            self.publisher.tell(subject::admission(self.lane), word.into());
        }
    }

    /// Publishes what deliveries, notices and current answers are ready, and waits for no more.
    async fn publish(&mut self) {
        let answers = self.requests.poll_answers(self.fold.position(), self.fold.state(), &self.observer);
        self.publisher.publish(&self.fold, answers, false, &self.observer).await;
    }

    /// Hands the lane over: what the log ordered before the other engine's claim still leaves as far as it has room, as does what was
    /// acknowledged; the rest is the new owner's.
    async fn yield_lane(&mut self, epoch: u64) {
        tracing::info!(lane = self.lane.0, epoch, by = self.fold.state().epoch(), "the lane is handed over");
        self.publish().await;
        let now = Instant::now();
        self.publisher.append_all_delivered(epoch, now, &mut self.inputs);
        self.publisher.demote();
        self.admission = AdmissionRate::new(self.fold.state().open_count(), self.fold.state().epoch(), now);
        self.inputs.requests = None;
        self.inputs.ends.clear();
        self.requests.clear();
        self.observer.forget();
        self.ownership.stand_by(now);
    }

    /// When time alone makes something due.
    fn wake_at(&self) -> Option<Instant> {
        let is_owner = self.ownership.is_owner();
        let owners = [
            self.publisher.wake_at(),
            self.fold.tick_wake_at(),
            self.requests.wake_at(&self.inputs),
            self.ownership.rules_wake_at(),
            self.observer.wake_at(),
            self.evidence.wake_at(self.fold.state().evidence()),
            self.admission.wake_at(),
        ];
        let owners = owners.into_iter().filter(|_| is_owner);
        let maintenance = self.maintenance.wake_at(self.fold.position(), || self.makes_checkpoints(), is_owner);
        let let_go_at = self.assignment.let_go_at.filter(|at| *at > Instant::now());
        owners.chain([self.ownership.wake_at(), maintenance, let_go_at]).flatten().min()
    }

    fn observe_deliveries(&mut self) {
        self.observer.handle_deliveries(self.publisher.take_delivery_events());
    }

    /// Starts the maintenance that is due.
    fn start_maintenance(&mut self, now: Instant) {
        let checkpoint_at = self.maintenance.wake_at(self.fold.position(), || true, false);
        if checkpoint_at.is_some_and(|at| at <= now) && self.makes_checkpoints() {
            let mut checkpoint = self.fold.checkpoint();
            self.publisher.fill_checkpoint(&mut checkpoint, self.fold.state());
            let saving = self.maintenance.save(checkpoint);
            self.inputs.maintenance.push(saving);
        }
        let Self { fold, publisher, maintenance, .. } = self;
        if self.ownership.is_owner() {
            let at = (fold.state(), fold.position());
            self.inputs.maintenance.extend(maintenance.poll_as_owner(at, fold.clock(), || publisher.answered()));
        }
    }

    /// Whether it falls to this engine to make the lane's checkpoints: the first of those that do not own it, or the
    /// owner where nobody else is there.
    fn makes_checkpoints(&self) -> bool {
        let Some(live) = self.inputs.live().filter(|_| self.ownership.is_fit()) else { return false };
        let ranked = live.ranked(self.lane);
        let first = ranked.iter().find(|id| !self.fold.state().is_owner(id)).or(ranked.first());
        first.is_some_and(|id| *id == self.shared.config.id)
    }

    /// Says how the lane stands: to the engine's handle, to people, and through the heartbeats to other engines.
    fn report(&mut self, now: Instant) {
        let Self { fold, publisher, ownership, observer, admission, .. } = self;
        let (is_owner, outbox) = (ownership.is_owner(), publisher.outbox_len());
        observer.report(now, fold.clock().log_time(now), fold.state(), (fold.position(), outbox), is_owner);
        let (phase, is_fit) = (ownership.phase(self.inputs.live().is_some()), ownership.is_fit());
        let mut is_news = false;
        self.status.send_modify(|status| {
            is_news = status.phase != phase || status.is_fit != is_fit;
            status.phase = phase;
            status.is_fit = is_fit;
            status.admission = is_owner.then(|| admission.told());
            status.faults = ownership.fault().into_iter().collect();
            fold.fill_status(status);
            publisher.fill_status(status);
        });
        if is_news {
            ownership.announce();
        }
    }
}

/// The beginning, again where the log is not what it was.
impl LaneDriver {
    /// Begins a lane with the state it got back.
    pub(super) fn new(
        lane: Lane,
        shared: Shared,
        ports: LanePorts,
        membership: mpsc::Sender<MembershipInput>,
        recovered: Recovered,
    ) -> Self {
        let (now, config) = (Instant::now(), &shared.config);
        let LanePorts { status, live, signals, observer, backlog, evidence } = ports;
        let Recovered { beginning, outbox, registrar, aborts, target, trimmed, reader } = recovered;
        let position = beginning.position;
        let mut driver = Self {
            lane,
            status,
            inputs: Inputs::new(shared.cancel.clone(), live, signals, reader),
            fold: Fold::new(lane, config, beginning, now),
            ownership: Ownership::new(lane, config, membership, target),
            publisher: Publisher::new(lane, &shared, backlog.clone(), (outbox, registrar, aborts), position),
            requests: Requests::new(lane, shared.bus.clone(), now),
            maintenance: Maintenance::new((lane, &shared.bus), config, (position, trimmed), now),
            observer,
            assignment: Assignment::new(lane, config),
            backlog,
            evidence,
            admission: AdmissionRate::new(0, 0, now),
            broken: None,
            shared,
        };
        driver.begin_observing();
        driver
    }

    /// Lets the state go.
    fn into_ports(self) -> LanePorts {
        let Self { status, inputs: Inputs { live, signals, .. }, observer, backlog, evidence, .. } = self;
        LanePorts { status, live, signals, observer, backlog, evidence }
    }

    fn begin_observing(&mut self) {
        self.observer.begin(self.fold.state(), self.fold.position(), self.publisher.outbox_mut());
    }

    /// The log is not what it was, or begins behind the lane: its state is given up and built again. Nothing leaves the
    /// lane until it has caught up and been claimed anew.
    async fn rebuild(&mut self, error: BusError) -> Result<(), StopReason> {
        self.report_loss(&error).await;
        let recovered = recover_with_retries(self.lane, &self.shared).await?;
        self.restart(recovered);
        Ok(())
    }

    async fn report_loss(&mut self, error: &BusError) {
        let (lane, folded, position) = (self.lane.0, self.fold.folded(), self.fold.position());
        if let BusError::Diverged(_) = error {
            self.observer.metrics.engines.divergences.inc();
            let left = self.shared.bus.log.last_seq(self.lane).await.ok();
            let lost = left.map(|left| position.saturating_sub(left));
            tracing::error!(lane, %error, folded, position, ?left, ?lost, "the log has lost records; the lane is rebuilt");
        } else {
            tracing::warn!(lane, %error, folded, position, "the lane is behind what was trimmed; it is rebuilt");
        }
    }

    fn restart(&mut self, recovered: Recovered) {
        let (now, lane, config) = (Instant::now(), self.lane, &self.shared.config);
        let Recovered { beginning, outbox, registrar, aborts, target, trimmed, reader } = recovered;
        let position = beginning.position;
        self.inputs.restart(reader);
        self.fold = Fold::new(lane, config, beginning, now);
        self.admission = AdmissionRate::new(self.fold.state().open_count(), self.fold.state().epoch(), now);
        self.ownership.restart(target);
        self.publisher.restart(&self.shared, (outbox, registrar, aborts), position);
        self.requests.clear();
        self.maintenance = Maintenance::new((lane, &self.shared.bus), config, (position, trimmed), now);
        self.begin_observing();
    }
}
