//! How queued deliveries become messages, and what their sending leaves behind.

use std::time::Duration;

use bytes::Bytes;
use schemas::DeliveryId;
use schemas::record::Qos;
use tokio::time::Instant;

use super::bundle::{Bundle, Bundler};
use super::item::Stage;
use super::{Outbox, Passage, Step};
use crate::clock::LogClock;
use crate::metrics::DeadLetterReason;

impl Outbox {
    /// Everything queued, as messages to publish; they count as sent.
    pub(crate) fn poll_bundles(&mut self, now: Instant, clock: &LogClock) -> Vec<Bundle> {
        let mut bundler = Bundler::new(&self.config);
        let mut written = Vec::new();
        for id in std::mem::take(&mut self.queue) {
            let Some(item) = self.items.get(&id).filter(|item| matches!(item.stage, Stage::Queued { .. })) else {
                continue;
            };
            if let Some(document) = &item.document {
                bundler.add(id, &item.deliver.to, document);
                continue;
            }
            written.clear();
            match self.writer.write(&item.deliver, &mut written) {
                Ok(()) => bundler.add(id, &item.deliver.to, &written),
                Err(error) => {
                    // The core builds no such delivery; retrying could not help.
                    let negotiation = &item.deliver.negotiation;
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
            if let Some(item) = self.items.get_mut(id).filter(|item| item.stage == Stage::Sent) {
                item.attempts = item.attempts.saturating_sub(1);
                item.due = Some(self.schedule.arm(*id, now + gap));
            }
        }
    }

    fn note_sent(&mut self, id: DeliveryId, document: Bytes, now: Instant, clock: &LogClock) {
        let Some(item) = self.items.get_mut(&id) else { return };
        self.metrics.deliveries.count_sent(&item.deliver.told, item.attempts > 0);
        if let Some(passages) = self.passages.as_mut().filter(|_| item.attempts == 0) {
            let is_once = item.deliver.qos == Qos::BestEffort;
            passages.push(Passage::of(item, if is_once { Step::SentOnce } else { Step::Sent }));
        }
        let counts = item.stage == Stage::Queued { counts: true };
        item.stage = Stage::Sent;
        item.document = Some(document);
        if item.deliver.qos == Qos::BestEffort {
            self.settle(id);
        } else if counts {
            item.attempts += 1;
            let base = Duration::from_millis(self.config.retry_base_ms);
            let expiry = clock.instant_of(item.deliver.expires) + Duration::from_millis(1);
            // Even what expires now gets one gap in which its acknowledgement can arrive.
            let at = (now + item.gap(&self.config)).min(expiry.max(now + base));
            item.due = Some(self.schedule.arm(id, at));
        }
    }
}
