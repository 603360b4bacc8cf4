//! `GET /v1/ws`: messages, acknowledgements and deliveries on one connection, as JSON text frames.
//!
//! | from the client | |
//! |---|---|
//! | `{"type":"message","id":…,"message":{"envelope":…,"payload":…}}` | a message; `id` is the client's own reference |
//! | `{"type":"ack","delivery_ids":[…]}` | acknowledges deliveries |
//!
//! With `?shared=true` agents share the connection: each joins with a token of its own, and frames say whose they are, in both
//! directions (docs/spec/deliveries.md#dl-41).
//!
//! | from the client | |
//! |---|---|
//! | `{"type":"join","id":…,"token":…}` | an agent takes part |
//! | `{"type":"leave","agent":…}` | it takes part no longer |
//! | `{"type":"message","agent":…,…}`, `{"type":"ack","agent":…,…}` | as above, by that agent |
//!
//! | to the client | |
//! |---|---|
//! | `{"type":"hello","agent":…}` | the stream is open |
//! | `{"type":"delivery","delivery":{"envelope":…,"payload":…}}` | a delivery; repeated until acknowledged |
//! | `{"type":"accepted","id":…,"seq":…,"index":…,"msg_id":…,"negotiation":…}` | the message is in the log |
//! | `{"type":"refused","id":…,"problem":{…}}` | it is not (or, for `log_unavailable`, perhaps) |
//! | `{"type":"joined","id":…,"agent":…}` | the agent takes part |
//! | `{"type":"closing","agent":…,"reason":…,"detail":…}` | it takes part no longer: its token has expired, or another reason of docs/spec/deliveries.md#dl-25 |
//!
//! With `?linger_ms=` some frames may wait for others to share a write with (docs/spec/deliveries.md#dl-40).

mod members;
mod session;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Request, State};
use axum::response::IntoResponse as _;
use axum::routing::get;
use axum::{RequestExt as _, response::Response};
use bytes::Bytes;
use schemas::delivery::LINGER_MS_MAX;
use schemas::validate::{BODY_BYTES_MAX, Checked, check_canonical_offer};
use schemas::{AgentId, Code, DeliveryId, Refusal};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use self::members::{Members, SessionStream};
use super::streams::StreamLifetime;
use super::{Caller, HttpResult, PeerConnection, QueryOf, Refused, RouteSpec, Site, query};
use crate::admission::Accepted;
use crate::problem::Problem;

pub(super) fn routes() -> Vec<RouteSpec> {
    vec![("/v1/ws", &["get"], get(open))]
}

/// Read at a time, in bytes. The buffer of a connection is there while it is idle, and ten thousand of them are idle at once.
const READ_BYTES: usize = 2 * 1024;
/// What waits to be written before it is, in bytes, unless the connection is flushed first.
const WRITE_BYTES: usize = 3 * 1024;
/// Both for a connection that agents share: what one write holds for all of them. There are fewer of those.
const SHARED_READ_BYTES: usize = 16 * 1024;
const SHARED_WRITE_BYTES: usize = 32 * 1024;
/// Bytes that may wait to be written before the client counts as slow.
const WRITE_BYTES_MAX: usize = 1024 * 1024;

/// How a client wants its stream.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamQuery {
    #[serde(default)]
    linger_ms: u64,
    #[serde(default)]
    shared: bool,
}

