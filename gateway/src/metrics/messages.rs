use std::time::Duration;

use schemas::{Act, Code};

use super::labels::{Answer, MessageKind, Shed, Stage, rejections, stage_of};
use super::{LATENCY_S, gauge_value};
use crate::transport::Transport;

/// Size buckets in bytes: 128 to 128 KiB, by 4.
const SIZE_BYTES: [f64; 6] = [128.0, 512.0, 2048.0, 8192.0, 32_768.0, 131_072.0];

telemetry::metrics! {
    /// What becomes of messages.
    pub(crate) struct MessageMetrics {
        /// Messages that came in, by way, act and outcome.
        messages: Counter[transport: Transport, kind: MessageKind = MessageKind::all(), outcome: Answer]
            = "exchange_messages_total";
        /// Messages refused, by stage and code.
        rejections: Counter[stage: Stage, reason: Code; rejections()] = "exchange_message_rejections_total";
        /// Messages that this gateway had taken before, bytes and all: retries, which change nothing.
        repeats: Counter[transport: Transport] = "exchange_message_repeats_total";
        /// Time a message spends in each stage of admission.
        stage_duration: Histogram(LATENCY_S)[stage: Stage] = "exchange_message_stage_duration_seconds";
        /// Time from a message's arrival to its acknowledgement by the log.
        ingest_duration: Histogram(LATENCY_S)[transport: Transport] = "exchange_message_ingest_duration_seconds";
        /// Size of messages, by act.
        size: Histogram(SIZE_BYTES)[kind: MessageKind = MessageKind::all()] = "exchange_message_size_bytes";
        /// Messages waiting for the log.
        queue_depth: Gauge = "exchange_admission_queue_depth";
        /// Requests turned away for want of room, by what was full.
        shed: Counter[reason: Shed] = "exchange_admission_shed_total";
    }
}

impl MessageMetrics {
    /// A message was answered.
    pub(crate) fn answered(&self, transport: Transport, act: Option<Act>, refused: Option<Code>) {
        let answer = if refused.is_some() { Answer::Rejected } else { Answer::Accepted };
        self.messages.of(transport, MessageKind::of(act), answer).inc();
        if let Some(code) = refused {
            self.rejections.of(stage_of(code), code).inc();
        }
    }

    /// A message came again.
    pub(crate) fn repeated(&self, transport: Transport) {
        self.repeats.of(transport).inc();
    }

    /// A message passed a stage.
    pub(crate) fn passed(&self, stage: Stage, time: Duration) {
        self.stage_duration.of(stage).observe(time.as_secs_f64());
    }

    /// A message was stored.
    pub(crate) fn stored(&self, transport: Transport, time: Duration) {
        self.ingest_duration.of(transport).observe(time.as_secs_f64());
    }

    /// A message of this size was read.
    pub(crate) fn read(&self, act: Act, bytes: u32) {
        self.size.of(MessageKind::of(Some(act))).observe(f64::from(bytes));
    }

    /// So many wait for the log.
    pub(crate) fn queued(&self, count: usize) {
        self.queue_depth.set(gauge_value(count));
    }

    /// Something was turned away for want of room.
    pub(crate) fn shed(&self, reason: Shed) {
        self.shed.of(reason).inc();
    }
}
