//! An initiator whose offers somebody chooses among, under `decider: initiator` (docs/spec/contract-net.md#cn-35).

use std::sync::Arc;

use futures_util::future::BoxFuture;
use schemas::delivery::OffersReport;
use schemas::payload::Accept;
use schemas::{AgentId, NegotiationId, OfferId, Payload, Timestamp};
use tokio::sync::mpsc;

use super::{Calls, Initiator};
use crate::agent::{ASKED_MAX, AgentOptions, QUESTIONS_MAX};
use crate::identity::Identity;
use crate::strategy::Action;
use crate::transport::Transport;

/// Offers of which one is to be chosen.
#[derive(Debug, Clone)]
pub struct OpenDecision {
    /// The initiator.
    pub agent: AgentId,
    /// The negotiation.
    pub negotiation: NegotiationId,
    /// W3C trace context of the delivery that brought them.
    pub traceparent: Option<String>,
    /// Log time of the close.
    pub closed_at: Timestamp,
    /// The offers, and by when one must be chosen.
    pub report: OffersReport,
}

/// Chooses among the offers to an initiator.
pub trait OfferChooser: Send + Sync + 'static {
    /// The offer to accept. None: the exchange decides at `decide_by`, by score.
    fn choose(&self, decision: OpenDecision) -> BoxFuture<'static, Option<OfferId>>;
}

impl Initiator {
    /// Starts an initiator in a task of its own, and in another what chooses for it wherever a policy leaves the choice to the
    /// initiator. It ends with the initiator.
    #[must_use]
    pub fn spawn_choosing(
        transport: impl Transport + 'static,
        identity: Identity,
        options: AgentOptions,
        chooser: Arc<dyn OfferChooser>,
    ) -> Self {
        let (sender, decisions) = mpsc::channel(QUESTIONS_MAX);
        let calls = Calls { decisions: Some((identity.agent.clone(), sender)), ..Calls::default() };
        let initiator = Self::spawn_calls(transport, identity, options, calls);
        let choose = move |decision: OpenDecision| {
            let (negotiation, decide_by) = (decision.negotiation.clone(), decision.report.decide_by.0);
            let chosen = chooser.choose(decision);
            async move { (negotiation, decide_by, chosen.await) }
        };
        let take = |calls: &mut Calls, now, (negotiation, decide_by, chosen): (_, _, Option<OfferId>)| {
            chosen.map_or_else(Vec::new, |offer_id| accept(calls, now, negotiation, (offer_id, decide_by)))
        };
        tokio::spawn(initiator.handle.commander().answer_all(decisions, ASKED_MAX, choose, take));
        initiator
    }
}

/// The acceptance, as long as the call is open and the choice is the initiator's.
fn accept(
    calls: &mut Calls,
    now: Timestamp,
    negotiation: NegotiationId,
    (offer_id, decide_by): (OfferId, Timestamp),
) -> Vec<Action> {
    if now >= decide_by || !calls.calls_by_negotiation.contains_key(&negotiation) {
        return Vec::new();
    }
    calls.say(negotiation, Payload::Accept(Accept { offer_id, terms_digest: None }))
}