/// Opens the stream.
async fn open(
    State(site): State<Arc<Site>>,
    caller: Caller,
    wanted: QueryOf<StreamQuery>,
    mut request: Request,
) -> HttpResult {
    let StreamQuery { linger_ms, shared } = query(wanted)?;
    if linger_ms > LINGER_MS_MAX {
        let refusal = Refusal::new(Code::OutOfRange, "frames may not wait for so long");
        return Err(refusal.expecting(format!("linger_ms of 0 to {LINGER_MS_MAX}")).into());
    }
    let upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection> = request.extract_parts().await;
    let upgrade = upgrade.map_err(|rejection| refused(&rejection))?;
    let identity = caller.0;
    let connection = request.extensions().get::<PeerConnection>().cloned();
    let stream = if shared {
        let peer = connection.as_ref().map(|connection| connection.peer);
        SessionStream::Shared(Box::new(Members::new(&site, &identity.agent, peer)?))
    } else {
        SessionStream::Own(site.streams.open(&identity.agent).await?)
    };
    let (read_bytes, write_bytes) =
        if shared { (SHARED_READ_BYTES, SHARED_WRITE_BYTES) } else { (READ_BYTES, WRITE_BYTES) };
    let tracked = site.tasks.token();
    let identity = Arc::new(identity);
    let lifetime = StreamLifetime::new(&site, identity.clone(), stream.ended());
    let response: Response = upgrade
        .read_buffer_size(read_bytes)
        .write_buffer_size(write_bytes)
        .max_write_buffer_size(WRITE_BYTES_MAX)
        .max_message_size(FRAME_BYTES_MAX)
        .max_frame_size(FRAME_BYTES_MAX)
        .on_upgrade(move |socket| async move {
            session::serve(site, identity, stream, lifetime, Duration::from_millis(linger_ms), socket).await;
            drop((connection, tracked));
        })
        .into_response();
    Ok(response)
}

fn refused(rejection: &WebSocketUpgradeRejection) -> Refused {
    tracing::debug!(%rejection, "not a WebSocket request");
    if matches!(rejection, WebSocketUpgradeRejection::InvalidWebSocketVersionHeader(_)) {
        let refusal =
            Refusal::new(Code::UpgradeRequired, "the handshake names another version of the WebSocket protocol");
        return Refused(refusal.expecting("Sec-WebSocket-Version: 13"));
    }
    Refused(
        Refusal::new(Code::BadFormat, "not a WebSocket handshake")
            .expecting("GET with Connection: Upgrade, Upgrade: websocket, Sec-WebSocket-Version: 13"),
    )
}

/// Longest frame read, in bytes: a message that is just too large is still refused by its code, not by a closed
/// connection.
const FRAME_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;
/// Longest reference a client may give a message, in bytes; it is echoed.
const REFERENCE_BYTES_MAX: usize = 128;

