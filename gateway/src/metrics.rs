//! Every metric a gateway sets. Labels are closed sets, and every series is there from the start: neither agents nor
//! what they send make a further one (`tests/gateway/series.rs`). The one label that changes is the revision of the
//! policies in force, which only an administrator's changes move; the one before goes.
//!
//! What has to be counted once per process whatever runs in it (the bus, the runtime) is not here.

mod access;
mod control;
mod http;
mod messages;
mod serving;
mod transactions;

use prometheus::Registry;

use access::AccessMetrics;
pub(crate) use access::{Limiter, RefreshResult};
use control::ControlMetrics;
pub(crate) use control::{Document, Invited, Rule};
use http::HttpMetrics;
use messages::MessageMetrics;
pub(crate) use messages::{ShedReason, Stage};
use serving::ServingMetrics;
pub(crate) use serving::{AckResult, CloseReason, StreamKind, StreamResult};
use transactions::TransactionMetrics;

/// Latency buckets in seconds from 5 µs up because admission takes microseconds.
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
    /// Documents of the control plane.
    pub(crate) control: ControlMetrics,
    /// HTTP requests.
    pub(crate) http: HttpMetrics,
    /// Streams to agents.
    pub(crate) serving: ServingMetrics,
    /// Transactions of Agora.
    pub(crate) transactions: TransactionMetrics,
}

impl GatewayMetrics {
    /// Registers every metric, those of HTTP for the given paths and their methods.
    ///
    /// # Errors
    /// [`prometheus::Error`] when the registry holds one of them already.
    pub(crate) fn for_paths(
        registry: &Registry,
        paths: &[(&'static str, &'static [&'static str])],
    ) -> Result<Self, prometheus::Error> {
        Ok(Self {
            registry: registry.clone(),
            messages: MessageMetrics::try_new(registry)?,
            access: AccessMetrics::try_new(registry)?,
            control: ControlMetrics::try_new(registry)?,
            http: HttpMetrics::try_new(registry, paths)?,
            serving: ServingMetrics::try_new(registry)?,
            transactions: TransactionMetrics::try_new(registry)?,
        })
    }

    /// The registry everything is registered in: what `/metrics` prints.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }
}

/// A count as a gauge takes it.
pub(crate) fn gauge_value(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Whether something was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
enum Answer {
    Accepted,
    Rejected,
}
