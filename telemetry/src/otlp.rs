//! Spans leave the process over OTLP (HTTP, protobuf), in batches, from a thread of their own.
//!
//! What is configured, by the variables every OpenTelemetry program knows, is in [`OtlpConfig`]. The queue is bounded:
//! a collector that is slow or away costs spans, never a message and never more than [`FINISH_MAX`] at the end. What
//! became of every span is in [`SpanCounts`].

mod config;
mod convert;
mod export;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry_otlp::{Protocol, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SpanProcessor};
use reqwest::Url;
use reqwest::blocking::Client;
use schemas::text::is_loopback;

pub use config::OtlpConfig;
use export::Counting;

use crate::metrics::SpanCounts;
use crate::trace::{Span, Spans};

/// Spans that wait at most: five seconds of 800 spans each, and about 4 MiB.
pub const QUEUE_MAX: usize = 4_096;
/// Spans sent at once.
const BATCH_MAX: usize = 512;
/// How long a span waits for others.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// How long a collector may take for a batch.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for what is queued when the process ends.
pub const FINISH_MAX: Duration = Duration::from_millis(1_500);

/// Why spans cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// An environment variable says what cannot be done; correct it.
    #[error("{variable}: {problem}")]
    Variable {
        /// Its name.
        variable: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The exporter cannot be set up.
    #[error("spans cannot be exported: {0}")]
    Exporter(String),
}

/// Exports spans until [`Otlp::finish`].
pub struct Otlp {
    processor: BatchSpanProcessor,
    queue: Arc<Queue>,
    scope: InstrumentationScope,
}

/// How many spans are on their way, and what became of the others.
#[derive(Debug)]
struct Queue {
    counts: SpanCounts,
    waiting: AtomicUsize,
    is_closed: AtomicBool,
}

impl Otlp {
    /// Starts the exporting thread. The collector need not be there.
    ///
    /// # Errors
    /// [`OtlpError::Exporter`].
    pub fn start(config: &OtlpConfig, counts: SpanCounts) -> Result<Self, OtlpError> {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client_for(&config.endpoint)?)
            .with_endpoint(config.endpoint.as_str())
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(EXPORT_TIMEOUT)
            // Another attempt would hold up the spans behind it; they tell as much.
            .with_retry_policy(RetryPolicy::disabled())
            .build()
            .map_err(|error| OtlpError::Exporter(error.to_string()))?;
        let queue = Arc::new(Queue { counts, waiting: AtomicUsize::new(0), is_closed: AtomicBool::new(false) });
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE_MAX)
            .with_max_export_batch_size(BATCH_MAX)
            .with_scheduled_delay(BATCH_DELAY)
            .build();
        let counting = Counting::new(exporter, Arc::clone(&queue));
        let mut processor = BatchSpanProcessor::builder(counting).with_batch_config(batches).build();
        processor.set_resource(&config.resource());
        let scope = InstrumentationScope::builder("llmx").with_version(env!("CARGO_PKG_VERSION")).build();
        Ok(Self { processor, queue, scope })
    }

    /// Sends what is queued, for at most [`FINISH_MAX`]; what is left then is counted as dropped. Blocks: not for a thread
    /// that runs tasks. Spans taken later are dropped.
    pub fn finish(&self) {
        if self.queue.is_closed.swap(true, Ordering::Relaxed) {
            return;
        }
        // That it took too long, or failed, is counted.
        let _ = self.processor.shutdown_with_timeout(FINISH_MAX);
        let left = self.queue.waiting.load(Ordering::Relaxed);
        self.queue.counts.dropped.inc_by(left as u64);
    }
}

/// A client of the collector, made outside of the threads that run tasks: it blocks.
fn client_for(endpoint: &str) -> Result<Client, OtlpError> {
    let is_own = Url::parse(endpoint).is_ok_and(|url| url.host_str().is_some_and(is_loopback));
    let builder = Client::builder().timeout(EXPORT_TIMEOUT);
    let builder = if is_own { builder.no_proxy() } else { builder };
    let made = std::thread::spawn(|| builder.build()).join();
    made.map_err(|_| OtlpError::Exporter("making its HTTP client panicked".to_owned()))?
        .map_err(|error| OtlpError::Exporter(error.to_string()))
}

impl Spans for Otlp {
    fn take(&self, span: Span) {
        if self.queue.enter() {
            self.processor.on_end(convert::span_data(span, &self.scope));
        } else {
            self.queue.counts.dropped.inc();
        }
    }
}

impl Queue {
    /// Takes a place, if one is left. What has one fits the exporter's own queue, which holds as many.
    fn enter(&self) -> bool {
        let next = |waiting: usize| (waiting < QUEUE_MAX).then_some(waiting + 1);
        let is_open = !self.is_closed.load(Ordering::Relaxed);
        let entered = is_open && self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok();
        if entered {
            self.counts.queued.inc();
        }
        entered
    }

    /// A batch has left, however it went.
    fn leave(&self, spans: usize) {
        self.waiting.fetch_sub(spans, Ordering::Relaxed);
        self.counts.queued.sub(i64::try_from(spans).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests;
