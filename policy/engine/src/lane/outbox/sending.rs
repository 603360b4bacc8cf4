//! How queued deliveries become messages, and what their sending leaves behind.

use std::time::Duration;

use bytes::Bytes;
use schemas::DeliveryId;
use schemas::record::Qos;
use tokio::time::Instant;

use super::DeliveryState;
use super::bundle::{Bundle, Bundler};
use super::schedule::retry_gap;
use super::{DeliveryEvent, DeliveryStep, Outbox};
use crate::lane::tick::LogClock;
use crate::metrics::DeadLetterReason;

impl Outbox {
    /// Everything queued, as messages to publish; they count as sent.
    pub(crate) fn poll_bundles(&mut self, now: Instant, clock: &LogClock) -> Vec<Bundle> {
        let mut bundler = Bundler::new(&self.config);
        let mut written = Vec::new();
        for id in std::mem::take(&mut self.queue) {
            let Some(entry) = self.entries.get(&id).filter(|entry| matches!(entry.state, DeliveryState::Queued { .. }))
            else {
                continue;
            };
            if let Some(document) = &entry.document {
                bundler.add(id, &entry.deliver.to, document);
                continue;
            }
            written.clear();
            match self.writer.write(&entry.deliver, &mut written) {
                Ok(()) => bundler.add(id, &entry.deliver.to, &written),
                Err(error) => {
                    // The core builds no such delivery; retrying could not help.
                    let negotiation = &entry.deliver.negotiation;
                    tracing::error!(%negotiation, %id, %error, "a delivery cannot be written; it is given up");
                    self.give_up(id, DeadLetterReason::Unwritable);
                }
            }
        }
        let bundles: Vec<Bundle> = bundler.finish().collect();
        for bundle in &bundles {
            for (id, range) in &bundle.documents {
                self.note_sent(*id, bundle.payload.slice(range.clone()), now, clock);
            }
        }
        bundles
    }

    /// The bus did not take a message: its deliveries have not been sent, and go out again after a while. Only their
    /// deadline can end that, not the number of attempts.
    pub(crate) fn handle_unsent(&mut self, bundle: &Bundle, now: Instant) {
        let gap = Duration::from_millis(self.config.retry_base_ms);
        for (id, _) in &bundle.documents {
            if let Some(entry) = self.entries.get_mut(id).filter(|entry| entry.state == DeliveryState::Sent) {
                entry.attempts = entry.attempts.saturating_sub(1);
                entry.due = Some(self.schedule.arm(*id, now + gap));
            }
        }
    }

    fn note_sent(&mut self, id: DeliveryId, document: Bytes, now: Instant, clock: &LogClock) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        self.metrics.count_sent(&entry.deliver.told, entry.attempts > 0);
        if self.keeps_events && entry.attempts == 0 {
            let is_once = entry.deliver.qos == Qos::BestEffort;
            self.events
                .push(DeliveryEvent::of(entry, if is_once { DeliveryStep::SentOnce } else { DeliveryStep::Sent }));
        }
        let counts = entry.state == DeliveryState::Queued { counts: true };
        entry.state = DeliveryState::Sent;
        entry.document = Some(document);
        if entry.deliver.qos == Qos::BestEffort {
            self.settle(id);
        } else if counts {
            entry.attempts += 1;
            let base = Duration::from_millis(self.config.retry_base_ms);
            let expiry = clock.instant_of(entry.deliver.expires) + Duration::from_millis(1);
            // Even what expires now gets one gap in which its acknowledgement can arrive.
            let at = (now + retry_gap(&self.config, &entry.deliver.to, entry.attempts)).min(expiry.max(now + base));
            entry.due = Some(self.schedule.arm(id, at));
        }
    }
}
