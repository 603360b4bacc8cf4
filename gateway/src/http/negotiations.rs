//! `GET /v1/negotiations/{id}`: what the engine of its lane says, filtered by the caller's role. Gateways hold no
//! negotiation state. To strangers a negotiation does not exist.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse as _;
use axum::routing::get;
use bus::BusError;
use bytes::Bytes;
use schemas::{Code, NegotiationId, Refusal, subject};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::{Caller, HttpResult, PathText, RouteSpec, Site, identifier};

pub(super) fn routes() -> Vec<RouteSpec> {
    vec![("/v1/negotiations/{id}", &["get"], get(show))]
}

/// How long an engine may take to answer.
const VIEW_TIMEOUT: Duration = Duration::from_secs(2);

/// An engine's answer; without `found` there is nothing this caller may see.
#[derive(Deserialize)]
struct Viewed<'a> {
    #[serde(borrow, default)]
    found: Option<&'a RawValue>,
}

/// One negotiation as the caller may see it.
async fn show(State(site): State<Arc<Site>>, caller: Caller, path: PathText) -> HttpResult {
    let negotiation = identifier(path, NegotiationId::try_new)?;
    let lane = negotiation.lane(site.lanes);
    let question = json!({ "negotiation": negotiation, "viewer": caller.0.agent }).to_string();
    let asked = site.pub_sub.request(subject::view(lane), None, Bytes::from(question), VIEW_TIMEOUT).await;
    let answer = asked.map_err(|error| no_answer(&negotiation, &error))?;
    let viewed: Viewed<'_> = serde_json::from_slice(&answer)
        .map_err(|_| Refusal::new(Code::Internal, "the engine's answer is not readable"))?;
    let view = viewed.found.ok_or_else(|| Refusal::new(Code::NotFound, "no such negotiation, or none of yours"))?;
    let headers = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    Ok((headers, view.get().to_owned()).into_response())
}

fn no_answer(negotiation: &NegotiationId, error: &BusError) -> Refusal {
    tracing::warn!(negotiation = negotiation.as_str(), %error, "no engine answered for a negotiation");
    Refusal::new(Code::Unavailable, "no engine answers for this negotiation now; try again").retry_after_ms(1000)
}
