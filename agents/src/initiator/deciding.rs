//! An initiator whose offers somebody chooses among, under `decider: initiator` (docs/spec/contract-net.md#cn-35).

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use schemas::delivery::OffersReport;
use schemas::payload::Accept;
use schemas::{AgentId, NegotiationId, OfferId, Payload, Timestamp};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Calls, Initiator};
use crate::agent::{Agent, AgentCommander, AgentOptions};
use crate::identity::Identity;
use crate::strategy::{Action, Outgoing};
use crate::transport::Transport;

/// Decisions under way at a time.
const CHOOSING_MAX: usize = 64;
/// Decisions that wait for one of these to end; the exchange decides further ones itself, by score.
const DECISIONS_MAX: usize = 1024;

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
        let (sender, decisions) = mpsc::channel(DECISIONS_MAX);
        let mut calls = Calls::new();
        calls.decisions = Some((identity.agent.clone(), sender));
        let counters = calls.counters();
        let handle = Agent::new(transport, identity, calls).with_options(options).spawn(CancellationToken::new());
        tokio::spawn(choose_all(decisions, chooser, handle.commander()));
        Self { handle, counters }
    }
}

async fn choose_all(
    mut decisions: mpsc::Receiver<OpenDecision>,
    chooser: Arc<dyn OfferChooser>,
    initiator: AgentCommander<Calls>,
) {
    let mut choosing = FuturesUnordered::new();
    loop {
        tokio::select! {
            decision = decisions.recv(), if choosing.len() < CHOOSING_MAX => match decision {
                Some(decision) => choosing.push(choose(&*chooser, decision)),
                None => return,
            },
            Some((negotiation, decide_by, offer_id)) = choosing.next(), if !choosing.is_empty() => {
                let Some(offer_id) = offer_id else { continue };
                let accept = move |calls: &mut Calls, now| accept(calls, now, negotiation, (offer_id, decide_by));
                if initiator.command(accept).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn choose(chooser: &dyn OfferChooser, decision: OpenDecision) -> (NegotiationId, Timestamp, Option<OfferId>) {
    let (negotiation, decide_by) = (decision.negotiation.clone(), decision.report.decide_by.0);
    (negotiation, decide_by, chooser.choose(decision).await)
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
    let traceparent = calls.traceparent(&negotiation);
    let accept = Payload::Accept(Accept { offer_id, terms_digest: None });
    vec![Outgoing { traceparent, ..Outgoing::new(negotiation, accept) }.into()]
}
