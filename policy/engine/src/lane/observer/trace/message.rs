//! A logged message, as far as its trace is concerned: read without reading the whole message, since most traces are not
//! kept.

use schemas::MsgId;
use schemas::record::AdmittedMessage;
use serde::Deserialize;
use serde::de::IgnoredAny;
use telemetry::TraceContext;

/// Where the payload begins. Inside texts quotes are escaped, and the envelope has no member of this name.
const PAYLOAD: &str = "},\"payload\":";
/// Where the trace context stands.
const TRACEPARENT: &str = "\"traceparent\":\"";

#[derive(Deserialize)]
struct PartialMessage {
    envelope: PartialEnvelope,
    #[serde(rename = "payload")]
    _payload: IgnoredAny,
}

#[derive(Deserialize)]
struct PartialEnvelope {
    msg_id: MsgId,
}

/// The context of a message: its own where it carries one, otherwise its negotiation's.
pub(super) fn context_of(message: &AdmittedMessage) -> TraceContext {
    TraceContext::of(traceparent(message.body.get()), &message.negotiation)
}

/// The id of a message.
pub(super) fn id_of(message: &AdmittedMessage) -> Option<MsgId> {
    serde_json::from_str::<PartialMessage>(message.body.get()).ok().map(|message| message.envelope.msg_id)
}

/// The `traceparent` of an envelope, in the canonical body of a message: envelope before payload, without white space.
fn traceparent(body: &str) -> Option<&str> {
    let envelope = &body[..body.find(PAYLOAD)?];
    let begin = envelope.find(TRACEPARENT)? + TRACEPARENT.len();
    let length = envelope[begin..].find('"')?;
    Some(&envelope[begin..begin + length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_envelope_says_which_trace_a_message_belongs_to() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let with =
            format!(r#"{{"envelope":{{"msg_id":"m","traceparent":"{parent}","ts":"x"}},"payload":{{"act":"offer"}}}}"#);
        assert_eq!(traceparent(&with), Some(parent));
        let scoped = format!(r#"{{"envelope":{{"scope":{{"ttl":1}},"traceparent":"{parent}"}},"payload":{{}}}}"#);
        assert_eq!(traceparent(&scoped), Some(parent));
        for without in [
            r#"{"envelope":{"msg_id":"m"},"payload":{"terms":{"traceparent":"no"}}}"#,
            r#"{"envelope":{"msg_id":"\"traceparent\":\"no"},"payload":{}}"#,
            r#"{"envelope":{"traceparent":"cut"#,
            "",
        ] {
            assert_eq!(traceparent(without), None, "{without}");
        }
    }
}
