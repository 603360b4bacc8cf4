//! Connecting, again and again.

use std::sync::Arc;
use std::time::Duration;

use retry::{Backoff, draw};
use schemas::{Code, Refusal};
use tokio_util::sync::CancellationToken;

use super::AgentError;
use crate::identity::Identity;
use crate::transport::{CONNECT_TIMEOUT, Connection, Transport, TransportError, can_pass};

/// Between attempts to connect.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(500), max: Duration::from_secs(10), jitter: 0.5 };

/// Makes connections of one agent.
pub(super) struct Connector {
    transport: Arc<dyn Transport>,
    attempts_max: u32,
    cancel: CancellationToken,
    /// Whether a token of this agent was accepted before.
    has_connected: bool,
    /// Differs between processes, so that their agents do not come back at the same moment.
    salt: u64,
}

impl Connector {
    pub(super) fn new(transport: Arc<dyn Transport>, attempts_max: u32, cancel: CancellationToken) -> Self {
        Self { transport, attempts_max, cancel, has_connected: false, salt: u64::from(std::process::id()) }
    }

    /// Connects, with growing gaps. Nothing when the agent is cancelled meanwhile.
    pub(super) async fn connect(
        &mut self,
        identity: &Identity,
        failures: &mut u32,
    ) -> Result<Option<Connection>, AgentError> {
        let salt = retry::hash(identity.agent.as_str(), self.salt);
        loop {
            if *failures > 0 {
                let delay = BACKOFF.delay(*failures, draw(salt.wrapping_add(u64::from(*failures))));
                tokio::select! {
                    () = tokio::time::sleep(delay) => {}
                    () = self.cancel.cancelled() => return Ok(None),
                }
            }
            let connecting = tokio::time::timeout(CONNECT_TIMEOUT, self.transport.connect(identity));
            let connected = tokio::select! {
                connected = connecting => connected,
                () = self.cancel.cancelled() => return Ok(None),
            };
            let error = match connected {
                Ok(Ok(connection)) => {
                    self.has_connected = true;
                    return Ok(Some(connection));
                }
                Ok(Err(TransportError::Refused(refusal))) if self.is_final(&refusal, identity) => {
                    return Err(refusal.into());
                }
                Ok(Err(TransportError::Unusable(why))) => return Err(AgentError::Unusable(why)),
                Ok(Err(error)) => error,
                Err(_) => TransportError::Unreachable(format!("no connection within {CONNECT_TIMEOUT:?}")),
            };
            *failures += 1;
            tracing::debug!(agent = %identity.agent, failures, %error, "not connected");
            if *failures >= self.attempts_max {
                return Err(AgentError::GaveUp { attempts: *failures, last: error });
            }
        }
    }

    /// Whether trying again will not help. A token that is renewed may be another one by then, unless none was ever
    /// accepted: then key, issuer or audience are wrong.
    fn is_final(&self, refusal: &Refusal, identity: &Identity) -> bool {
        let is_the_tokens_fault =
            matches!(refusal.code, Code::Unauthenticated | Code::TokenExpired | Code::TokenNotYetValid);
        let may_change = is_the_tokens_fault && self.has_connected && identity.token.is_renewed();
        !(can_pass(refusal.code) || may_change)
    }
}
