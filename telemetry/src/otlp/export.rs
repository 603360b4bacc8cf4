//! Counts what an exporter does, and says so when it cannot, now and then.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

use super::Queue;

/// Between two complaints about the same collector.
const COMPLAINT_GAP: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Counting<E> {
    inner: E,
    queue: Arc<Queue>,
    complained: Mutex<Option<Instant>>,
}

impl<E> Counting<E> {
    pub(super) const fn new(inner: E, queue: Arc<Queue>) -> Self {
        Self { inner, queue, complained: Mutex::new(None) }
    }

    /// Whether it is time to complain.
    fn complains_at(&self, now: Instant) -> bool {
        let mut last = self.complained.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| now.saturating_duration_since(last) >= COMPLAINT_GAP);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

impl<E: SpanExporter> SpanExporter for Counting<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.inner.export(batch).await;
        let counts = &self.queue.counts;
        match &result {
            Ok(()) => counts.exported.inc_by(spans as u64),
            Err(error) => {
                counts.failed.inc_by(spans as u64);
                if self.complains_at(Instant::now()) {
                    let lost = counts.failed.get();
                    tracing::warn!(%error, lost, "the collector does not take spans; check OTEL_EXPORTER_OTLP_ENDPOINT");
                }
            }
        }
        self.queue.leave(spans);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use super::*;
    use crate::metrics::SpanCounts;

    #[test]
    fn a_collector_that_stays_away_is_complained_about_once_a_minute() {
        let counts = SpanCounts::try_new().unwrap();
        let queue = Queue { counts, waiting: AtomicUsize::new(0), is_closed: AtomicBool::new(false) };
        let counting = Counting::new((), Arc::new(queue));
        let start = Instant::now();
        let times = (0..180).filter(|s| counting.complains_at(start + Duration::from_secs(*s))).count();
        assert_eq!(times, 3);
    }
}
