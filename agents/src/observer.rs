//! Seeing everything an agent sends and receives: for traces, for checking invariants from outside the engine.

use bytes::Bytes;
use schemas::delivery::Delivery;
use schemas::{Act, AgentId, MsgId, NegotiationId};
use tokio::time::Instant;

use crate::strategy::Sent;

/// Receives what an agent sends and hears. Called from the agent's own loop: it must be quick and must not block.
pub trait Observer: Send + Sync {
    /// `at` is the local time at which the agent's loop handled the event.
    fn handle(&self, agent: &AgentId, at: Instant, event: Observed<'_>);
}

/// One thing that happened.
#[derive(Debug, Clone, Copy)]
pub enum Observed<'a> {
    /// The transport is up.
    Connected,
    /// The transport is down.
    Disconnected,
    /// A message left.
    Transmitted {
        /// Its negotiation.
        negotiation: &'a NegotiationId,
        /// Its id.
        msg_id: &'a MsgId,
        /// Its act.
        act: Act,
        /// 1 for the first time it leaves.
        attempt: u32,
        /// The document, the same at every attempt.
        document: &'a Bytes,
    },
    /// Sending a message ended.
    Settled(&'a Sent),
    /// A delivery arrived.
    Delivered {
        /// The delivery.
        delivery: &'a Delivery,
        /// Whether it had arrived before; the strategy does not hear it again.
        is_repeat: bool,
    },
}
