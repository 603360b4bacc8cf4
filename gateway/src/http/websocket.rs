//! `GET /v1/ws`: messages, acknowledgements and deliveries on one connection, as JSON text frames.
//!
//! | from the client | |
//! |---|---|
//! | `{"type":"message","id":…,"message":{"envelope":…,"payload":…}}` | a message; `id` is the client's own reference |
//! | `{"type":"ack","delivery_ids":[…]}` | acknowledges deliveries |
//!
//! | to the client | |
//! |---|---|
//! | `{"type":"hello","agent":…}` | the stream is open |
//! | `{"type":"delivery","delivery":{"envelope":…,"payload":…}}` | a delivery; repeated until acknowledged |
//! | `{"type":"accepted","id":…,"seq":…,"index":…,"msg_id":…,"negotiation":…}` | the message is in the log |
//! | `{"type":"refused","id":…,"problem":{…}}` | it is not (or, for `log_unavailable`, perhaps) |

mod frames;
mod session;

use std::sync::Arc;

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Request, State};
use axum::response::IntoResponse as _;
use axum::{RequestExt as _, response::Response};
use schemas::{Code, Refusal};

use super::Site;
use super::problem_response::{HttpResult, Refused};
use super::request::{Caller, PeerConnection};
use super::stream_lifetime::StreamLifetime;
use crate::delivery::open_inbox;
use frames::FRAME_BYTES_MAX;
use session::WebSocketSession;

/// Buffers of one connection, in bytes: small, because ten thousand of them are idle at once.
const BUFFER_BYTES: usize = 4 * 1024;
/// Bytes that may wait to be written before the client counts as slow.
const WRITE_BYTES_MAX: usize = 1024 * 1024;

/// Opens the stream.
pub(super) async fn open(State(site): State<Arc<Site>>, caller: Caller, mut request: Request) -> HttpResult {
    let upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection> = request.extract_parts().await;
    let upgrade = upgrade.map_err(|rejection| refused(&rejection))?;
    let identity = caller.0;
    let permit = site.open_stream(&identity.agent)?;
    let connection = request.extensions().get::<PeerConnection>().cloned();
    let deliveries = open_inbox(&site.pub_sub, &identity.agent).await?;
    let tracked = site.tasks.token();
    let identity = Arc::new(identity);
    let lifetime = StreamLifetime::new(&site, identity.clone(), &permit);
    let response: Response = upgrade
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(BUFFER_BYTES)
        .max_write_buffer_size(WRITE_BYTES_MAX)
        .max_message_size(FRAME_BYTES_MAX)
        .max_frame_size(FRAME_BYTES_MAX)
        .on_upgrade(move |socket| async move {
            WebSocketSession::new(site, identity, deliveries, lifetime).run(socket).await;
            drop((permit, connection, tracked));
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
