use prometheus::{Error, IntCounter, IntGauge};
use telemetry::metrics::Maker;

use super::gauge_value;
use super::labels::{CloseReason, StreamKind, StreamResult};

/// Streams to agents.
pub(crate) struct ServingMetrics {
    stream_connections: Vec<IntGauge>,
    stream_closed: Vec<[IntCounter; CloseReason::ALL.len()]>,
    stream_events: Vec<[IntCounter; StreamResult::ALL.len()]>,
    agents_connected: IntGauge,
    bus_dropped: IntGauge,
}

impl ServingMetrics {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        let kinds = StreamKind::ALL.map(StreamKind::as_str);
        let closed =
            make.counter_vec("exchange_stream_closed_total", "Streams ended, by reason.", &["transport", "reason"])?;
        let events = make.counter_vec(
            "exchange_stream_events_total",
            "Deliveries handed to streams, by result; what was not sent comes again.",
            &["transport", "result"],
        )?;
        let closed_by = |kind| CloseReason::ALL.map(|reason| closed.with_label_values(&[kind, reason.as_str()]));
        let events_by = |kind| StreamResult::ALL.map(|result| events.with_label_values(&[kind, result.as_str()]));
        Ok(Self {
            stream_connections: make.gauges(
                "exchange_stream_connections",
                "Open streams to agents.",
                "transport",
                &kinds,
            )?,
            stream_closed: kinds.into_iter().map(closed_by).collect(),
            stream_events: kinds.into_iter().map(events_by).collect(),
            agents_connected: make
                .gauge("exchange_agents_connected", "Agents that have at least one stream open to this gateway.")?,
            bus_dropped: make.gauge(
                "exchange_bus_dropped_messages",
                "Bus messages lost so far by subscribers of this process that did not keep up.",
            )?,
        })
    }

    /// A stream began.
    pub(crate) fn stream_opened(&self, stream: StreamKind) {
        self.stream_connections[stream as usize].inc();
    }

    /// A stream ended.
    pub(crate) fn stream_ended(&self, stream: StreamKind, reason: CloseReason) {
        self.stream_connections[stream as usize].dec();
        self.stream_closed[stream as usize][reason as usize].inc();
    }

    /// Deliveries were handed to a stream, or could not be.
    pub(crate) fn delivered(&self, stream: StreamKind, result: StreamResult, count: usize) {
        self.stream_events[stream as usize][result as usize].inc_by(count as u64);
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
