//! What a process's bus does: the connections to NATS, and what is stored through them.

use std::sync::Arc;
use std::time::Duration;

use ::bus::Bus;
use ::bus::nats::{NatsEvent, NatsStatus};
use ::bus::observe::{self, PublishObserver, PublishResult, Stream};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Error, IntCounter, Registry};
use telemetry::metrics::LATENCY_S;

/// Registers what the connections behind `status` do.
pub fn register_nats(registry: &Registry, status: Arc<NatsStatus>) -> Result<(), Error> {
    registry.register(Box::new(ConnectionCollector::new(status)?))
}

/// The same bus; what is stored through it is counted.
pub fn counted(bus: Bus, registry: &Registry) -> Result<Bus, Error> {
    Ok(observe::observed(bus, Arc::new(Stored::try_new(registry)?)))
}

/// Where messages go, as seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
enum Direction {
    In,
    Out,
}

telemetry::metrics! {
    /// Counters of the connections.
    struct ConnectionMetrics {
        /// Whether every connection to NATS stands.
        up: Gauge = "exchange_nats_up";
        /// Connections made to NATS, again included.
        connects: Counter = "exchange_nats_connects_total";
        /// What the NATS client told; slow_consumer means that messages were lost.
        events: Counter[event: NatsEvent] = "exchange_nats_events_total";
        /// NATS messages, by direction.
        messages: Counter[direction: Direction] = "exchange_nats_messages_total";
        /// Bytes of NATS messages, by direction.
        bytes: Counter[direction: Direction] = "exchange_nats_bytes_total";
    }
}

/// Counters of the bus, shown as they are when somebody reads.
struct ConnectionCollector {
    status: Arc<NatsStatus>,
    metrics: ConnectionMetrics,
    /// Where they are registered: what is read is set first.
    shown: Registry,
}

impl ConnectionCollector {
    fn new(status: Arc<NatsStatus>) -> Result<Self, Error> {
        let shown = Registry::new();
        Ok(Self { status, metrics: ConnectionMetrics::try_new(&shown)?, shown })
    }

    fn set(&self) {
        let (now, metrics) = (self.status.read(), &self.metrics);
        metrics.up.set(i64::from(now.is_up()));
        raise(&metrics.connects, now.connects);
        for event in NatsEvent::ALL {
            raise(metrics.events.of(*event), now.count(*event));
        }
        for (direction, messages, bytes) in
            [(Direction::In, now.in_messages, now.in_bytes), (Direction::Out, now.out_messages, now.out_bytes)]
        {
            raise(metrics.messages.of(direction), messages);
            raise(metrics.bytes.of(direction), bytes);
        }
    }
}

/// Lifts a counter to what was counted elsewhere; two readers at once lift it once too often at most, until the next read.
fn raise(counter: &IntCounter, to: u64) {
    counter.inc_by(to.saturating_sub(counter.get()));
}

impl Collector for ConnectionCollector {
    /// One stands for all, which are registered together.
    fn desc(&self) -> Vec<&Desc> {
        self.metrics.up.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.set();
        self.shown.gather()
    }
}

telemetry::metrics! {
    /// What became of publications.
    struct Stored {
        /// Records of the log and keys of the register that were stored, by result.
        published: Counter[stream: Stream, result: PublishResult] = "exchange_jetstream_publish_total";
        /// Time until storing was acknowledged, or given up.
        durations: Histogram(LATENCY_S)[stream: Stream] = "exchange_jetstream_publish_duration_seconds";
        /// Publications not acknowledged yet.
        in_flight: Gauge = "exchange_jetstream_publishes_in_flight";
    }
}

impl PublishObserver for Stored {
    fn publishing(&self, _: Stream) {
        self.in_flight.inc();
    }

    fn published(&self, stream: Stream, result: PublishResult, took: Duration) {
        self.in_flight.dec();
        self.published.of(stream, result).inc();
        self.durations.of(stream).observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use ::bus::memory::{self, MemoryOptions};
    use bytes::Bytes;
    use schemas::Lane;
    use telemetry::metrics::to_text;

    use super::*;

    #[tokio::test]
    async fn what_is_stored_is_counted_by_stream_and_result() {
        let registry = Registry::new();
        let bus = counted(memory::open(MemoryOptions::default()), &registry).unwrap();
        bus.log.append(Lane(0), Bytes::from_static(b"{}")).await.unwrap();
        let text = to_text(&registry).unwrap();
        for line in [
            "exchange_jetstream_publish_total{result=\"ack\",stream=\"LLMX_LOG\"} 1\n",
            "exchange_jetstream_publish_total{result=\"conflict\",stream=\"LLMX_REGISTER\"} 0\n",
            "exchange_jetstream_publish_duration_seconds_count{stream=\"LLMX_LOG\"} 1\n",
            "exchange_jetstream_publishes_in_flight 0\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }

    #[test]
    fn connections_that_are_not_made_are_shown_as_down() {
        let registry = Registry::new();
        register_nats(&registry, Arc::new(NatsStatus::default())).unwrap();
        let text = to_text(&registry).unwrap();
        for line in [
            "exchange_nats_up 0\n",
            "exchange_nats_connects_total 0\n",
            "exchange_nats_events_total{event=\"slow_consumer\"} 0\n",
            "exchange_nats_messages_total{direction=\"in\"} 0\n",
            "exchange_nats_bytes_total{direction=\"out\"} 0\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }
}
