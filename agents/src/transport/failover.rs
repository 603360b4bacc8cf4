//! Several ways to the exchange, one after the other. Gateways hold no negotiation state, so whichever answers will do:
//! what was unanswered leaves again over the next connection, and what is undelivered is sent to it.
//!
//! Agents spread over the ways by their names, and each connection after the first begins one way further, so that the
//! agents of a dead gateway do not all meet at the same other one. The gap before a new connection, and its jitter, is
//! the agent's affair; within one attempt the ways are tried without a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{CONNECT_TIMEOUT, Connection, Transport, TransportError, can_pass};
use crate::identity::Identity;

/// Ways tried in one attempt to connect; the next attempt goes on with the others.
const TRIES_MAX: usize = 3;
/// How long one way may take. A stopped process accepts connections and says nothing, so each way has a time of its
/// own, and all tries fit into [`CONNECT_TIMEOUT`].
const TRY_TIMEOUT: Duration = Duration::from_millis(CONNECT_TIMEOUT.as_millis() as u64 / (TRIES_MAX as u64 + 1));

/// A transport over the first of several others that answers. Give each agent its own: only then does every new
/// connection of that agent begin one way further.
pub struct FailoverTransport {
    ways: Vec<Arc<dyn Transport>>,
    /// Ways already used, over all connections.
    turn: AtomicUsize,
}

impl FailoverTransport {
    /// A transport over these ways.
    ///
    /// # Errors
    /// [`TransportError::Unusable`] when there is none.
    pub fn try_new(ways: Vec<Arc<dyn Transport>>) -> Result<Self, TransportError> {
        if ways.is_empty() {
            return Err(TransportError::Unusable("no address to connect to".to_owned()));
        }
        Ok(Self { ways, turn: AtomicUsize::new(0) })
    }

    async fn connect_to_any(&self, identity: &Identity) -> Result<Connection, TransportError> {
        let place = retry::hash(identity.agent.as_str(), 0);
        let place = usize::try_from(place % self.ways.len() as u64).unwrap_or(0);
        let mut last = TransportError::Unreachable("no way was tried".to_owned());
        for _ in 0..self.ways.len().min(TRIES_MAX) {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let way = &self.ways[place.wrapping_add(turn) % self.ways.len()];
            last = match tokio::time::timeout(TRY_TIMEOUT, way.connect(identity)).await {
                Ok(Ok(connection)) => return Ok(connection),
                // Every gateway would say the same.
                Ok(Err(TransportError::Refused(refusal))) if !can_pass(refusal.code) => return Err(refusal.into()),
                Ok(Err(TransportError::Unusable(why))) => return Err(TransportError::Unusable(why)),
                Ok(Err(error)) => error,
                Err(_) => TransportError::Unreachable(format!("no connection within {TRY_TIMEOUT:?}")),
            };
        }
        Err(last)
    }
}

impl Transport for FailoverTransport {
    fn connect<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Result<Connection, TransportError>> {
        self.connect_to_any(identity).boxed()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use parking_lot::Mutex;
    use schemas::{AgentId, Code, DeliveryId, Refusal};

    use super::*;
    use crate::transport::{SendReply, Uplink};

    #[tokio::test(start_paused = true)]
    async fn a_dead_way_is_passed_over_and_each_connection_begins_one_further() {
        let tried = Tried::default();
        let ways = vec![way(&tried, 0, Behaviour::Up), way(&tried, 1, Behaviour::Down), way(&tried, 2, Behaviour::Up)];
        let transport = FailoverTransport::try_new(ways).unwrap();
        for _ in 0..3 {
            transport.connect(&identity("bob")).await.unwrap();
        }
        let tried = tried.lock().clone();
        assert!(tried.windows(2).all(|pair| pair[1] == (pair[0] + 1) % 3), "{tried:?}");
        assert_eq!(tried.len(), 3 + tried.iter().filter(|&&way| way == 1).count());
    }

    #[tokio::test(start_paused = true)]
    async fn a_way_that_never_answers_leaves_time_for_the_others() {
        let tried = Tried::default();
        let ways = vec![way(&tried, 0, Behaviour::Silent), way(&tried, 1, Behaviour::Silent)];
        let transport = FailoverTransport::try_new(ways).unwrap();
        let identity = identity("bob");
        let outcome = tokio::time::timeout(CONNECT_TIMEOUT, transport.connect(&identity)).await;
        assert!(matches!(outcome, Ok(Err(TransportError::Unreachable(_)))));
        assert_eq!(tried.lock().len(), 2);
    }

    #[tokio::test]
    async fn a_refusal_of_the_token_is_not_taken_elsewhere() {
        let tried = Tried::default();
        let ways = vec![way(&tried, 0, Behaviour::Refusing), way(&tried, 1, Behaviour::Refusing)];
        let transport = FailoverTransport::try_new(ways).unwrap();
        let outcome = transport.connect(&identity("bob")).await;
        assert!(matches!(outcome, Err(TransportError::Refused(refusal)) if refusal.code == Code::Unauthenticated));
        assert_eq!(tried.lock().len(), 1);
    }

    #[tokio::test]
    async fn agents_spread_over_the_ways() {
        let tried = Tried::default();
        for number in 0..100 {
            let ways = vec![way(&tried, 0, Behaviour::Up), way(&tried, 1, Behaviour::Up)];
            let identity = identity(&format!("contractor-{number}"));
            FailoverTransport::try_new(ways).unwrap().connect(&identity).await.unwrap();
        }
        let first = tried.lock().iter().filter(|&&way| way == 0).count();
        assert!((30..=70).contains(&first), "{first} of 100");
    }

    type Tried = Arc<Mutex<Vec<usize>>>;

    #[derive(Clone, Copy)]
    enum Behaviour {
        Up,
        Down,
        Silent,
        Refusing,
    }

    struct Way {
        tried: Tried,
        number: usize,
        behaviour: Behaviour,
    }

    struct Nowhere;

    impl Uplink for Nowhere {
        fn send(&self, _document: bytes::Bytes) -> BoxFuture<'static, SendReply> {
            std::future::ready(SendReply::Unknown(String::new())).boxed()
        }

        fn ack(&self, _deliveries: Vec<DeliveryId>) -> BoxFuture<'static, Result<(), TransportError>> {
            std::future::ready(Ok(())).boxed()
        }
    }

    impl Transport for Way {
        fn connect<'a>(&'a self, _identity: &'a Identity) -> BoxFuture<'a, Result<Connection, TransportError>> {
            self.tried.lock().push(self.number);
            let behaviour = self.behaviour;
            async move {
                match behaviour {
                    Behaviour::Up => {
                        Ok(Connection { link: Arc::new(Nowhere), inbox: futures_util::stream::pending().boxed() })
                    }
                    Behaviour::Down => Err(TransportError::Unreachable("down".to_owned())),
                    Behaviour::Silent => std::future::pending().await,
                    Behaviour::Refusing => Err(Refusal::new(Code::Unauthenticated, "no").into()),
                }
            }
            .boxed()
        }
    }

    fn way(tried: &Tried, number: usize, behaviour: Behaviour) -> Arc<dyn Transport> {
        Arc::new(Way { tried: Arc::clone(tried), number, behaviour })
    }

    fn identity(name: &str) -> Identity {
        Identity { agent: AgentId::try_new(name).unwrap(), token: "token".into() }
    }
}
