//! What a process's bus does: the connections to NATS, and what is stored through them.

use std::sync::Arc;
use std::time::Duration;

use ::bus::Bus;
use ::bus::nats::{NatsEvent, NatsStatus};
use ::bus::observe::{self, PublishObserver, PublishResult, Stream};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Error, Histogram, IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use telemetry::metrics::{LATENCY_S, Maker};

/// Where messages go, as seen from here.
const DIRECTIONS: [&str; 2] = ["in", "out"];

/// Registers what the connections behind `status` do.
pub fn register_nats(registry: &Registry, status: Arc<NatsStatus>) -> Result<(), Error> {
    registry.register(Box::new(Connections::new(status)?))
}

/// The same bus; what is stored through it is counted.
pub fn counted(bus: Bus, registry: &Registry) -> Result<Bus, Error> {
    Ok(observe::observed(bus, Arc::new(Stored::new(registry)?)))
}

/// Counters of the bus, shown as they are when somebody reads.
struct Connections {
    status: Arc<NatsStatus>,
    up: IntGauge,
    connects: IntCounter,
    events: IntCounterVec,
    messages: IntCounterVec,
    bytes: IntCounterVec,
}

impl Connections {
    fn new(status: Arc<NatsStatus>) -> Result<Self, Error> {
        let counters = |name: &str, help: &str, label: &str| IntCounterVec::new(Opts::new(name, help), &[label]);
        let events = "What the NATS client told; slow_consumer means that messages were lost.";
        Ok(Self {
            status,
            up: IntGauge::new("exchange_nats_up", "Whether every connection to NATS stands.")?,
            connects: IntCounter::new("exchange_nats_connects_total", "Connections made to NATS, again included.")?,
            events: counters("exchange_nats_events_total", events, "event")?,
            messages: counters("exchange_nats_messages_total", "NATS messages, by direction.", "direction")?,
            bytes: counters("exchange_nats_bytes_total", "Bytes of NATS messages, by direction.", "direction")?,
        })
    }

    fn set(&self) {
        let now = self.status.read();
        self.up.set(i64::from(now.is_up()));
        raise(&self.connects, now.connects);
        for event in NatsEvent::ALL {
            raise(&self.events.with_label_values(&[event.as_str()]), now.count(*event));
        }
        for (direction, messages, bytes) in
            [(DIRECTIONS[0], now.in_messages, now.in_bytes), (DIRECTIONS[1], now.out_messages, now.out_bytes)]
        {
            raise(&self.messages.with_label_values(&[direction]), messages);
            raise(&self.bytes.with_label_values(&[direction]), bytes);
        }
    }

    fn each(&self) -> [&dyn Collector; 5] {
        [&self.up, &self.connects, &self.events, &self.messages, &self.bytes]
    }
}

/// Lifts a counter to what was counted elsewhere; two readers at once lift it once too often at most, until the next read.
fn raise(counter: &IntCounter, to: u64) {
    counter.inc_by(to.saturating_sub(counter.get()));
}

impl Collector for Connections {
    fn desc(&self) -> Vec<&Desc> {
        self.each().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.set();
        self.each().into_iter().flat_map(Collector::collect).collect()
    }
}

/// What became of publications.
struct Stored {
    /// By stream, then by result.
    published: Vec<Vec<IntCounter>>,
    durations: Vec<Histogram>,
    in_flight: IntGauge,
}

impl Stored {
    fn new(registry: &Registry) -> Result<Self, Error> {
        let make = Maker(registry);
        let streams = Stream::ALL.map(Stream::as_str);
        let help = "Records of the log and keys of the register that were stored, by result.";
        let published = make.counter_vec("exchange_jetstream_publish_total", help, &["stream", "result"])?;
        let of = |stream: &str| {
            PublishResult::ALL.iter().map(|result| published.with_label_values(&[stream, result.as_str()])).collect()
        };
        Ok(Self {
            published: streams.iter().map(|stream| of(stream)).collect(),
            durations: make.histograms(
                "exchange_jetstream_publish_duration_seconds",
                "Time until storing was acknowledged, or given up.",
                ("stream", &streams),
                &LATENCY_S,
            )?,
            in_flight: make.gauge("exchange_jetstream_publishes_in_flight", "Publications not acknowledged yet.")?,
        })
    }
}

impl PublishObserver for Stored {
    fn publishing(&self, _: Stream) {
        self.in_flight.inc();
    }

    fn published(&self, stream: Stream, result: PublishResult, took: Duration) {
        self.in_flight.dec();
        self.published[stream as usize][result as usize].inc();
        self.durations[stream as usize].observe(took.as_secs_f64());
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
