//! Where the spans of this process go, as the environment says.

use std::sync::{Arc, OnceLock};

use telemetry::Tracer;
use telemetry::metrics::SpanCounts;
use telemetry::otlp::{Otlp, OtlpConfig};

use super::Failure;

static TRACES: OnceLock<Traces> = OnceLock::new();
static COUNTS: OnceLock<SpanCounts> = OnceLock::new();

struct Traces {
    tracer: Tracer,
    exporter: Arc<Otlp>,
}

/// What traces are told of a process.
pub struct Traced<'a> {
    /// Its kind, such as `llmx-gateway`.
    pub service: &'static str,
    /// Its name among those of its kind; absent: host and process id.
    pub instance: Option<&'a str>,
}

/// Begins to export spans where the environment names a collector. Only the first start counts.
pub fn start(traced: &Traced<'_>) -> Result<(), Failure> {
    let instance = traced.instance.map_or_else(instance_of_this_run, str::to_owned);
    let read = OtlpConfig::read(traced.service, &instance, |name| std::env::var(name).ok());
    let Some(config) = read.map_err(Failure::configuration)? else { return Ok(()) };
    config.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let exporter = Arc::new(Otlp::start(&config, counts()?).map_err(Failure::configuration)?);
    let tracer = Tracer::new(config.ratio, Arc::clone(&exporter) as _);
    let _ = TRACES.set(Traces { tracer, exporter });
    Ok(())
}

/// The tracer of this process; off until one is started.
pub fn tracer() -> Tracer {
    TRACES.get().map(|traces| traces.tracer.clone()).unwrap_or_default()
}

/// Counts of this process's spans, at 0 while it is not traced.
pub fn counts() -> Result<SpanCounts, Failure> {
    match COUNTS.get() {
        Some(counts) => Ok(counts.clone()),
        None => {
            let counts = SpanCounts::try_new()?;
            Ok(COUNTS.get_or_init(|| counts).clone())
        }
    }
}

/// Sends what is left, for a bounded time. Blocks: for the end of `main`.
pub fn finish() {
    if let Some(traces) = TRACES.get() {
        traces.exporter.finish();
    }
}

fn instance_of_this_run() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = Some(host.trim()).filter(|host| !host.is_empty()).unwrap_or("localhost");
    format!("{host}-{}", std::process::id())
}
