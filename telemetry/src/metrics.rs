//! Making metrics, and those every process has.

pub mod declare;
pub mod process;
pub mod runtime;

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::{Error, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder};

pub use process::Build;

/// Latency buckets in seconds for what happens inside the exchange: from 50 µs to 2.5 s.
pub const LATENCY_S: [f64; 15] =
    [5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];
/// Media type of [`to_text`]: Prometheus 3 refuses to guess.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How long one scrape serves whoever asks.
pub const SCRAPE_LIFETIME: Duration = Duration::from_secs(1);

/// Everything a registry holds, in Prometheus's text format.
///
/// # Errors
/// [`Error`] when a collector gives what cannot be written, which is a programmer's fault.
pub fn to_text(registry: &Registry) -> Result<String, Error> {
    TextEncoder::new().encode_to_string(&registry.gather())
}

/// The text of a registry for whoever asks without a token: written once in [`SCRAPE_LIFETIME`], however many ask.
#[derive(Debug, Default)]
pub struct ScrapeCache(Arc<tokio::sync::Mutex<Option<DatedText>>>);

/// A text, and when it was written.
type DatedText = (Instant, Arc<str>);

impl ScrapeCache {
    /// The text of the last second, or what `write` gives, on a thread of its own: thousands of series take milliseconds, in
    /// which messages should not have to wait.
    ///
    /// # Errors
    /// What `write` gives.
    pub async fn text(
        &self,
        write: impl FnOnce() -> Result<String, Error> + Send + 'static,
    ) -> Result<Arc<str>, Error> {
        let mut kept = Arc::clone(&self.0).lock_owned().await;
        if let Some((_, text)) = kept.as_ref().filter(|(at, _)| at.elapsed() < SCRAPE_LIFETIME) {
            return Ok(Arc::clone(text));
        }
        // It goes on when its caller is gone: the next one is given its text.
        let writing = tokio::task::spawn_blocking(move || {
            let text: Arc<str> = write()?.into();
            *kept = Some((Instant::now(), Arc::clone(&text)));
            Ok(text)
        });
        writing.await.unwrap_or_else(|error| Err(Error::Msg(error.to_string())))
    }
}

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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn every_metric_is_written_with_its_help_and_type() {
        let registry = Registry::new();
        let counter = IntCounter::new("things_total", "Things.").unwrap();
        registry.register(Box::new(counter.clone())).unwrap();
        counter.inc_by(3);
        let text = to_text(&registry).unwrap();
        assert_eq!(text, "# HELP things_total Things.\n# TYPE things_total counter\nthings_total 3\n");
    }

    #[tokio::test]
    async fn however_many_scrape_the_text_is_written_once_a_second() {
        let (cache, written) = (ScrapeCache::default(), Arc::new(AtomicU64::new(0)));
        let scrape = || {
            let written = Arc::clone(&written);
            cache.text(move || Ok(written.fetch_add(1, Ordering::Relaxed).to_string()))
        };
        let began = Instant::now();
        for _ in 0..50 {
            let (one, other) = tokio::join!(scrape(), scrape());
            assert_eq!(one.unwrap(), other.unwrap());
        }
        assert!(written.load(Ordering::Relaxed) <= 1 + began.elapsed().as_secs());
        tokio::time::sleep(SCRAPE_LIFETIME).await;
        let before = written.load(Ordering::Relaxed);
        assert_eq!(*scrape().await.unwrap(), *before.to_string(), "what is older is written anew");
    }
}
