//! What becomes of deliveries.

use std::time::Duration;

use prometheus::{Error, Histogram, IntCounter};
use schemas::delivery::Notification;
use telemetry::metrics::Maker;

use super::labels::{self, DeadLetterReason, KINDS};

/// Buckets of what waits for an agent, in seconds: up to the longest delivery worth retrying.
const DELIVERY_S: [f64; 15] = [5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

pub(crate) struct DeliveryMetrics {
    sent: Vec<IntCounter>,
    retries: Vec<IntCounter>,
    acked: Vec<IntCounter>,
    duration: Vec<Histogram>,
    inbox_messages: IntCounter,
    inbox_failures: IntCounter,
    dead_letters: Vec<IntCounter>,
    acks_ignored: IntCounter,
    signals_dropped: IntCounter,
}

impl DeliveryMetrics {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        let metrics = Self {
            sent: make.counters("exchange_deliveries_sent_total", "Deliveries sent.", "kind", &KINDS)?,
            retries: make.counters(
                "exchange_delivery_retries_total",
                "Deliveries sent again, hellos included.",
                "kind",
                &KINDS,
            )?,
            acked: make.counters(
                "exchange_deliveries_acked_total",
                "Deliveries acknowledged by their recipient.",
                "kind",
                &KINDS,
            )?,
            duration: make.histograms(
                "exchange_message_delivery_duration_seconds",
                "Time from the fold that made a delivery to its acknowledgement.",
                ("kind", &KINDS),
                &DELIVERY_S,
            )?,
            inbox_messages: make.counter("exchange_inbox_messages_total", "Inbox messages published.")?,
            inbox_failures: make.counter("exchange_inbox_failures_total", "Inbox messages the bus did not take.")?,
            dead_letters: make.counters(
                "exchange_dead_letters_total",
                "Deliveries given up.",
                "reason",
                &DeadLetterReason::ALL.map(DeadLetterReason::as_str),
            )?,
            acks_ignored: make.counter("exchange_acks_ignored_total", "Acknowledgements that could not be read.")?,
            signals_dropped: make.counter("exchange_signals_dropped_total", "Acks and hellos lost to a busy lane.")?,
        };
        Ok(metrics)
    }

    pub(crate) fn count_sent(&self, told: &Notification, is_repeat: bool) {
        let kind = labels::kind(told);
        self.sent[kind].inc();
        if is_repeat {
            self.retries[kind].inc();
        }
    }

    /// `waited` is absent for what an earlier owner of the lane sent.
    pub(crate) fn count_acked(&self, told: &Notification, waited: Option<Duration>) {
        let kind = labels::kind(told);
        self.acked[kind].inc();
        if let Some(waited) = waited {
            self.duration[kind].observe(waited.as_secs_f64());
        }
    }

    pub(crate) fn count_inbox_message(&self, is_published: bool) {
        if is_published { self.inbox_messages.inc() } else { self.inbox_failures.inc() }
    }

    pub(crate) fn count_dead_letter(&self, reason: DeadLetterReason) {
        self.dead_letters[reason as usize].inc();
    }

    pub(crate) fn count_ack_ignored(&self) {
        self.acks_ignored.inc();
    }

    pub(crate) fn count_signal_dropped(&self) {
        self.signals_dropped.inc();
    }
}
