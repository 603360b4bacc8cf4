//! A call opens a bargain, or is answered NOT_UNDERSTOOD and stores nothing.

use std::sync::Arc;

use schemas::bargain::space::{SpaceFault, check_rules};
use schemas::bargain::{BargainSpec, Mandate, PARTIES_MAX};
use schemas::delivery::{BargainCall, Call, Notification};
use schemas::policy::{TIMER_MS_MAX, Timers};
use schemas::record::Qos;
use schemas::{AgentId, Digest, Timestamp, WireTime};

use super::pledge::pledge;
use super::{Bargain, BargainParty, POLICY_WORD};
use crate::effect::Deliver;
use crate::negotiation::disposition::ProtocolRules;
use crate::negotiation::phase::NotUnderstoodReason;
use crate::negotiation::{CALL_ORDINAL, InputContext};
use crate::negotiation::{Opening, reply_by};
use crate::protocol::{Phase, Protocol};

/// Why a call or a JOIN cannot be followed, and where that stands in the message.
#[derive(Debug)]
pub(crate) struct Unfit {
    pub(crate) reason: NotUnderstoodReason,
    pub(crate) pointer: Option<String>,
}

impl Unfit {
    pub(crate) fn plain(reason: NotUnderstoodReason) -> Self {
        Self { reason, pointer: None }
    }

    pub(crate) fn at(reason: NotUnderstoodReason, fault: SpaceFault, prefix: &str) -> Self {
        Self { reason, pointer: Some(fault.under(prefix).pointer) }
    }
}

impl Opening<'_> {
    /// Opens the bargain and calls the invited; `share` gives the shared form of an agent's name.
    ///
    /// # Errors
    /// [`Unfit`]; nothing is stored then.
    pub(crate) fn open_bargain(
        self,
        rules: &BargainSpec,
        context: &mut InputContext<'_>,
        share: impl FnMut(&AgentId) -> AgentId,
    ) -> Result<Bargain, Unfit> {
        if self.cfp.round.is_some_and(|round| round != 1) {
            return Err(Unfit::plain(NotUnderstoodReason::BadRound));
        }
        if self.cfp.documents.is_some() {
            let pointer = Some("/payload/documents".to_owned());
            return Err(Unfit { reason: NotUnderstoodReason::Document, pointer });
        }
        let space = check_rules(rules)
            .map_err(|fault| Unfit::at(NotUnderstoodReason::InvalidBargain, fault, "/payload/bargain"))?;
        let mandate: Option<Box<Mandate>> = self.cfp.mandate.clone();
        let pledge = mandate.map(|mandate| pledge(mandate, space, Some(&self.policy.policy))).transpose()?;
        let invited: Vec<(AgentId, Qos)> =
            self.invited().into_iter().map(|invitation| (invitation.agent.clone(), invitation.qos)).collect();
        if invited.is_empty() {
            return Err(Unfit::plain(NotUnderstoodReason::NoRecipient));
        }
        if invited.len() >= PARTIES_MAX {
            return Err(Unfit::plain(NotUnderstoodReason::TooManyParties));
        }
        let (join_by, ends_by) = self.bounds(rules, invited.len() + 1, context.now)?;
        let names = std::iter::once(&self.initiator).chain(invited.iter().map(|(agent, _)| agent));
        let mut parties: Vec<BargainParty> = names.map(share).map(BargainParty::new).collect();
        (parties[0].has_joined, parties[0].pledge) = (true, pledge);
        let mut bargain = self.bargain(rules, parties, join_by, ends_by, context.now);
        bargain.header.link(&self.digest.0, context);
        self.call_parties(&bargain, &invited, context);
        bargain.acknowledge_call(0, self.envelope, self.digest, context);
        let begins = (Protocol::AlternatingOffers, bargain.phase);
        bargain.header.announce(begins, &Arc::from(POLICY_WORD), invited.len(), join_by, context);
        Ok(bargain)
    }

    /// The bargain as it begins.
    fn bargain(
        &self,
        rules: &BargainSpec,
        parties: Vec<BargainParty>,
        join_by: Timestamp,
        ends_by: Timestamp,
        now: Timestamp,
    ) -> Bargain {
        Bargain {
            header: self.header(ends_by, now),
            rules: Box::new(rules.clone()),
            currency: self.cfp.currency.as_deref().map(Box::from),
            parties,
            phase: Phase::Joining,
            join_by,
            began_at: now,
            steps: 0,
            turn_by: ends_by,
            standing: None,
            lapsed: None,
            confirm_by: ends_by,
            offers: 0,
            ended: None,
        }
    }

    /// When everybody must have joined, and the hard deadline.
    fn bounds(&self, rules: &BargainSpec, parties: usize, now: Timestamp) -> Result<(Timestamp, Timestamp), Unfit> {
        // Not the pinned policy's collection period: that may be the mandate's, and would tell which it is.
        let default_ms = Timers::default().collect;
        let join_by = reply_by(default_ms, self.cfp, self.envelope.scope.as_ref(), now);
        let ends_by = ends_by(rules, parties, join_by);
        if join_by <= now || ends_by > now.plus_ms(TIMER_MS_MAX) {
            return Err(Unfit::plain(NotUnderstoodReason::BadDeadline));
        }
        Ok((join_by, ends_by))
    }

    fn call_parties(&self, bargain: &Bargain, invited: &[(AgentId, Qos)], context: &mut InputContext<'_>) {
        let told = Arc::new(Notification::Cfp(self.bargain_call(bargain)));
        for ((agent, qos), ordinal) in invited.iter().zip(CALL_ORDINAL..) {
            let delivery = context.delivery_at(ordinal, &bargain.header.id, agent, Arc::clone(&told), bargain.join_by);
            context.deliver(Deliver {
                from: Some(self.initiator.clone()),
                qos: *qos,
                traceparent: bargain.header.traceparent.clone(),
                ..delivery
            });
        }
    }

    fn bargain_call(&self, bargain: &Bargain) -> Call {
        let rules = BargainSpec::clone(&bargain.rules);
        let parties = bargain.parties.iter().map(|one| one.party.agent.clone()).collect();
        Call {
            task: self.cfp.task.clone(),
            round: 1,
            reply_by: WireTime(bargain.join_by),
            ends_by: WireTime(bargain.header.ends_by),
            policy: POLICY_WORD.to_owned(),
            policy_digest: Digest::of(&rules).expect("rules are integers and texts"),
            lots: 1,
            requires: self.cfp.requires.clone(),
            constraints: self.cfp.constraints.clone(),
            currency: self.cfp.currency.clone(),
            documents: None,
            bargain: Some(Box::new(BargainCall { parties, rules })),
            team: None,
            brief: None,
        }
    }
}

/// The hard deadline of a bargain that begins at `begin`: the smaller of its deadline and the time all its turns may take,
/// and the time to confirm.
pub(super) fn ends_by(rules: &BargainSpec, parties: usize, begin: Timestamp) -> Timestamp {
    let parties = u64::try_from(parties).unwrap_or(u64::MAX);
    let turns_ms = rules.rounds.map(|rounds| u64::from(rounds).saturating_mul(parties).saturating_mul(rules.step_ms));
    let span_ms = [turns_ms, rules.deadline_ms].into_iter().flatten().min().unwrap_or(u64::MAX);
    begin.plus_ms(span_ms).plus_ms(rules.confirm_ms.unwrap_or(0))
}
