//! What telling costs: whole rounds with and without metrics read and traces exported.
//!
//! Metrics are always counted; what can be left out is that somebody reads them, and traces. So "with" is: one negotiation in a
//! hundred traced by gateway, engine and every agent, its spans exported over OTLP to a collector in this process, and
//! `/metrics` scraped once a second. "Without" is neither.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::routing::post;
use bus::Bus;
use bytes::Bytes;
use telemetry::Tracer;
use telemetry::metrics::SpanCounts;
use telemetry::otlp::{Otlp, OtlpConfig};

use super::agora::LocalService;
use super::rounds::{self, BenchError, ClosedLoop, Rig, Way, stuck};
use super::usage::own_cpu_us;

/// Share of negotiations that is traced.
const RATIO: f64 = 0.01;
/// Gap between two scrapes.
const SCRAPE_PERIOD: Duration = Duration::from_secs(1);

/// What was measured.
#[derive(Debug, Default)]
pub struct Overhead {
    /// Rounds per second without and with, in the order of the runs.
    pub rounds_per_s: [Vec<f64>; 2],
    /// Processor time of each round without and with, the collector's included, in microseconds.
    pub cpu_us: [Vec<f64>; 2],
    /// Spans the collector took.
    pub spans: u64,
    /// Spans that were lost on their way.
    pub lost: u64,
    /// Bytes of one scrape.
    pub scrape_bytes: usize,
}

impl Overhead {
    /// Median of the runs without and with.
    pub fn rounds_per_s(&self) -> [f64; 2] {
        self.rounds_per_s.each_ref().map(|runs| median(runs))
    }

    /// Median processor time of a round without and with, in microseconds: what is left of the difference when other
    /// programs use the machine as well.
    pub fn cpu_us(&self) -> [f64; 2] {
        self.cpu_us.each_ref().map(|runs| median(runs))
    }
}

/// Runs `pairs` of closed loops, one without and one with, in alternating order so that what drifts meets both alike.
///
/// # Errors
/// [`BenchError`].
pub async fn measure(
    bus: impl Fn() -> Bus,
    (contractors, open): (u32, usize),
    pairs: usize,
    duration: Duration,
) -> Result<Overhead, BenchError> {
    let mut overhead = Overhead::default();
    // The first run of a process is slower than all others, and would count against whoever has it.
    rounds::closed_loop(bus(), contractors, open, duration / 2, Way::Bus, "warm").await?;
    for pair in 0..pairs {
        for is_with in [pair % 2 == 1, pair % 2 == 0] {
            let (run, before) = (format!("pair{pair}"), own_cpu_us());
            let ours = if is_with {
                told(bus(), (contractors, open), duration, &run, &mut overhead).await?
            } else {
                rounds::closed_loop(bus(), contractors, open, duration, Way::Bus, &run).await?
            };
            let (rounds_per_s, cpu_us) = (ours.rounds_per_s(), (own_cpu_us() - before) / ours.rounds.max(1) as f64);
            tracing::info!(pair, is_with, rounds_per_s, cpu_us, "a run");
            overhead.rounds_per_s[usize::from(is_with)].push(rounds_per_s);
            overhead.cpu_us[usize::from(is_with)].push(cpu_us);
        }
    }
    Ok(overhead)
}

/// One run with everything told.
async fn told(
    bus: Bus,
    (contractors, open): (u32, usize),
    duration: Duration,
    run: &str,
    overhead: &mut Overhead,
) -> Result<ClosedLoop, BenchError> {
    // It reads what it is sent, a few batches a second at most, and keeps none of it.
    let collector = LocalService::start("/v1/traces", post(|_: Bytes| async {})).await.map_err(faulty)?;
    let counts = SpanCounts::try_new().map_err(faulty)?;
    let config = OtlpConfig::read("llmx-bench", run, |name| match name {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" => Some(collector.url.clone()),
        _ => None,
    });
    let config = config.map_err(faulty)?.ok_or_else(|| faulty("no collector"))?;
    let exporter = Arc::new(Otlp::start(&config, counts.clone()).map_err(faulty)?);
    let tracer = Tracer::new(RATIO, Arc::clone(&exporter) as _);
    let rig = Rig::start(bus, contractors, run, tracer).await?;
    let largest = Arc::new(AtomicUsize::new(0));
    let scraping = tokio::spawn(scrape(format!("{}/metrics", rig.exchange.url()), Arc::clone(&largest)));
    let ours = rig.closed_loop(open, duration, Way::Bus).await;
    scraping.abort();
    let finished = tokio::task::spawn_blocking(move || exporter.finish()).await;
    finished.map_err(faulty)?;
    overhead.scrape_bytes = overhead.scrape_bytes.max(largest.load(Ordering::Relaxed));
    overhead.spans += counts.exported.get();
    overhead.lost += counts.dropped.get() + counts.failed.get();
    ours
}

fn faulty(error: impl std::fmt::Display) -> BenchError {
    stuck(format!("telemetry: {error}"))
}

/// Scrapes a gateway until it is aborted, and remembers the largest answer.
async fn scrape(url: String, largest: Arc<AtomicUsize>) {
    let client = reqwest::Client::builder().no_proxy().timeout(SCRAPE_PERIOD).build().unwrap_or_default();
    let mut ticks = tokio::time::interval(SCRAPE_PERIOD);
    loop {
        ticks.tick().await;
        if let Ok(answer) = client.get(&url).send().await
            && let Ok(body) = answer.bytes().await
        {
            largest.fetch_max(body.len(), Ordering::Relaxed);
        }
    }
}

/// The middle of the values; 0 of none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_not_moved_by_one_bad_run() {
        assert!((median(&[3.0, 1.0, 100.0]) - 3.0).abs() < f64::EPSILON);
        assert!((median(&[4.0, 2.0]) - 3.0).abs() < f64::EPSILON);
        assert!(median(&[]).abs() < f64::EPSILON);
    }
}
