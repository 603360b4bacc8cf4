//! A call opens a negotiation (docs/spec/contract-net.md#cn-1), or is answered NOT_UNDERSTOOD and stores nothing.

use std::sync::Arc;

use schemas::delivery::Call;
use schemas::envelope::Scope;
use schemas::payload::Cfp;
use schemas::policy::{OnIncomplete, Policy, TIMER_MS_MAX};
use schemas::{AgentId, Timestamp, WireTime};

use crate::acceptance::reputation::PinnedReputations;
use crate::negotiation::InputContext;
use crate::negotiation::Party;
use crate::negotiation::contract_net::ContractNet;
use crate::negotiation::contract_net::collection::Collection;
use crate::negotiation::contract_net::rules::Speaker;
use crate::negotiation::contract_net::session::{CallDelivery, ContractorSession};
use crate::negotiation::disposition::ProtocolRules;
use crate::negotiation::phase::NotUnderstoodReason;
use crate::negotiation::seldom::Seldom;
use crate::negotiation::{Opening, lifetime_ms, reply_by};
use crate::protocol::{Phase, Protocol};

/// The deadlines of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Deadlines {
    reply_by: Timestamp,
    ends_by: Timestamp,
}

impl Opening<'_> {
    /// Opens the negotiation and calls the contractors; `share` gives the shared form of an agent's name.
    ///
    /// # Errors
    /// Why the call cannot be followed; nothing is stored then.
    pub(crate) fn open(
        self,
        context: &mut InputContext<'_>,
        share: impl FnMut(&AgentId) -> AgentId,
    ) -> Result<ContractNet, NotUnderstoodReason> {
        if self.cfp.round.is_some_and(|round| round != 1) {
            return Err(NotUnderstoodReason::BadRound);
        }
        let deadlines = deadlines(&self.policy.policy, self.cfp, self.envelope.scope.as_ref(), context.now)?;
        let sessions = self.sessions(context.limits.invited_max, share);
        if sessions.is_empty() {
            return Err(NotUnderstoodReason::NoRecipient);
        }
        let call = Arc::new(self.call(deadlines));
        let mut negotiation = self.negotiation(deadlines, sessions, &call, context);
        negotiation.header.link(&self.digest.0, context);
        let everyone: Vec<usize> = (0..negotiation.sessions.len()).collect();
        negotiation.deliver_call(&call, &everyone, context);
        negotiation.acknowledge_call(Speaker::Initiator, self.envelope, self.digest, context);
        let (invited, reply_by) = (negotiation.sessions.len(), deadlines.reply_by);
        let begins = (Protocol::ContractNet, negotiation.phase);
        negotiation.header.announce(begins, &self.policy.id, invited, reply_by, context);
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

    fn call(&self, deadlines: Deadlines) -> Call {
        Call {
            task: self.cfp.task.clone(),
            round: 1,
            reply_by: WireTime(deadlines.reply_by),
            ends_by: WireTime(deadlines.ends_by),
            policy: self.policy.policy.id.clone(),
            policy_digest: self.policy.digest,
            lots: self.policy.policy.awards,
            requires: self.cfp.requires.clone(),
            constraints: self.cfp.constraints.clone(),
            currency: self.cfp.currency.clone(),
            documents: self.cfp.documents.clone(),
            bargain: None,
            team: None,
            brief: None,
        }
    }

    fn negotiation(
        &self,
        deadlines: Deadlines,
        sessions: Box<[ContractorSession]>,
        call: &Arc<Call>,
        context: &InputContext<'_>,
    ) -> ContractNet {
        let policy = &self.policy.policy;
        let may_call_again = policy.max_rounds > 1 || matches!(policy.on_incomplete, OnIncomplete::Extend { .. });
        ContractNet {
            header: self.header(deadlines.ends_by, context.now),
            pinned: Arc::clone(&self.policy),
            initiator: Party::new(self.initiator.clone()),
            collection: Collection::new(policy, sessions.len(), deadlines.reply_by, context),
            sessions,
            currency: self.cfp.currency.as_deref().map(Box::from),
            documents: self.cfp.documents.clone().map(Box::new),
            call: may_call_again.then(|| Arc::clone(call)),
            phase: Phase::Collecting,
            round: 1,
            deciding: Seldom::default(),
            awards: Seldom::default(),
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
) -> Result<Deadlines, NotUnderstoodReason> {
    let lifetime_ms = lifetime_ms(scope);
    let has_own_deadline = cfp.reply_within_ms.is_some() || cfp.reply_by.is_some();
    let reply_by = reply_by(policy.timers_ms.collect, cfp, scope, now);
    let hard_ms = match lifetime_ms {
        Some(lifetime_ms) if has_own_deadline => lifetime_ms.min(policy.timers_ms.hard),
        Some(_) | None => policy.timers_ms.hard,
    };
    let ends_by = now.plus_ms(hard_ms);
    if reply_by <= now || reply_by > ends_by || reply_by > now.plus_ms(TIMER_MS_MAX) {
        return Err(NotUnderstoodReason::BadDeadline);
    }
    Ok(Deadlines { reply_by, ends_by })
}
