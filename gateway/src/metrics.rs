//! Every metric a gateway sets. Labels are closed sets; those whose combinations are few start at 0.

mod access;
mod labels;
mod messages;
mod serving;

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use access::AccessMetrics;
pub(crate) use labels::{CloseReason, Limiter, RefreshResult, Stage, StreamKind, StreamResult};
use messages::MessageMetrics;
use serving::ServingMetrics;

/// Latency buckets in seconds (METRICS.md, list L), from 5 µs up because admission takes microseconds.
const LATENCY_S: [f64; 18] = [
    0.000_005, 0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05,
    0.1, 0.25, 0.5, 1.0, 2.5,
];

/// The gateway's metrics.
pub struct GatewayMetrics {
    registry: Registry,
    /// Messages on their way through admission.
    pub(crate) messages: MessageMetrics,
    /// Tokens, keys and rates.
    pub(crate) access: AccessMetrics,
    /// HTTP requests and streams.
    pub(crate) serving: ServingMetrics,
}

impl GatewayMetrics {
    /// Registers every metric.
    ///
    /// # Errors
    /// [`prometheus::Error`] when the registry holds one of them already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let make = Maker(registry);
        Ok(Self {
            registry: registry.clone(),
            messages: MessageMetrics::new(&make)?,
            access: AccessMetrics::new(&make)?,
            serving: ServingMetrics::new(&make)?,
        })
    }

    /// The registry everything is registered in: what `/metrics` prints.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }
}

/// Creates and registers in one go.
struct Maker<'a>(&'a Registry);

impl Maker<'_> {
    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
        let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
        let metric = IntGaugeVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        let metric = IntGauge::new(name, help)?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, prometheus::Error> {
        let metric = Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Result<HistogramVec, prometheus::Error> {
        let metric = HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }
}

/// A count as a gauge takes it.
fn gauge_value(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
