//! A call opens a negotiation (docs/spec/contract-net.md#cn-1), or is answered NOT_UNDERSTOOD and stores nothing.

use std::sync::Arc;

use schemas::delivery::Call;
use schemas::envelope::Scope;
use schemas::payload::Cfp;
use schemas::policy::{OnIncomplete, Policy, TIMER_MS_MAX};
use schemas::{AgentId, Timestamp};

use crate::acceptance::reputation::PinnedReputations;
use crate::negotiation::contract_net::ContractNet;
use crate::negotiation::contract_net::collection::Collection;
use crate::negotiation::contract_net::rules::Speaker;
use crate::negotiation::contract_net::session::{CallDelivery, ContractorSession};
use crate::negotiation::disposition::ProtocolRules;
use crate::negotiation::lazy_box::LazyBox;
use crate::negotiation::misunderstanding::NotUnderstoodReason;
use crate::negotiation::{InputContext, Opening, Party, Refusal, lifetime_ms, reply_by};
use schemas::protocols::Phase;

impl Opening<'_> {
    /// Opens the negotiation and calls the contractors; `share` gives the shared form of an agent's name.
    ///
    /// # Errors
    /// Why the call cannot be followed; nothing is stored then.
    pub(crate) fn open(
        self,
        context: &mut InputContext<'_>,
        share: impl FnMut(&AgentId) -> AgentId,
    ) -> Result<ContractNet, Refusal> {
        self.open_as(context, share, |_| Ok(()))
    }

    /// As [`Self::open`], with what another protocol adds to the call, or why it cannot.
    pub(super) fn open_as(
        self,
        context: &mut InputContext<'_>,
        share: impl FnMut(&AgentId) -> AgentId,
        complete: impl FnOnce(&mut Call) -> Result<(), Refusal>,
    ) -> Result<ContractNet, Refusal> {
        let (policy, scope) = (&self.policy.policy, self.envelope.scope.as_ref());
        let (reply_by, ends_by) = deadlines(policy, self.cfp, scope, context.now)?;
        let sessions = self.sessions(context.limits.invited_max, share);
        Refusal::check_invited(sessions.len(), 1..=usize::MAX)?;
        let call = self.call(policy.id.clone(), self.policy.digest, reply_by, ends_by);
        let mut call = Call { lots: policy.awards, documents: self.cfp.documents.clone(), ..call };
        complete(&mut call)?;
        let call = Arc::new(call);
        let mut negotiation = self.negotiation((reply_by, ends_by), sessions, &call, context);
        negotiation.header.link(&self.admitted.digest.0, context);
        let everyone: Vec<usize> = (0..negotiation.sessions.len()).collect();
        negotiation.deliver_call(&call, &everyone, context);
        negotiation.acknowledge_call(Speaker::Initiator, &self, context);
        negotiation.announce(&self.policy.id, reply_by, context);
        Ok(negotiation)
    }

    /// One session per invited contractor.
    fn sessions(&self, invited_max: usize, mut share: impl FnMut(&AgentId) -> AgentId) -> Box<[ContractorSession]> {
        let mut invited = self.invited();
        invited.truncate(invited_max);
        invited
            .into_iter()
            .map(|invitation| ContractorSession::new(share(&invitation.agent), CallDelivery::of(invitation)))
            .collect()
    }

    fn negotiation(
        &self,
        (reply_by, ends_by): (Timestamp, Timestamp),
        sessions: Box<[ContractorSession]>,
        call: &Arc<Call>,
        context: &InputContext<'_>,
    ) -> ContractNet {
        let policy = &self.policy.policy;
        let may_call_again = policy.max_rounds > 1 || matches!(policy.on_incomplete, OnIncomplete::Extend { .. });
        ContractNet {
            header: self.header(ends_by, context.now),
            pinned: Arc::clone(&self.policy),
            initiator: Party::new(self.initiator.clone()),
            collection: Collection::new(policy, sessions.len(), reply_by, context),
            sessions,
            currency: self.cfp.currency.as_deref().map(Box::from),
            documents: self.cfp.documents.clone().map(Box::new),
            call: may_call_again.then(|| Arc::clone(call)),
            phase: Phase::Collecting,
            round: 1,
            deciding: LazyBox::default(),
            awards: LazyBox::default(),
            offers: 0,
            finals: 0,
            task: None,
            reputations: PinnedReputations::of(policy, self.invited().into_iter()),
        }
    }
}

/// The collection deadline ([`reply_by`]). The hard deadline: the policy's, or the scope's lifetime if that is shorter and not already spent as the
/// collection deadline.
fn deadlines(
    policy: &Policy,
    cfp: &Cfp,
    scope: Option<&Scope>,
    now: Timestamp,
) -> Result<(Timestamp, Timestamp), Refusal> {
    let lifetime_ms = lifetime_ms(scope);
    let has_own_deadline = cfp.reply_within_ms.is_some() || cfp.reply_by.is_some();
    let reply_by = reply_by(policy.timers_ms.collect, cfp, scope, now);
    let hard_ms = match lifetime_ms {
        Some(lifetime_ms) if has_own_deadline => lifetime_ms.min(policy.timers_ms.hard),
        Some(_) | None => policy.timers_ms.hard,
    };
    let ends_by = now.plus_ms(hard_ms);
    if reply_by <= now || reply_by > ends_by || reply_by > now.plus_ms(TIMER_MS_MAX) {
        return Err(Refusal::unfit(NotUnderstoodReason::BadDeadline));
    }
    Ok((reply_by, ends_by))
}
