//! The frames of a WebSocket, as bytes and as types.

use bytes::Bytes;
use schemas::validate::BODY_BYTES_MAX;
use schemas::{AgentId, Code, DeliveryId, Refusal};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::admission::Accepted;
use crate::problem::Problem;

/// Longest frame read, in bytes: a message that is just too large is still refused by its code, not by a closed
/// connection.
pub(super) const FRAME_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;
/// Longest reference a client may give a message, in bytes; it is echoed.
const REFERENCE_BYTES_MAX: usize = 128;

/// What a client sends.
pub(super) enum ClientFrame {
    /// A message, its bytes untouched.
    Message {
        /// The client's reference.
        id: Option<String>,
        /// The message.
        bytes: Bytes,
    },
    /// Acknowledgements.
    Ack {
        /// The deliveries.
        delivery_ids: Vec<DeliveryId>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFrame<'a> {
    #[serde(rename = "type")]
    kind: FrameKind,
    #[serde(default)]
    id: Option<String>,
    #[serde(default, borrow)]
    message: Option<&'a RawValue>,
    #[serde(default)]
    delivery_ids: Option<Vec<DeliveryId>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FrameKind {
    Message,
    Ack,
}

impl ClientFrame {
    /// Reads a text frame.
    ///
    /// # Errors
    /// As a body on any other way in for what is no acceptable JSON; [`Code::WrongType`] for JSON that is no frame.
    pub(super) fn parse(text: &Bytes) -> Result<Self, Refusal> {
        let no_frame = || {
            Refusal::new(Code::WrongType, "not one of the frames of this stream")
                .at("")
                .expecting(r#"{"type":"message","id":…,"message":{…}} or {"type":"ack","delivery_ids":[…]}"#)
        };
        let raw: RawFrame<'_> =
            serde_json::from_slice(text).map_err(|_| schemas::validate::parse(text).err().unwrap_or_else(no_frame))?;
        if raw.id.as_ref().is_some_and(|id| id.len() > REFERENCE_BYTES_MAX) {
            return Err(Refusal::new(Code::OutOfRange, "the reference is too long").at("/id").expecting("128 bytes"));
        }
        match (raw.kind, raw.message, raw.delivery_ids) {
            (FrameKind::Message, Some(message), None) => {
                Ok(Self::Message { id: raw.id, bytes: text.slice_ref(message.get().as_bytes()) })
            }
            (FrameKind::Ack, None, Some(delivery_ids)) => Ok(Self::Ack { delivery_ids }),
            (FrameKind::Message | FrameKind::Ack, _, _) => Err(no_frame()),
        }
    }
}

/// What a client receives, apart from deliveries.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ServerFrame<'a> {
    /// The stream is open.
    Hello {
        /// For this agent.
        agent: &'a AgentId,
    },
    /// A message is in the log.
    Accepted {
        /// The client's reference.
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a str>,
        /// Where.
        #[serde(flatten)]
        accepted: &'a Accepted,
    },
    /// A message or frame is refused.
    Refused {
        /// The client's reference.
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a str>,
        /// Why.
        problem: Problem<'a>,
    },
}

impl ServerFrame<'_> {
    /// As a text frame.
    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| r#"{"type":"refused","problem":{"code":"internal"}}"#.to_owned())
    }
}

/// A delivery as a text frame; its bytes are passed on as the engine wrote them.
pub(super) fn delivery_frame(delivery: &RawValue) -> String {
    format!(r#"{{"type":"delivery","delivery":{}}}"#, delivery.get())
}
