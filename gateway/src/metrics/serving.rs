use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec, IntGauge, IntGaugeVec};

use super::labels::{CloseReason, StreamKind, StreamResult};
use super::{LATENCY_S, Maker};

/// HTTP requests and streams to agents.
pub(crate) struct ServingMetrics {
    http_duration: HistogramVec,
    http_in_flight: IntGaugeVec,
    stream_connections: IntGaugeVec,
    stream_closed: IntCounterVec,
    stream_events: IntCounterVec,
    bus_dropped: IntGauge,
}

impl ServingMetrics {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            http_duration: make.histograms(
                "http_server_request_duration_seconds",
                "Time to answer an HTTP request.",
                &["http_request_method", "http_route", "http_response_status_code"],
                &LATENCY_S,
            )?,
            http_in_flight: make.gauges(
                "exchange_http_requests_in_flight",
                "HTTP requests being answered.",
                &["http_route"],
            )?,
            stream_connections: make.gauges(
                "exchange_stream_connections",
                "Open streams to agents.",
                &["transport"],
            )?,
            stream_closed: make.counters(
                "exchange_stream_closed_total",
                "Streams ended, by reason.",
                &["transport", "reason"],
            )?,
            stream_events: make.counters(
                "exchange_stream_events_total",
                "Deliveries handed to streams, by result.",
                &["transport", "result"],
            )?,
            bus_dropped: make.gauge(
                "exchange_bus_dropped_messages",
                "Bus messages lost so far by subscribers of this process that did not keep up.",
            )?,
        };
        metrics.begin_at_zero();
        Ok(metrics)
    }

    /// A request is being answered.
    pub(crate) fn http_began(&self, route: &str) {
        self.http_in_flight.with_label_values(&[route]).inc();
    }

    /// A request was answered.
    pub(crate) fn http_ended(&self, method: &str, route: &str, status: u16, time: Duration) {
        self.http_in_flight.with_label_values(&[route]).dec();
        self.http_duration.with_label_values(&[method, route, &status.to_string()]).observe(time.as_secs_f64());
    }

    /// A stream began.
    pub(crate) fn stream_opened(&self, stream: StreamKind) {
        self.stream_connections.with_label_values(&[stream.as_str()]).inc();
    }

    /// A stream ended.
    pub(crate) fn stream_ended(&self, stream: StreamKind, reason: CloseReason) {
        self.stream_connections.with_label_values(&[stream.as_str()]).dec();
        self.stream_closed.with_label_values(&[stream.as_str(), reason.as_str()]).inc();
    }

    /// Deliveries were handed to a stream, or could not be.
    pub(crate) fn delivered(&self, stream: StreamKind, result: StreamResult, count: usize) {
        self.stream_events.with_label_values(&[stream.as_str(), result.as_str()]).inc_by(count as u64);
    }

    /// So many bus messages were lost by slow subscribers.
    pub(crate) fn bus_dropped(&self, count: u64) {
        self.bus_dropped.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    fn begin_at_zero(&self) {
        for stream in StreamKind::ALL {
            self.stream_connections.with_label_values(&[stream.as_str()]).set(0);
            for reason in CloseReason::ALL {
                self.stream_closed.with_label_values(&[stream.as_str(), reason.as_str()]);
            }
            for result in StreamResult::ALL {
                self.stream_events.with_label_values(&[stream.as_str(), result.as_str()]);
            }
        }
    }
}
