//! Acting: what is due by time, what the register and the log are asked, what is published.

use std::sync::Arc;
use std::time::Duration;

use bus::{BusError, PubSub, Received};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, select};
use schemas::Lane;
use schemas::record::{EngineEvent, Entry};
use schemas::subject;
use tokio::time::{Instant, timeout};

use super::inputs::{AppendDone, Purpose, WriteDone};
use super::{Driver, OwnershipState};
use crate::delivered::Batch;
use crate::outbox::GivenUp;
use crate::view;

/// Most engine entries in flight; more wait in the outbox. A quarter of what the appender queues.
const APPENDS_IN_FLIGHT_MAX: usize = 1024;
/// Gap after a subscription for views that the bus did not take.
const VIEWS_GAP: Duration = Duration::from_secs(1);
/// Longest a flush may take. A bus that takes longer is not connected; what was not handed over goes out again later.
const FLUSH_MAX: Duration = Duration::from_secs(1);

impl Driver {
    /// Does everything that is due.
    pub(super) async fn act(&mut self) {
        let now = Instant::now();
        match self.ownership {
            OwnershipState::Owner { epoch, .. } => {
                self.subscribe_views(now).await;
                self.release_due(now);
                self.outbox.handle_time(now, self.clock.log_time(now));
                self.start_writes(now);
                self.append_due(epoch, now);
                self.ask_end();
                self.publish().await;
            }
            OwnershipState::Claiming(_) => self.retry_claim(now),
            OwnershipState::Yielding { epoch } => self.yield_lane(epoch).await,
            OwnershipState::Standby { .. } | OwnershipState::CatchingUp { .. } => {}
        }
        self.note_delivery_events();
        self.report_backlog(now);
        self.start_maintenance(now);
        self.report_statistics(now);
        self.report();
    }

