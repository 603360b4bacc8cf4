//! Seeing everything an agent sends and receives: for traces, for checking invariants from outside the engine.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use schemas::delivery::Delivery;
use schemas::{Act, AgentId, MsgId, NegotiationId, Refusal};
use tokio::time::Instant;

use crate::strategy::{Action, Sent};

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
    Settled {
        /// What became of it.
        sent: &'a Sent,
        /// From writing it to now.
        took: Duration,
    },
    /// A gateway refused a message or an acknowledgement for now, or did not answer a message (`log_unavailable`). The message
    /// leaves again; what is not acknowledged is delivered again.
    Deferred {
        /// Why, and until when.
        refusal: &'a Refusal,
    },
    /// A delivery arrived.
    Delivered {
        /// The delivery.
        delivery: &'a Delivery,
        /// Whether it had arrived before; the strategy does not hear it again.
        is_repeat: bool,
    },
    /// The strategy has said what it does; perhaps nothing.
    Decided {
        /// The delivery that asked it; absent when time, the agent's owner or the fate of a message of its own did.
        cause: Option<&'a Delivery>,
        /// What it asks for.
        actions: &'a [Action],
    },
}

/// Several that see the same, in this order.
impl Observer for Vec<Arc<dyn Observer>> {
    fn handle(&self, agent: &AgentId, at: Instant, event: Observed<'_>) {
        for observer in self {
            observer.handle(agent, at, event);
        }
    }
}
