//! Acting: what is due by time, what the register and the log are asked, what is published.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use schemas::record::{EngineEvent, Entry};
use schemas::{DeliveryId, subject};
use tokio::time::{Instant, timeout};

use super::inputs::{AppendDone, Purpose, WriteDone};
use super::{Driver, Stage};
use crate::outbox::GivenUp;
use crate::status::StopReason;
use crate::view;

/// Most engine entries in flight; more wait in the outbox. A quarter of what the appender queues.
const APPENDS_IN_FLIGHT_MAX: usize = 1024;
/// Longest a flush may take. A bus that takes longer is not connected; what was not handed over goes out again later.
const FLUSH_MAX: Duration = Duration::from_secs(1);

impl Driver {
    /// Does everything that is due.
    pub(super) async fn act(&mut self) -> Result<(), StopReason> {
        let now = Instant::now();
        match self.stage {
            Stage::Owner { epoch } => {
                self.subscribe_views().await?;
                self.outbox.handle_time(now, self.clock.log_time(now));
                self.start_writes(now);
                self.append_due(epoch, now);
                self.publish().await;
            }
            Stage::Claiming { epoch, claims, retry_at: Some(at) } if at <= now => {
                self.stage = Stage::Claiming { epoch, claims, retry_at: None };
                self.append_claim(epoch);
            }
            Stage::Claiming { .. } | Stage::CatchingUp { .. } => {}
        }
        self.report();
        Ok(())
    }

    /// When time alone makes something due.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        match self.stage {
            Stage::CatchingUp { .. } => None,
            Stage::Claiming { retry_at, .. } => retry_at,
            Stage::Owner { .. } => [
                self.outbox.wake_at(),
                self.registrar.wake_at(),
                self.aborts.wake_at(),
                self.delivered.wake_at(),
                self.ticker.wake_at(self.book.poll_deadline(), &self.clock),
            ]
            .into_iter()
            .flatten()
            .min(),
        }
    }

    async fn subscribe_views(&mut self) -> Result<(), StopReason> {
        if self.inputs.views.is_none() {
            let subscribed = self.shared.bus.pub_sub.subscribe(subject::view(self.lane), None).await;
            self.inputs.views = Some(subscribed.map_err(|error| StopReason::Bus(error.to_string()))?);
        }
        Ok(())
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
            let GivenUp { id, negotiation, to, attempts } = given_up;
            let event = EngineEvent::DeliveryFailed { id, negotiation, to, attempts };
            self.append(Purpose::DeliveryFailed(id), Entry::Engine { epoch, event });
        }
        if let Some(ids) = self.delivered.poll_entry(now) {
            self.append_delivered(epoch, ids);
        }
        if self.ticker.poll_tick(self.book.poll_deadline(), &self.clock, now) {
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

    pub(super) fn append_delivered(&mut self, epoch: u64, ids: Vec<DeliveryId>) {
        let event = EngineEvent::Delivered { ids: ids.clone() };
        self.append(Purpose::Delivered(ids), Entry::Engine { epoch, event });
    }

    fn append(&mut self, purpose: Purpose, entry: Entry) {
        let appender = self.appender.clone();
        self.inputs.appends.push(Box::pin(async move {
            let outcome = appender.append(&entry).await;
            AppendDone { purpose, outcome }
        }));
    }

    /// Publishes what the outbox, notices and views have ready.
    pub(super) async fn publish(&mut self) {
        let now = Instant::now();
        let bundles = self.outbox.poll_bundles(now, &self.clock);
        let book = &self.book;
        let answers = self.asked.drain(..).filter_map(|asked| Some((asked.reply?, view::answer(book, &asked.payload))));
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
