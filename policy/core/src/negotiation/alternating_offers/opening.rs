//! A call opens a bargain, or is answered NOT_UNDERSTOOD and stores nothing.

use std::sync::Arc;

use schemas::bargain::space::{SpaceFault, check_rules};
use schemas::bargain::{BargainSpec, Mandate, PARTIES_MAX};
use schemas::delivery::{BargainCall, Call};
use schemas::policy::{TIMER_MS_MAX, Timers};
use schemas::{AgentId, Digest, Timestamp};

use super::sealed_mandate::seal;
use super::{Bargain, BargainParty, POLICY_WORD};
use crate::negotiation::disposition::ProtocolRules;
use crate::negotiation::misunderstanding::NotUnderstoodReason;
use crate::negotiation::{CALL_ORDINAL, Called, InputContext, Opening, Refusal, reply_by};
use schemas::protocols::Phase;

impl Opening<'_> {
    /// Opens the bargain and calls the invited; `share` gives the shared form of an agent's name.
    ///
    /// # Errors
    /// Why it cannot be followed; nothing is stored then.
    pub(crate) fn open_bargain(
        self,
        rules: &BargainSpec,
        context: &mut InputContext<'_>,
        share: impl FnMut(&AgentId) -> AgentId,
    ) -> Result<Bargain, Refusal> {
        if self.cfp.documents.is_some() {
            return Err(Refusal::malformed(NotUnderstoodReason::Document, "/payload/documents"));
        }
        let invalid = |fault: SpaceFault| fault.under("/payload/bargain").pointer;
        let invalid = |fault| Refusal::malformed(NotUnderstoodReason::InvalidBargain, invalid(fault));
        let space = check_rules(rules).map_err(invalid)?;
        let mandate: Option<Box<Mandate>> = self.cfp.mandate.clone();
        let sealed = mandate.map(|mandate| seal(mandate, space, Some(&self.policy.policy))).transpose()?;
        let invited: Vec<Called> =
            self.invited().into_iter().map(|invitation| (invitation.agent.clone(), invitation.qos, None)).collect();
        Refusal::check_invited(invited.len(), 1..=PARTIES_MAX - 1)?;
        let (join_by, ends_by) = self.bounds(rules, invited.len() + 1, context.now)?;
        let names = std::iter::once(&self.initiator).chain(invited.iter().map(|(agent, ..)| agent));
        let mut parties: Vec<BargainParty> = names.map(share).map(BargainParty::new).collect();
        (parties[0].has_joined, parties[0].sealed) = (true, sealed);
        let mut bargain = self.bargain(rules, parties, join_by, ends_by, context.now);
        bargain.header.link(&self.admitted.digest.0, context);
        self.deliver_call(&bargain.header, self.bargain_call(&bargain), &invited, CALL_ORDINAL, context);
        bargain.acknowledge_call(0, &self, context);
        bargain.announce(&Arc::from(POLICY_WORD), join_by, context);
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
    fn bounds(&self, rules: &BargainSpec, parties: usize, now: Timestamp) -> Result<(Timestamp, Timestamp), Refusal> {
        // Not the pinned policy's collection period: that may be the mandate's, and would tell which it is.
        let default_ms = Timers::default().collect;
        let join_by = reply_by(default_ms, self.cfp, self.envelope.scope.as_ref(), now);
        let ends_by = ends_by(rules, parties, join_by);
        if join_by <= now || ends_by > now.plus_ms(TIMER_MS_MAX) {
            return Err(Refusal::unfit(NotUnderstoodReason::BadDeadline));
        }
        Ok((join_by, ends_by))
    }

    fn bargain_call(&self, bargain: &Bargain) -> Call {
        let rules = BargainSpec::clone(&bargain.rules);
        let parties = bargain.parties.iter().map(|one| one.party.agent.clone()).collect();
        let digest = Digest::of(&rules).expect("rules are integers and texts");
        let (join_by, ends_by) = (bargain.join_by, bargain.header.ends_by);
        Call {
            bargain: Some(Box::new(BargainCall { parties, rules })),
            ..self.call(POLICY_WORD.to_owned(), digest, join_by, ends_by)
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
