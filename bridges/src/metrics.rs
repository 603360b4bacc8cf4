//! Calls of tools, counted for Prometheus. Every label is a closed set.

use std::time::Duration;

use crate::a2a::request::METHODS;
use crate::tools::TOOLS;

/// Bounds of the time of a call, in seconds: an act takes milliseconds, a wait for news up to 50 s.
const DURATION_BUCKETS: [f64; 10] = [0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0, 60.0];

/// Over what a tool was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ForeignProtocol {
    /// The Model Context Protocol.
    Mcp,
    /// A NATS service.
    Nats,
    /// The Agent2Agent protocol.
    A2a,
}

fn operations() -> Vec<&'static str> {
    TOOLS.iter().map(|tool| tool.name).chain(METHODS).collect()
}

telemetry::metrics! {
    /// The metrics of a bridge. Cheap to clone.
    pub struct BridgeMetrics {
        /// Calls of tools and methods by protocol, name and how they ended.
        requests: Counter[protocol: ForeignProtocol, operation: &'static str = operations(), result: &'static str = ["ok", "refused"]] = "exchange_bridge_requests_total";
        /// Time of calls of tools and methods, waits for news included, streams up to their first event.
        durations: Histogram(&DURATION_BUCKETS)[protocol: ForeignProtocol] = "exchange_bridge_request_seconds";
        /// Agents that are served.
        participants: Gauge = "exchange_bridge_participants";
        /// Deliveries that were forgotten before a client asked for them.
        lost: Counter = "exchange_bridge_items_lost_total";
    }
}

impl BridgeMetrics {
    /// Counts a call.
    pub fn called(&self, over: ForeignProtocol, tool: &'static str, is_ok: bool, took: Duration) {
        let result = if is_ok { "ok" } else { "refused" };
        self.requests.of(over, tool, result).inc();
        self.durations.of(over).observe(took.as_secs_f64());
    }

    /// Says how many agents are served, and how many deliveries were forgotten since this was last said.
    pub fn tell(&self, participants: usize, lost: u64) {
        self.participants.set(i64::try_from(participants).unwrap_or(i64::MAX));
        self.lost.inc_by(lost);
    }
}