/// What a client sends.
enum ClientFrame {
    /// A message, its bytes untouched.
    Message {
        /// Who sends it, on a shared connection.
        agent: Option<AgentId>,
        /// The client's reference.
        id: Option<String>,
        /// The message.
        bytes: Bytes,
        /// What it is, where that is known already.
        checked: Option<Box<Checked>>,
    },
    /// Acknowledgements.
    Ack {
        /// Who was delivered to, on a shared connection.
        agent: Option<AgentId>,
        /// The deliveries.
        delivery_ids: Vec<DeliveryId>,
    },
    /// An agent takes part in a shared connection.
    Join {
        /// The client's reference.
        id: Option<String>,
        /// The agent's token.
        token: String,
    },
    /// It takes part no longer.
    Leave {
        /// The agent.
        agent: AgentId,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFrame<'a> {
    #[serde(rename = "type")]
    kind: FrameKind,
    id: Option<String>,
    agent: Option<AgentId>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    delivery_ids: Option<Vec<DeliveryId>>,
    token: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FrameKind {
    Message,
    Ack,
    Join,
    Leave,
}

impl ClientFrame {
    /// Reads a text frame.
    ///
    /// # Errors
    /// As a body on any other way in for what is no acceptable JSON; [`Code::WrongType`] for JSON that is no frame.
    fn parse(text: &Bytes) -> Result<Self, Refusal> {
        Self::cut(text).map_or_else(|| Self::read(text), Ok)
    }

    /// An offer in a frame, both as the SDKs write them, without reading the frame: what stands between its ends is a whole
    /// JSON text. Nothing of any other frame.
    fn cut(text: &Bytes) -> Option<Self> {
        let rest = text.strip_prefix(br#"{"type":"message","#)?;
        let (agent, rest) = match rest.strip_prefix(br#""agent":""#) {
            Some(named) => {
                let (agent, rest) = named.split_at(named.iter().position(|byte| *byte == b'"')?);
                let agent = AgentId::try_new(std::str::from_utf8(agent).ok()?).ok()?;
                (Some(agent), rest.strip_prefix(br#"","#)?)
            }
            None => (None, rest),
        };
        let rest = rest.strip_prefix(br#""id":""#)?;
        let (id, rest) = rest.split_at(rest.iter().position(|byte| *byte == b'"')?);
        let is_plain =
            |id: &&str| id.len() <= REFERENCE_BYTES_MAX && !id.contains(|c: char| c == '\\' || c.is_control());
        let id = std::str::from_utf8(id).ok().filter(is_plain)?;
        let message = rest.strip_prefix(br#"","message":"#)?.strip_suffix(b"}")?;
        let checked = Some(Box::new(check_canonical_offer(message)?));
        Some(Self::Message { agent, id: Some(id.to_owned()), bytes: text.slice_ref(message), checked })
    }

    fn read(text: &Bytes) -> Result<Self, Refusal> {
        let raw: RawFrame<'_> =
            serde_json::from_slice(text).map_err(|_| schemas::validate::parse(text).err().unwrap_or_else(no_frame))?;
        if raw.id.as_ref().is_some_and(|id| id.len() > REFERENCE_BYTES_MAX) {
            return Err(Refusal::new(Code::OutOfRange, "the reference is too long").at("/id").expecting("128 bytes"));
        }
        let RawFrame { kind, id, agent, message, delivery_ids, token } = raw;
        match (kind, agent, message, delivery_ids, token) {
            (FrameKind::Message, agent, Some(message), None, None) => {
                Ok(Self::Message { agent, id, bytes: text.slice_ref(message.get().as_bytes()), checked: None })
            }
            (FrameKind::Ack, agent, None, Some(delivery_ids), None) => Ok(Self::Ack { agent, delivery_ids }),
            (FrameKind::Join, None, None, None, Some(token)) => Ok(Self::Join { id, token }),
            (FrameKind::Leave, Some(agent), None, None, None) => Ok(Self::Leave { agent }),
            (FrameKind::Message | FrameKind::Ack | FrameKind::Join | FrameKind::Leave, ..) => Err(no_frame()),
        }
    }
}

/// A text that is no frame, or none of this stream.
fn no_frame() -> Refusal {
    Refusal::new(Code::WrongType, "not one of the frames of this stream").at("").expecting(
        r#"{"type":"message","id":…,"message":{…}} or {"type":"ack","delivery_ids":[…]}, both with "agent" on a shared stream"#,
    )
}

/// What a client receives, apart from deliveries.
#[serde_with_macros::skip_serializing_none]
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ServerFrame<'a> {
    /// The stream is open.
    Hello {
        /// For this agent.
        agent: &'a AgentId,
    },
    /// A message is in the log.
    Accepted {
        /// The client's reference.
        id: Option<&'a str>,
        /// Whose message it is, on a shared connection.
        agent: Option<&'a AgentId>,
        /// Where.
        #[serde(flatten)]
        accepted: &'a Accepted,
    },
    /// An agent takes part in a shared connection.
    Joined {
        /// The client's reference.
        id: Option<&'a str>,
        /// The agent.
        agent: &'a AgentId,
    },
    /// An agent takes part no longer, though it has not left.
    Closing {
        /// The agent.
        agent: &'a AgentId,
        /// Why.
        reason: &'static str,
        /// In words.
        detail: &'static str,
    },
    /// A message or frame is refused.
    Refused {
        /// The client's reference.
        id: Option<&'a str>,
        /// Whose it is, on a shared connection, where that is known.
        agent: Option<&'a AgentId>,
        /// Why.
        problem: Problem<'a>,
    },
}

impl ServerFrame<'_> {
    /// As a text frame.
    fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| r#"{"type":"refused","problem":{"code":"internal"}}"#.to_owned())
    }
}

/// A delivery as a text frame, its bytes passed on as the engine wrote them; nothing where they are no text.
fn delivery_frame(delivery: &[u8]) -> Option<String> {
    const BEGIN: &str = r#"{"type":"delivery","delivery":"#;
    let delivery = std::str::from_utf8(delivery).ok()?;
    let mut frame = String::with_capacity(BEGIN.len() + delivery.len() + 1);
    frame.push_str(BEGIN);
    frame.push_str(delivery);
    frame.push('}');
    Some(frame)
}
