//! `POST /v1/messages` and `POST /v1/acks`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequest as _, Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use axum::routing::post;
use schemas::validate;
use schemas::{Code, DeliveryId, Refusal};
use serde::Deserialize;

use super::{Caller, HttpResult, JsonBody, MESSAGES, RouteSpec, Site, bearer, peer};
use crate::Transport;
use crate::admission::{Credentials, Ingress};
use crate::registry::PresenceSignal;

pub(super) fn routes() -> Vec<RouteSpec> {
    vec![(MESSAGES, &["post"], post(post_message)), ("/v1/acks", &["post"], post(post_acks))]
}

/// Admits one message: 202 once the log has it.
async fn post_message(State(site): State<Arc<Site>>, request: Request) -> HttpResult {
    let headers = request.headers().clone();
    let peer = peer(request.extensions());
    let body = JsonBody::from_request(request, &site).await;
    let read = body.and_then(|JsonBody(bytes)| Ok((bytes, bearer(&headers)?)));
    let (bytes, token) =
        read.inspect_err(|refused| site.admission.refused_before(Transport::Http, None, peer, &refused.0))?;
    let credentials = Credentials::Token(token);
    let ingress = Ingress { transport: Transport::Http, credentials, named_sender: None, peer, bytes };
    let accepted = site.admission.admit(ingress).await?;
    Ok((StatusCode::ACCEPTED, Json(accepted)).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Acks {
    delivery_ids: Vec<DeliveryId>,
}

/// Acknowledges deliveries: 204 once the gateway has it. Transport acknowledgements are not confirmed further; what is
/// not acknowledged is delivered again.
async fn post_acks(State(site): State<Arc<Site>>, caller: Caller, JsonBody(bytes): JsonBody) -> HttpResult {
    let document = validate::parse(&bytes)?;
    let acks = Acks::deserialize(document).map_err(|_| {
        Refusal::new(Code::BadFormat, "not a list of delivery ids")
            .at("/delivery_ids")
            .expecting(r#"{"delivery_ids": ["<32 hexadecimal digits>", …]}"#)
    })?;
    site.acknowledgements.collect(&caller.0.agent, &acks.delivery_ids)?;
    site.registry.note_presence(&caller.0.agent, PresenceSignal::Here);
    Ok(StatusCode::NO_CONTENT.into_response())
}
