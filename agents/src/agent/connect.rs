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
    /// The token of the last attempt.
    token: String,
    /// Whether it was said that this one is refused.
    is_told: bool,
    /// Differs between processes, so that their agents do not come back at the same moment.
    salt: u64,
}

impl Connector {
    pub(super) fn new(transport: Arc<dyn Transport>, attempts_max: u32, cancel: CancellationToken) -> Self {
        let (token, salt) = (String::new(), u64::from(std::process::id()));
        Self { transport, attempts_max, cancel, has_connected: false, token, is_told: false, salt }
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
            let token = identity.token.current();
            let is_old = self.has_connected && token == self.token;
            self.is_told &= is_old;
            self.token = token;
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
                Ok(Err(error)) => {
                    let is_refused = matches!(&error, TransportError::Refused(refusal) if is_the_tokens_fault(refusal));
                    if is_old && is_refused && !std::mem::replace(&mut self.is_told, true) {
                        tracing::warn!(
                            agent = %identity.agent, %error,
                            "not connected: the source of the token still gives the old one; trying again until it gives another"
                        );
                    }
                    error
                }
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
        let may_change = is_the_tokens_fault(refusal) && self.has_connected && identity.token.is_renewed();
        !(can_pass(refusal.code) || may_change)
    }
}

const fn is_the_tokens_fault(refusal: &Refusal) -> bool {
    matches!(refusal.code, Code::Unauthenticated | Code::TokenExpired | Code::TokenNotYetValid)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::BoxFuture;
    use futures_util::{FutureExt as _, StreamExt as _};
    use parking_lot::Mutex;
    use schemas::AgentId;
    use tokio::time::Instant;

    use super::*;
    use crate::identity::Token;
    use crate::transport::{SendReply, Uplink};

    /// A gateway that takes one token, and has expired every other.
    struct OneToken {
        taken: &'static str,
        asked: AtomicUsize,
    }

    struct NoLink;

    impl Uplink for NoLink {
        fn send(&self, _: bytes::Bytes) -> BoxFuture<'static, SendReply> {
            std::future::ready(SendReply::Unknown(String::new())).boxed()
        }

        fn ack(&self, _: Vec<schemas::DeliveryId>) -> BoxFuture<'static, Result<(), TransportError>> {
            std::future::ready(Ok(())).boxed()
        }
    }

    impl Transport for OneToken {
        fn connect<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Result<Connection, TransportError>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let is_taken = identity.token.current() == self.taken;
            let inbox = || futures_util::stream::empty().boxed();
            let connected = is_taken.then(|| Connection { link: Arc::new(NoLink), inbox: inbox() });
            let expired = || Refusal::new(Code::TokenExpired, "the token has expired").into();
            std::future::ready(connected.ok_or_else(expired)).boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_whose_token_is_still_the_old_one_says_so_once_and_tries_again_at_growing_gaps() {
        let file = Arc::new(Mutex::new("old"));
        let source = Arc::clone(&file);
        let token = Token::renewed(move || (*source.lock()).to_owned());
        let identity = Identity { agent: AgentId::try_new("bob").unwrap(), token };
        let gateway = |taken| Arc::new(OneToken { taken, asked: AtomicUsize::new(0) });
        let mut connector = Connector::new(gateway("old"), u32::MAX, CancellationToken::new());
        let mut failures = 0;
        connector.connect(&identity, &mut failures).await.unwrap().unwrap();
        assert!(!connector.is_told);

        let expired = gateway("new");
        connector.transport = expired.clone();
        let began = Instant::now();
        let waiting = tokio::time::timeout(Duration::from_secs(60), connector.connect(&identity, &mut failures)).await;
        assert!(waiting.is_err() && connector.is_told, "the old token is refused, and no other is there");
        assert!((5..=16).contains(&expired.asked.load(Ordering::Relaxed)), "{expired:?}", expired = expired.asked);

        *file.lock() = "new";
        connector.connect(&identity, &mut failures).await.unwrap().unwrap();
        assert!(!connector.is_told && began.elapsed() < Duration::from_secs(80));
    }
}
