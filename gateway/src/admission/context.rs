//! How far a message came, for metrics, spans and the audit.

use std::time::{Instant, SystemTime};

use schemas::{Act, AgentId, MsgId, NegotiationId};

use crate::metrics::{GatewayMetrics, Stage};
use crate::transport::Transport;

/// What is known of a message so far.
pub(super) struct AdmissionContext {
    pub(super) transport: Transport,
    /// Its size in bytes; 0 for what was refused before it was whole.
    pub(super) bytes: usize,
    /// The sender, once its token is verified.
    pub(super) agent: Option<AgentId>,
    /// Its act, once it is decoded.
    pub(super) act: Option<Act>,
    /// What its envelope says, once it is decoded.
    pub(super) named: Option<MessageIdentity>,
    /// Whether this gateway took the same message before.
    pub(super) is_repeat: bool,
    /// When it was handed to the log.
    pub(super) publishing: Option<Instant>,
    /// When it came.
    pub(super) began: Instant,
    /// The same by the machine's clock; only where spans are made.
    pub(super) arrived: Option<SystemTime>,
    clock: Instant,
}

/// What an envelope says about where a message belongs.
pub(super) struct MessageIdentity {
    pub(super) message: MsgId,
    pub(super) traceparent: Option<String>,
    /// The negotiation, once it is known to have a well-formed id.
    pub(super) negotiation: Option<NegotiationId>,
}

impl AdmissionContext {
    pub(super) fn begin(transport: Transport, bytes: usize, is_traced: bool) -> Self {
        let now = Instant::now();
        Self {
            transport,
            bytes,
            agent: None,
            act: None,
            named: None,
            is_repeat: false,
            publishing: None,
            began: now,
            arrived: is_traced.then(SystemTime::now),
            clock: now,
        }
    }

    /// The message passed a stage.
    pub(super) fn passed(&mut self, metrics: &GatewayMetrics, stage: Stage) {
        let now = Instant::now();
        metrics.messages.passed(stage, now.duration_since(self.clock));
        self.clock = now;
    }

    /// The message is handed to the log now: when the stage before ended.
    pub(super) fn publishes(&mut self) {
        self.publishing = Some(self.clock);
    }

    /// The message belongs to this negotiation.
    pub(super) fn belongs_to(&mut self, negotiation: &NegotiationId) {
        if let Some(named) = &mut self.named {
            named.negotiation = Some(negotiation.clone());
        }
    }

    /// Sender and id of the message, once both are known.
    pub(super) fn message(&self) -> Option<(&AgentId, &MsgId)> {
        Some((self.agent.as_ref()?, &self.named.as_ref()?.message))
    }

    pub(super) fn negotiation(&self) -> Option<&NegotiationId> {
        self.named.as_ref()?.negotiation.as_ref()
    }
}
