use super::gauge_value;
use super::labels::{CloseReason, StreamKind, StreamResult};

telemetry::metrics! {
    /// Streams to agents.
    pub(crate) struct ServingMetrics {
        /// Open streams to agents.
        stream_connections: Gauge[transport: StreamKind] = "exchange_stream_connections";
        /// Streams ended, by reason.
        stream_closed: Counter[transport: StreamKind, reason: CloseReason] = "exchange_stream_closed_total";
        /// Deliveries handed to streams, by result; what was not sent comes again.
        stream_events: Counter[transport: StreamKind, result: StreamResult] = "exchange_stream_events_total";
        /// Agents that have at least one stream open to this gateway.
        agents_connected: Gauge = "exchange_agents_connected";
        /// Bus messages lost so far by subscribers of this process that did not keep up.
        bus_dropped: Gauge = "exchange_bus_dropped_messages";
    }
}

impl ServingMetrics {
    /// A stream began.
    pub(crate) fn stream_opened(&self, stream: StreamKind) {
        self.stream_connections.of(stream).inc();
    }

    /// A stream ended.
    pub(crate) fn stream_ended(&self, stream: StreamKind, reason: CloseReason) {
        self.stream_connections.of(stream).dec();
        self.stream_closed.of(stream, reason).inc();
    }

    /// Deliveries were handed to a stream, or could not be.
    pub(crate) fn delivered(&self, stream: StreamKind, result: StreamResult, count: usize) {
        self.stream_events.of(stream, result).inc_by(count as u64);
    }

    /// So many agents have a stream open.
    pub(crate) fn connected(&self, count: usize) {
        self.agents_connected.set(gauge_value(count));
    }

    /// So many bus messages were lost by slow subscribers.
    pub(crate) fn bus_dropped(&self, count: u64) {
        self.bus_dropped.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
