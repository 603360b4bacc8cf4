//! How long a stream may stay open: until its token runs out, the key that signed it is taken out of the key set, an administrator ends the
//! agent's streams (`DELETE /v1/agents/{id}/streams`, whichever gateways hold them), or the gateway stops.

use std::pin::Pin;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use axum::routing::delete;
use schemas::AgentId;
use tokio::sync::watch;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use super::{Caller, HttpResult, PathText, RouteSpec, Site, identifier};
use crate::auth::{Authenticator, Identity};
use crate::metrics::CloseReason;

pub(super) fn routes() -> Vec<RouteSpec> {
    vec![("/v1/agents/{id}/streams", &["delete"], delete(end))]
}

/// Passes the order to every gateway, this one included: 204 once the bus has it. The agent may open new streams while it
/// has a token that is accepted.
async fn end(State(site): State<Arc<Site>>, caller: Caller, path: PathText) -> HttpResult {
    caller.must_be_admin(&site)?;
    let agent = identifier(path, AgentId::try_new)?;
    site.streams.end_everywhere(&agent).await?;
    tracing::info!(%agent, by = %caller.0.agent, "an administrator ended the agent's streams");
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// What can end one stream from outside.
pub(super) struct StreamLifetime {
    auth: Arc<Authenticator>,
    identity: Arc<Identity>,
    expired: Pin<Box<Sleep>>,
    keys: watch::Receiver<u64>,
    ended: CancellationToken,
    stop: CancellationToken,
}

impl StreamLifetime {
    /// The lifetime of a stream that `ended` ends, or of one that is no agent's.
    pub(super) fn new(site: &Site, identity: Arc<Identity>, ended: Option<CancellationToken>) -> Self {
        let ended = ended.unwrap_or_default();
        let lifetime = site.admission.auth().remaining(&identity);
        let mut keys = site.admission.auth().key_changes();
        // The set may have changed since the token was verified.
        keys.mark_changed();
        Self {
            auth: site.admission.auth().clone(),
            identity,
            expired: Box::pin(tokio::time::sleep(lifetime)),
            keys,
            ended,
            stop: site.stop.clone(),
        }
    }

    /// Waits until the stream is over, and says why. May be dropped and called again.
    pub(super) async fn over(&mut self) -> CloseReason {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return CloseReason::Shutdown,
                () = self.ended.cancelled() => return CloseReason::Ended,
                () = self.expired.as_mut() => return CloseReason::Expired,
                changed = self.keys.changed() => {
                    // Without anybody to change them the gateway is gone.
                    if changed.is_err() {
                        return CloseReason::Shutdown;
                    }
                    if !self.auth.is_key_in_force(&self.identity) {
                        return CloseReason::KeyRemoved;
                    }
                }
            }
        }
    }
}

impl CloseReason {
    /// What the client is told; part of the interface. Nothing where nobody is left to be told.
    pub(super) const fn farewell(self) -> Option<&'static str> {
        match self {
            Self::Expired => Some("the token has expired"),
            Self::KeyRemoved => Some("the key that signed the token is trusted no longer"),
            Self::Ended => Some("an administrator ended the agent's streams"),
            Self::Shutdown => Some("the gateway stops"),
            Self::Bus => Some("the bus ended the stream"),
            Self::Slow => Some("the client reads too slowly"),
            Self::Idle => Some("no sign of life"),
            Self::Protocol => Some("protocol error"),
            Self::Client => None,
        }
    }
}
