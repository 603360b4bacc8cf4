//! Answers `view.<lane>`: what one participant may see of one negotiation.
//!
//! Request `{"negotiation": <id>, "viewer": <agent>}`; answer `{"found": <view>}` or `{"not_found": true}`, the same for
//! a negotiation that does not exist and one the viewer takes no part in. Either is said only from a state that is current
//! (`driver/questions.rs`). The role filter is the core's
//! ([`policy_core::LaneState::view`]); who the viewer is, the asking gateway has checked.

use bytes::Bytes;
use policy_core::{LaneState, NegotiationView};
use schemas::{AgentId, NegotiationId};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Request {
    negotiation: NegotiationId,
    viewer: AgentId,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Found(NegotiationView),
    NotFound(bool),
}

/// The answer to a request; an unreadable request finds nothing.
pub(crate) fn answer(lane_state: &LaneState, request: &[u8]) -> Bytes {
    let view = serde_json::from_slice::<Request>(request)
        .ok()
        .and_then(|request| lane_state.view(&request.negotiation, &request.viewer));
    let answer = view.map_or(Answer::NotFound(true), Answer::Found);
    // A view is texts and integers, which always have an encoding.
    serde_json::to_vec(&answer).map_or_else(|_| Bytes::from_static(b"{\"not_found\":true}"), Bytes::from)
}
