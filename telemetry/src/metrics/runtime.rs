//! The runtime under load: how many tasks it has, how busy its workers are, how late it wakes what waits.

use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Error, Registry};
use tokio::runtime::{Handle, RuntimeMetrics};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::LATENCY_S;

/// How often a timer is set to see how late it fires.
const PERIOD: Duration = Duration::from_millis(100);
/// Periods over which the share of busy time is measured: one second.
const PERIODS_MEASURED: u32 = 10;

/// Registers metrics of the runtime this is called on, and watches it until the registry is dropped.
///
/// # Errors
/// [`Error::AlreadyReg`] when the registry has them.
///
/// # Panics
/// Outside a runtime.
pub fn register(registry: &Registry) -> Result<(), Error> {
    let shown = Registry::new();
    let gauges = Gauges::try_new(&shown)?;
    let watch = tokio::spawn(gauges.clone().drive(Handle::current().metrics())).abort_handle();
    registry.register(Box::new(Runtime { gauges, shown, watch }))
}

crate::metrics! {
    /// The runtime.
    struct Gauges {
        /// Threads that run tasks.
        workers: Gauge = "exchange_tokio_workers";
        /// Tasks that have not ended.
        alive_tasks: Gauge = "exchange_tokio_alive_tasks";
        /// Tasks that are ready and that no worker has taken.
        global_queue_depth: Gauge = "exchange_tokio_global_queue_depth";
        /// Share of the workers' time that tasks used in the last second, 0 to 1.
        busy_ratio: Ratio = "exchange_tokio_busy_ratio";
        /// How late a timer of 100 ms fires.
        lag: Histogram(LATENCY_S) = "exchange_event_loop_lag_seconds";
    }
}

/// The gauges, and the task that sets them as long as somebody can read them.
struct Runtime {
    gauges: Gauges,
    shown: Registry,
    watch: AbortHandle,
}

impl Gauges {
    fn set(&self, metrics: &RuntimeMetrics) {
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.workers.set(gauge(metrics.num_workers()));
        self.alive_tasks.set(gauge(metrics.num_alive_tasks()));
        self.global_queue_depth.set(gauge(metrics.global_queue_depth()));
    }

    /// Never ends.
    async fn drive(self, metrics: RuntimeMetrics) {
        loop {
            let (since, busy) = (Instant::now(), total_busy_time(&metrics));
            for _ in 0..PERIODS_MEASURED {
                let due = Instant::now() + PERIOD;
                tokio::time::sleep_until(due).await;
                self.lag.observe(due.elapsed().as_secs_f64());
                self.set(&metrics);
            }
            self.busy_ratio.set(share(since.elapsed(), total_busy_time(&metrics).saturating_sub(busy), &metrics));
        }
    }
}

/// Time all workers have spent in tasks so far.
fn total_busy_time(metrics: &RuntimeMetrics) -> Duration {
    (0..metrics.num_workers()).map(|worker| metrics.worker_total_busy_duration(worker)).sum()
}

fn share(elapsed: Duration, busy: Duration, metrics: &RuntimeMetrics) -> f64 {
    let workers = u32::try_from(metrics.num_workers()).unwrap_or(u32::MAX);
    let available = elapsed.saturating_mul(workers).as_secs_f64();
    if available > 0.0 { (busy.as_secs_f64() / available).min(1.0) } else { 0.0 }
}

impl Collector for Runtime {
    /// One stands for all, which are registered together.
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.workers.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.shown.gather()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(registry: &Registry, name: &str) -> f64 {
        let families = registry.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        family.get_metric()[0].get_gauge().get_value()
    }

    #[tokio::test(start_paused = true)]
    async fn the_runtime_is_watched_until_nobody_can_read_it() {
        let registry = Registry::new();
        register(&registry).unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!((value(&registry, "exchange_tokio_workers") - 1.0).abs() < f64::EPSILON);
        assert!(value(&registry, "exchange_tokio_alive_tasks") >= 1.0);
        let families = registry.gather();
        let lag = families.iter().find(|family| family.name() == "exchange_event_loop_lag_seconds").unwrap();
        assert!(lag.get_metric()[0].get_histogram().get_sample_count() >= 10);
        drop(registry);
        tokio::task::yield_now().await;
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_worker_that_never_rests_is_half_of_two() {
        let metrics = Handle::current().metrics();
        assert!((share(Duration::from_secs(1), Duration::from_secs(1), &metrics) - 0.5).abs() < 1e-9);
        assert!(share(Duration::ZERO, Duration::from_secs(1), &metrics).abs() < f64::EPSILON);
    }
}
