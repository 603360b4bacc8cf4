//! `DELETE /v1/agents/{id}/streams`: an administrator ends an agent's streams, whichever gateways hold them.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use bus::Received;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use schemas::{AgentId, subject};
use tokio_util::sync::CancellationToken;

use super::Site;
use super::problem_response::HttpResult;
use super::request::{Caller, identifier};
use super::stream_limit::StreamLimit;
use crate::delivery::unavailable;

/// Passes the order to every gateway, this one included: 204 once the bus has it. The agent may open new streams while it
/// has a token that is accepted.
pub(super) async fn end(
    State(site): State<Arc<Site>>,
    caller: Caller,
    path: Result<Path<String>, PathRejection>,
) -> HttpResult {
    caller.must_be_admin(&site)?;
    let agent = identifier(path, AgentId::try_new)?;
    let published = site.pub_sub.publish(subject::stream_end(&agent), Bytes::new()).await;
    published.map_err(|error| unavailable(&error))?;
    site.pub_sub.flush().await.map_err(|error| unavailable(&error))?;
    tracing::info!(%agent, by = %caller.0.agent, "an administrator ended the agent's streams");
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Does what any gateway's administrators order, until the gateway stops.
pub(crate) async fn drive(
    mut orders: BoxStream<'static, Received>,
    stream_limit: StreamLimit,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            order = orders.next() => match order.as_ref().map(|order| subject::agent_of(&order.subject)) {
                Some(Some(agent)) => stream_limit.end(&agent),
                Some(None) => {}
                None => {
                    tracing::error!("the bus ended the subscription: administrators end no streams of this gateway any more");
                    return;
                }
            },
        }
    }
}