    /// When time alone makes something due.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let owners = [
            self.outbox.wake_at(),
            self.registrar.wake_at(),
            self.aborts.wake_at(),
            self.delivered.wake_at(),
            self.ticker.wake_at(self.lane_state.poll_deadline(), &self.clock),
            self.inputs.views.is_none().then_some(self.views_at),
            self.rules_wanted.map(|(_, at)| at),
            self.statistics_wake_at(),
            self.backlog_wake_at(),
        ];
        let owners = owners.into_iter().filter(|_| self.is_owner());
        owners.chain([self.ownership_wake_at(), self.maintenance_wake_at()]).flatten().min()
    }

    /// Answers for the lane from now on. Views are a convenience: a bus that takes no subscription stops nothing else.
    async fn subscribe_views(&mut self, now: Instant) {
        if self.inputs.views.is_some() || now < self.views_at {
            return;
        }
        self.views_at = now + VIEWS_GAP;
        match timeout(FLUSH_MAX, questions(&*self.shared.bus.pub_sub, self.lane, self.telling.is_on())).await {
            Ok(Ok(views)) => self.inputs.views = Some(views),
            Ok(Err(_)) | Err(_) => tracing::warn!(lane = self.lane.0, "the bus takes no subscription for views yet"),
        }
    }

    /// Starts the register writes that may start, and takes the answers that are there at once: what they let out then
    /// shares the inbox messages of this flush.
    fn start_writes(&mut self, now: Instant) {
        loop {
            let mut is_started = false;
            while let Some(write) = self.registrar.poll_write(now) {
                let register = Arc::clone(&self.shared.bus.register);
                self.inputs.writes.push(Box::pin(async move {
                    let answer = register.write(write.key.clone(), write.value).await;
                    WriteDone { key: write.key, started: now, answer }
                }));
                is_started = true;
            }
            while let Some(done) = self.inputs.ready_write() {
                self.handle_write(&done);
            }
            if !is_started {
                return;
            }
        }
    }

    /// Asks the log where it ends on behalf of who asks for views, and takes an answer that is there at once.
    fn ask_end(&mut self) {
        while self.questions.poll_end_wanted() {
            let (log, lane) = (Arc::clone(&self.shared.bus.log), self.lane);
            self.inputs.ends.push(Box::pin(async move {
                let end = timeout(FLUSH_MAX, log.last_seq(lane)).await;
                end.ok().and_then(Result::ok)
            }));
            while let Some(end) = self.inputs.ready_end() {
                self.questions.handle_end(end);
            }
        }
    }

    fn append_due(&mut self, epoch: u64, now: Instant) {
        while self.inputs.appends.len() < APPENDS_IN_FLIGHT_MAX
            && let Some((negotiation, code)) = self.aborts.poll_abort(now)
        {
            let event = EngineEvent::Abort { negotiation: negotiation.clone(), code: code.as_str().to_owned() };
            self.append(Purpose::Abort(negotiation), Entry::Engine { epoch, event });
        }
        while self.inputs.appends.len() < APPENDS_IN_FLIGHT_MAX
            && let Some(given_up) = self.outbox.poll_given_up()
        {
            let GivenUp { id, negotiation, to, attempts, may_answer } = given_up;
            let event = EngineEvent::DeliveryFailed { id, negotiation, to, attempts, may_answer };
            self.append(Purpose::DeliveryFailed(id), Entry::Engine { epoch, event });
        }
        if let Some(version) = self.poll_rules(now) {
            let event = EngineEvent::Rules { version };
            self.append(Purpose::Rules, Entry::Engine { epoch, event });
        }
        self.note_registered(now);
        if let Some(batch) = self.delivered.poll_entry(now) {
            self.append_delivered(epoch, batch);
        }
        if self.ticker.poll_tick(self.lane_state.poll_deadline(), &self.clock, now) {
            self.append(Purpose::Tick, Entry::Tick);
        }
        while let Some(done) = self.inputs.ready_append() {
            self.handle_append(done);
        }
    }

    pub(super) fn append_claim(&mut self, epoch: u64) {
        let event = EngineEvent::Claim { engine: self.shared.config.id.clone() };
        self.append(Purpose::Claim, Entry::Engine { epoch, event });
    }

    pub(super) fn append_delivered(&mut self, epoch: u64, batch: Batch) {
        let event = EngineEvent::Delivered { ids: batch.ids.clone(), registered: batch.registered };
        self.append(Purpose::Delivered(batch), Entry::Engine { epoch, event });
    }

    /// Takes note of how far the register has answered, for the next `delivered` entry.
    pub(super) fn note_registered(&mut self, now: Instant) {
        let through = self.registrar.registered_through(self.position);
        self.delivered.note_registered(through.min(self.wrote_at), now);
    }

    fn append(&mut self, purpose: Purpose, entry: Entry) {
        let appender = self.appender.clone();
        self.inputs.appends.push(Box::pin(async move {
            let outcome = appender.append(&entry).await;
            AppendDone { purpose, outcome }
        }));
    }

    /// Publishes what the outbox, notices and current views have ready.
    pub(super) async fn publish(&mut self) {
        let now = Instant::now();
        let bundles = self.outbox.poll_bundles(now, &self.clock);
        let (lane_state, telling, engine) = (&self.lane_state, &self.telling, &self.shared.config.id);
        let journals = subject::journal(self.lane);
        let (questions, position) = (&mut self.questions, self.position);
        let due = std::iter::from_fn(|| questions.poll_due(position)).flatten();
        let answers = due.filter_map(|asked| {
            let answer = if asked.subject == journals {
                telling.answer(engine, &asked.payload)?
            } else {
                view::answer(lane_state, &asked.payload)
            };
            Some((asked.reply?, answer))
        });
        let others: Vec<(String, Bytes)> = self.notices.drain(..).chain(answers).collect();
        if bundles.is_empty() && others.is_empty() {
            return;
        }
        let pub_sub = &self.shared.bus.pub_sub;
        let mut is_published = vec![false; bundles.len()];
        let publishing = async {
            for (bundle, is_published) in bundles.iter().zip(&mut is_published) {
                let outcome = pub_sub.publish(subject::inbox(&bundle.agent), bundle.payload.clone()).await;
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
        for (bundle, is_published) in bundles.iter().zip(is_published) {
            self.shared.metrics.deliveries.count_inbox_message(is_published);
            if !is_published {
                self.outbox.handle_unsent(bundle, now);
            }
        }
    }
}

/// Questions for views and, where people are told anything, for journals; their subjects report_statistics them apart.
async fn questions(
    pub_sub: &dyn PubSub,
    lane: Lane,
    has_journals: bool,
) -> Result<BoxStream<'static, Received>, BusError> {
    let views = pub_sub.subscribe(subject::view(lane), None).await?;
    if !has_journals {
        return Ok(views);
    }
    let journals = pub_sub.subscribe(subject::journal(lane), None).await?;
    Ok(select(views, journals).boxed())
}
