//! What opens a negotiation of any protocol: the call, whom it invites, when answers are due.

use std::sync::Arc;

use schemas::envelope::{Envelope, Scope};
use schemas::payload::Cfp;
use schemas::record::{Invitation, Pinned};
use schemas::{AgentId, Digest, NegotiationId, Timestamp};

use crate::negotiation::{CHAIN_START, Header, public_addresses};
use crate::policy::PinnedPolicy;

/// A call on its way to becoming a negotiation.
pub(crate) struct Opening<'a> {
    pub(crate) id: NegotiationId,
    pub(crate) initiator: AgentId,
    pub(crate) digest: Digest,
    pub(crate) envelope: &'a Envelope,
    pub(crate) cfp: &'a Cfp,
    pub(crate) policy: Arc<PinnedPolicy>,
    pub(crate) pinned: &'a Pinned,
}

impl Opening<'_> {
    /// Who is invited, each once, in the order of their ids. The initiator cannot invite itself.
    pub(crate) fn invited(&self) -> Vec<&Invitation> {
        let mut invited: Vec<&Invitation> =
            self.pinned.invited.iter().filter(|invitation| invitation.agent != self.initiator).collect();
        invited.sort_by(|left, right| left.agent.cmp(&right.agent));
        invited.dedup_by(|left, right| left.agent == right.agent);
        invited
    }

    /// What the negotiation has, whatever its protocol.
    pub(crate) fn header(&self, ends_by: Timestamp, now: Timestamp) -> Header {
        Header {
            id: self.id.clone(),
            call_msg_id: self.envelope.msg_id.clone(),
            left_out: self.pinned.left_out,
            notices: public_addresses(&self.envelope.to),
            traceparent: self.envelope.traceparent.as_deref().map(Arc::from),
            started_at: now,
            ends_by,
            outcome: None,
            chain: CHAIN_START,
        }
    }
}

/// When answers to a call are due: `reply_within_ms`, else `reply_by` (read against log time), else the scope's lifetime,
/// else `default_ms` from now.
pub(crate) fn reply_by(default_ms: u64, cfp: &Cfp, scope: Option<&Scope>, now: Timestamp) -> Timestamp {
    match (cfp.reply_within_ms, cfp.reply_by) {
        (Some(ms), _) => now.plus_ms(ms),
        (None, Some(reply_by)) => reply_by.0,
        (None, None) => now.plus_ms(lifetime_ms(scope).unwrap_or(default_ms)),
    }
}

pub(crate) fn lifetime_ms(scope: Option<&Scope>) -> Option<u64> {
    scope.and_then(|scope| scope.ttl).map(|seconds| seconds.saturating_mul(1000))
}
