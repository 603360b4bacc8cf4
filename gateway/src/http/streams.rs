//! The streams an agent has open: bounded in number, so that one agent cannot use up the connections of all, and how long each
//! may stay open: until its token runs out, the key that signed it is taken out of the key set, an administrator ends the
//! agent's streams (`DELETE /v1/agents/{id}/streams`, whichever gateways hold them), or the gateway stops.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use axum::routing::delete;
use bus::{BusError, PubSub, Received};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use schemas::{AgentId, Code, Refusal, subject};
use tokio::sync::watch;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use super::{Caller, HttpResult, RouteSpec, Site, identifier};
use crate::auth::{Authenticator, Identity, now_s};
use crate::metrics::{CloseReason, Shed};
use crate::registry::PresenceSignal;

pub(super) fn routes() -> Vec<RouteSpec> {
    vec![("/v1/agents/{id}/streams", &["delete"], delete(end))]
}

/// Subscribes to an agent's inbox, then says hello for it, so that engines send at once what is unacknowledged.
///
/// # Errors
/// [`Code::Unavailable`] when the bus does not answer.
pub(super) async fn open_inbox(
    pub_sub: &Arc<dyn PubSub>,
    agent: &AgentId,
) -> Result<BoxStream<'static, Received>, Refusal> {
    let deliveries = pub_sub.subscribe(subject::inbox(agent), None).await.map_err(|error| unavailable(&error))?;
    pub_sub.publish(subject::hello(agent), Bytes::new()).await.map_err(|error| unavailable(&error))?;
    Ok(deliveries)
}

fn unavailable(error: &BusError) -> Refusal {
    tracing::warn!(%error, "the bus does not take messages");
    Refusal::new(Code::Unavailable, "the bus did not answer; try again").retry_after_ms(1000)
}

/// Open streams, by agent.
#[derive(Clone)]
pub(crate) struct StreamLimit {
    open_by_agent: Arc<Mutex<HashMap<AgentId, OpenStreams>>>,
    per_agent_max: usize,
}

/// The open streams of one agent.
#[derive(Default)]
struct OpenStreams {
    count: usize,
    /// Cancelled when those that are open now are to end; later ones have another.
    ended: CancellationToken,
}

/// One open stream; dropping it frees the place.
pub(super) struct StreamPermit {
    stream_limit: StreamLimit,
    agent: AgentId,
    ended: CancellationToken,
}

impl Site {
    /// Takes a place for one stream of an agent, and counts when there is none.
    ///
    /// # Errors
    /// As [`StreamLimit::take`].
    pub(super) fn open_stream(&self, agent: &AgentId) -> Result<StreamPermit, Refusal> {
        self.registry.note_presence(agent, PresenceSignal::Here);
        self.stream_limit.take(agent).inspect_err(|_| self.metrics.messages.shed.of(Shed::Streams).inc())
    }
}

impl StreamLimit {
    pub(crate) fn new(per_agent_max: usize) -> Self {
        Self { open_by_agent: Arc::default(), per_agent_max }
    }

    /// The agents that have a stream open.
    pub(crate) fn open(&self) -> Vec<AgentId> {
        self.open_by_agent.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// How many agents have a stream open.
    pub(crate) fn agents(&self) -> usize {
        self.open_by_agent.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Takes a place for one stream.
    ///
    /// # Errors
    /// [`Code::Overloaded`] when the agent has as many as it may.
    fn take(&self, agent: &AgentId) -> Result<StreamPermit, Refusal> {
        let mut open_by_agent = self.open_by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        let open = open_by_agent.entry(agent.clone()).or_default();
        if open.count >= self.per_agent_max {
            return Err(Refusal::new(Code::Overloaded, "this agent has too many streams open")
                .expecting(format!("at most {}; close one first", self.per_agent_max))
                .retry_after_ms(1000));
        }
        open.count += 1;
        Ok(StreamPermit { stream_limit: self.clone(), agent: agent.clone(), ended: open.ended.clone() })
    }

    /// Ends the streams an agent has open; the agent may open others.
    fn end(&self, agent: &AgentId) {
        let mut open_by_agent = self.open_by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = open_by_agent.get_mut(agent) {
            std::mem::take(&mut open.ended).cancel();
        }
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut open_by_agent = self.stream_limit.open_by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = open_by_agent.get_mut(&self.agent) {
            open.count -= 1;
            if open.count == 0 {
                open_by_agent.remove(&self.agent);
            }
        }
    }
}

/// Passes the order to every gateway, this one included: 204 once the bus has it. The agent may open new streams while it
/// has a token that is accepted.
async fn end(State(site): State<Arc<Site>>, caller: Caller, path: Result<Path<String>, PathRejection>) -> HttpResult {
    caller.must_be_admin(&site)?;
    let agent = identifier(path, AgentId::try_new)?;
    let published = site.pub_sub.publish(subject::stream_end(&agent), Bytes::new()).await;
    published.map_err(|error| unavailable(&error))?;
    site.pub_sub.flush().await.map_err(|error| unavailable(&error))?;
    tracing::info!(%agent, by = %caller.0.agent, "an administrator ended the agent's streams");
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Does what any gateway's administrators order, until the gateway stops.
pub(super) async fn drive(
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
    /// A stream that takes a place among the agent's, or none.
    pub(super) fn new(site: &Site, identity: Arc<Identity>, permit: Option<&StreamPermit>) -> Self {
        let ended = permit.map_or_else(CancellationToken::new, |permit| permit.ended.clone());
        let lifetime = Duration::from_secs(identity.expires_s.saturating_sub(now_s()));
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
