//! What became of spans.

use prometheus::{Error, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

/// Counts of the spans that were to leave this process. Clones share them, so that they can be kept before there is a
/// registry.
#[derive(Debug, Clone)]
pub struct SpanCounts {
    by_result: IntCounterVec,
    /// Taken by the collector.
    pub exported: IntCounter,
    /// Not queued, because the queue was full or closed; or left in it at the end.
    pub dropped: IntCounter,
    /// Lost with a batch that the collector did not take.
    pub failed: IntCounter,
    /// Waiting or on their way.
    pub queued: IntGauge,
}

impl SpanCounts {
    /// All of them at 0.
    ///
    /// # Errors
    /// None: the names are names.
    pub fn try_new() -> Result<Self, Error> {
        let opts = Opts::new("exchange_trace_spans_total", "Spans that were kept, by what became of them.");
        let by_result = IntCounterVec::new(opts, &["result"])?;
        let [exported, dropped, failed] =
            ["exported", "dropped", "failed"].map(|result| by_result.with_label_values(&[result]));
        let queued = IntGauge::new("exchange_trace_queue_spans", "Spans that wait for the collector.")?;
        Ok(Self { by_result, exported, dropped, failed, queued })
    }

    /// Shows them in a registry.
    ///
    /// # Errors
    /// [`Error::AlreadyReg`] when it has them.
    pub fn register(&self, registry: &Registry) -> Result<(), Error> {
        registry.register(Box::new(self.by_result.clone()))?;
        registry.register(Box::new(self.queued.clone()))
    }
}
