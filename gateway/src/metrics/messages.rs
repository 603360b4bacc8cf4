use std::time::Duration;

use prometheus::{Error, Histogram, IntCounter, IntGauge};
use schemas::{Act, Code};
use telemetry::metrics::Maker;

use super::labels::{KINDS, Shed, Stage, kind_index, stage_of};
use super::{LATENCY_S, gauge_value};
use crate::transport::Transport;

/// Size buckets in bytes: 128 to 128 KiB, by 4.
const SIZE_BYTES: [f64; 6] = [128.0, 512.0, 2048.0, 8192.0, 32_768.0, 131_072.0];

/// What becomes of messages. Every handle is resolved: this is the hot path.
pub(crate) struct MessageMetrics {
    messages: Vec<IntCounter>,
    rejections: Vec<IntCounter>,
    repeats: Vec<IntCounter>,
    stage_duration: Vec<Histogram>,
    ingest_duration: Vec<Histogram>,
    size: Vec<Histogram>,
    queue_depth: IntGauge,
    shed: Vec<IntCounter>,
}

impl MessageMetrics {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        let messages = make.counter_vec(
            "exchange_messages_total",
            "Messages that came in, by way, act and outcome.",
            &["transport", "kind", "outcome"],
        )?;
        let rejections = make.counter_vec(
            "exchange_message_rejections_total",
            "Messages refused, by stage and code.",
            &["stage", "reason"],
        )?;
        let mut handles = Vec::new();
        for transport in Transport::ALL {
            for kind in *KINDS {
                for outcome in ["accepted", "rejected"] {
                    handles.push(messages.with_label_values(&[transport.as_str(), kind, outcome]));
                }
            }
        }
        let rejection = |code: &Code| rejections.with_label_values(&[stage_of(*code).as_str(), code.as_str()]);
        let ways = Transport::ALL.map(Transport::as_str);
        Ok(Self {
            messages: handles,
            rejections: Code::ALL.iter().map(rejection).collect(),
            repeats: make.counters(
                "exchange_message_repeats_total",
                "Messages that this gateway had taken before, bytes and all: retries, which change nothing.",
                "transport",
                &ways,
            )?,
            stage_duration: make.histograms(
                "exchange_message_stage_duration_seconds",
                "Time a message spends in each stage of admission.",
                ("stage", &Stage::ALL.map(Stage::as_str)),
                &LATENCY_S,
            )?,
            ingest_duration: make.histograms(
                "exchange_message_ingest_duration_seconds",
                "Time from a message's arrival to its acknowledgement by the log.",
                ("transport", &ways),
                &LATENCY_S,
            )?,
            size: make.histograms(
                "exchange_message_size_bytes",
                "Size of messages, by act.",
                ("kind", &*KINDS),
                &SIZE_BYTES,
            )?,
            queue_depth: make.gauge("exchange_admission_queue_depth", "Messages waiting for the log.")?,
            shed: make.counters(
                "exchange_admission_shed_total",
                "Requests turned away for want of room, by what was full.",
                "reason",
                &Shed::ALL.map(Shed::as_str),
            )?,
        })
    }

    /// A message was answered.
    pub(crate) fn answered(&self, transport: Transport, act: Option<Act>, refused: Option<Code>) {
        let index = (transport as usize * KINDS.len() + kind_index(act)) * 2 + usize::from(refused.is_some());
        self.messages[index].inc();
        if let Some(code) = refused {
            self.rejections[code as usize].inc();
        }
    }

    /// A message came again.
    pub(crate) fn repeated(&self, transport: Transport) {
        self.repeats[transport as usize].inc();
    }

    /// A message passed a stage.
    pub(crate) fn passed(&self, stage: Stage, time: Duration) {
        self.stage_duration[stage as usize].observe(time.as_secs_f64());
    }

    /// A message was stored.
    pub(crate) fn stored(&self, transport: Transport, time: Duration) {
        self.ingest_duration[transport as usize].observe(time.as_secs_f64());
    }

    /// A message of this size was read.
    pub(crate) fn read(&self, act: Act, bytes: u32) {
        self.size[kind_index(Some(act))].observe(f64::from(bytes));
    }

    /// So many wait for the log.
    pub(crate) fn queued(&self, count: usize) {
        self.queue_depth.set(gauge_value(count));
    }

    /// Something was turned away for want of room.
    pub(crate) fn shed(&self, reason: Shed) {
        self.shed[reason as usize].inc();
    }
}
