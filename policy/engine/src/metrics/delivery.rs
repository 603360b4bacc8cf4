//! What becomes of deliveries.

use std::time::Duration;

use schemas::Act;
use schemas::delivery::Notification;

use super::labels::DeadLetterReason;

/// Buckets of what waits for an agent, in seconds: up to the longest delivery worth retrying.
const DELIVERY_S: [f64; 15] = [5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

telemetry::metrics! {
    /// What becomes of deliveries.
    pub(crate) struct DeliveryMetrics {
        /// Deliveries sent.
        sent: Counter[kind: Act = Act::FROM_EXCHANGE] = "exchange_deliveries_sent_total";
        /// Deliveries sent again, hellos included.
        retries: Counter[kind: Act = Act::FROM_EXCHANGE] = "exchange_delivery_retries_total";
        /// Deliveries acknowledged by their recipient.
        acked: Counter[kind: Act = Act::FROM_EXCHANGE] = "exchange_deliveries_acked_total";
        /// Time from the fold that made a delivery to its acknowledgement.
        duration: Histogram(DELIVERY_S)[kind: Act = Act::FROM_EXCHANGE] = "exchange_message_delivery_duration_seconds";
        /// Inbox messages published.
        inbox_messages: Counter = "exchange_inbox_messages_total";
        /// Inbox messages the bus did not take.
        inbox_failures: Counter = "exchange_inbox_failures_total";
        /// Deliveries given up.
        dead_letters: Counter[reason: DeadLetterReason] = "exchange_dead_letters_total";
        /// Acknowledgements that could not be read.
        acks_ignored: Counter = "exchange_acks_ignored_total";
        /// Acks and hellos lost to a busy lane.
        signals_dropped: Counter = "exchange_signals_dropped_total";
    }
}

impl DeliveryMetrics {
    pub(crate) fn count_sent(&self, told: &Notification, is_repeat: bool) {
        let kind = told.act();
        self.sent.of(kind).inc();
        if is_repeat {
            self.retries.of(kind).inc();
        }
    }

    /// `waited` is absent for what an earlier owner of the lane sent.
    pub(crate) fn count_acked(&self, told: &Notification, waited: Option<Duration>) {
        let kind = told.act();
        self.acked.of(kind).inc();
        if let Some(waited) = waited {
            self.duration.of(kind).observe(waited.as_secs_f64());
        }
    }

    pub(crate) fn count_inbox_message(&self, is_published: bool) {
        if is_published { self.inbox_messages.inc() } else { self.inbox_failures.inc() }
    }

    pub(crate) fn count_dead_letter(&self, reason: DeadLetterReason) {
        self.dead_letters.of(reason).inc();
    }

    pub(crate) fn count_ack_ignored(&self) {
        self.acks_ignored.inc();
    }

    pub(crate) fn count_signal_dropped(&self) {
        self.signals_dropped.inc();
    }
}
