use schemas::{Act, Code};

use super::{Answer, LATENCY_S};
use crate::Transport;

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
        shed: Counter[reason: ShedReason] = "exchange_admission_shed_total";
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

    /// A message of this size was read.
    pub(crate) fn read(&self, act: Act, bytes: u32) {
        self.size.of(MessageKind::of(Some(act))).observe(f64::from(bytes));
    }
}

/// The act of a message that agents may send, or `unknown` where it was refused before its act was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MessageKind(Option<Act>);

impl MessageKind {
    fn of(act: Option<Act>) -> Self {
        Self(act.filter(|act| Act::FROM_AGENTS.contains(act)))
    }

    fn all() -> Vec<Self> {
        Act::FROM_AGENTS.into_iter().map(Some).chain([None]).map(Self).collect()
    }
}

impl From<MessageKind> for &'static str {
    fn from(kind: MessageKind) -> Self {
        kind.0.map_or("unknown", Act::as_str)
    }
}

/// Stages of admission, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Stage {
    /// Size of the body.
    Size,
    /// Token and subject.
    Auth,
    /// Rate of the agent.
    Rate,
    /// Parse, schema, typed decode, digest.
    Schema,
    /// Sender, scope, recipients, consent, policy.
    Policy,
    /// Another body under a known id.
    Duplicate,
    /// The log.
    Publish,
}

/// The stage a code belongs to.
const fn stage_of(code: Code) -> Stage {
    match code {
        Code::TooLarge
        | Code::UnsupportedMediaType
        | Code::RequestTimeout
        | Code::MalformedRequest
        | Code::HeaderTooLarge
        | Code::UpgradeRequired => Stage::Size,
        Code::Unauthenticated | Code::TokenExpired | Code::TokenNotYetValid | Code::Unauthorized => Stage::Auth,
        Code::RateLimited => Stage::Rate,
        Code::MalformedJson
        | Code::DuplicateKey
        | Code::TooDeep
        | Code::MissingField
        | Code::UnknownField
        | Code::WrongType
        | Code::OutOfRange
        | Code::BadFormat
        | Code::NotAllowed => Stage::Schema,
        Code::NoConsent
        | Code::NoRecipient
        | Code::Unresponsive
        | Code::BadDeadline
        | Code::UnknownPolicy
        | Code::InvalidPolicy
        | Code::NotFound
        | Code::MethodNotAllowed => Stage::Policy,
        Code::Conflict => Stage::Duplicate,
        Code::LogUnavailable | Code::Unavailable | Code::Overloaded | Code::Internal => Stage::Publish,
    }
}

/// Every code, under its stage.
fn rejections() -> Vec<(Stage, Code)> {
    Code::ALL.iter().map(|code| (stage_of(*code), *code)).collect()
}

/// What was turned away for want of room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum ShedReason {
    /// Too many messages wait for the log.
    Queue,
    /// No further sender's rate is tracked.
    Senders,
    /// No place for a further connection, or for one of the address.
    Connections,
    /// The agent has too many requests under way.
    Requests,
    /// The agent has too many streams open.
    Streams,
    /// No further agent is registered.
    Agents,
    /// The store is full, or does not answer.
    Store,
    /// The lane's engine is behind the log.
    Lane,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_act_agents_send_has_its_own_kind() {
        let names: Vec<&str> = MessageKind::all().into_iter().map(Into::into).collect();
        let acts = Act::FROM_AGENTS.map(Act::as_str);
        assert_eq!(names, [acts.as_slice(), &["unknown"]].concat());
        assert!([None, Some(Act::Closed)].into_iter().all(|act| <&str>::from(MessageKind::of(act)) == "unknown"));
    }
}
