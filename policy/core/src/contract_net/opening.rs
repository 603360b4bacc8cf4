//! Rows 1 and 1b: a call opens a negotiation, or is answered NOT_UNDERSTOOD and stores nothing.

use std::sync::Arc;

use schemas::delivery::{Call, Notification};
use schemas::envelope::{Envelope, Scope};
use schemas::ids::Position;
use schemas::payload::Cfp;
use schemas::policy::{OnIncomplete, Policy, TIMER_MS_MAX, WindowAnchor};
use schemas::record::{Invitation, Pinned};
use schemas::{AgentId, Digest, NegotiationId, Timestamp, WireTime};

use crate::acceptance::threshold::Period;
use crate::contract_net::admission::Speaker;
use crate::contract_net::state::SessionState;
use crate::effect::{Deliver, Protocol};
use crate::ladder::Ladder;
use crate::link::CHAIN_START;
use crate::matter::{Matter, public_addresses};
use crate::negotiation::{Negotiation, PinnedPolicy, Tally};
use crate::session::{Party, Reach, Session};
use crate::state::{Misread, Phase};
use crate::step::{CALL_ORDINAL, Step};

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
        step: &mut Step<'_>,
        share: impl FnMut(&AgentId) -> AgentId,
    ) -> Result<Negotiation, Misread> {
        if self.cfp.round.is_some_and(|round| round != 1) {
            return Err(Misread::BadRound);
        }
        let deadlines = deadlines(&self.policy.policy, self.cfp, self.envelope.scope.as_ref(), step.now)?;
        let sessions = self.sessions(step.limits.invited_max, share);
        if sessions.is_empty() {
            return Err(Misread::NoRecipient);
        }
        let call = Arc::new(self.call(deadlines));
        let mut negotiation = self.negotiation(deadlines, sessions, &call, step);
        negotiation.matter.link(&self.digest.0, step);
        let everyone: Vec<usize> = (0..negotiation.sessions.len()).collect();
        negotiation.deliver_call(&call, &everyone, step);
        negotiation.acknowledge_call(Speaker::Initiator, self.envelope, self.digest, step);
        let (invited, reply_by) = (negotiation.sessions.len(), negotiation.reply_by);
        negotiation.matter.announce(Protocol::ContractNet, &self.policy.id, invited, reply_by, step);
        Ok(negotiation)
    }

    /// Who is invited, each once, in the order of their ids. The initiator cannot invite itself.
    pub(crate) fn invited(&self) -> Vec<&Invitation> {
        let mut invited: Vec<&Invitation> =
            self.pinned.invited.iter().filter(|invitation| invitation.agent != self.initiator).collect();
        invited.sort_by(|left, right| left.agent.cmp(&right.agent));
        invited.dedup_by(|left, right| left.agent == right.agent);
        invited
    }

    /// One session per invited contractor.
    fn sessions(&self, invited_max: usize, mut share: impl FnMut(&AgentId) -> AgentId) -> Vec<Session> {
        let mut invited = self.invited();
        invited.truncate(invited_max);
        invited.into_iter().map(|invitation| Session::new(share(&invitation.agent), Reach::of(invitation))).collect()
    }

    /// What the negotiation has, whatever its protocol.
    pub(crate) fn matter(&self, ends_by: Timestamp, now: Timestamp) -> Matter {
        Matter {
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
            bargain: None,
        }
    }

    fn negotiation(
        &self,
        deadlines: Deadlines,
        sessions: Vec<Session>,
        call: &Arc<Call>,
        step: &Step<'_>,
    ) -> Negotiation {
        let policy = &self.policy.policy;
        let may_call_again = policy.max_rounds > 1 || matches!(policy.on_incomplete, OnIncomplete::Extend { .. });
        Negotiation {
            matter: self.matter(deadlines.ends_by, step.now),
            pinned: Arc::clone(&self.policy),
            initiator: Party::new(self.initiator.clone()),
            expected: u32::try_from(sessions.len()).unwrap_or(u32::MAX),
            sessions,
            currency: self.cfp.currency.as_deref().map(Box::from),
            call: may_call_again.then(|| Arc::clone(call)),
            phase: Phase::Collecting,
            round: 1,
            period: Period { start: step.now, length_us: deadlines.reply_by.since_us(step.now) },
            reply_by: deadlines.reply_by,
            called_at: step.position,
            called_input: step.input,
            extensions: 0,
            responded: 0,
            tally: Tally::EMPTY,
            window_at: window_from_call(policy, step.now),
            is_window_past: false,
            crossing_at: None,
            decide_by: None,
            cancel_by: None,
            close: None,
            lots: Vec::new(),
            standby: Vec::new(),
            awards: 0,
            past_awards: Vec::new(),
            last_key: None,
            offers: 0,
            finals: 0,
        }
    }
}

impl Negotiation {
    /// Delivers a call to some sessions, whose round it opens (or whose deadline it extends).
    pub(super) fn deliver_call(&mut self, call: &Arc<Call>, called: &[usize], step: &mut Step<'_>) {
        let told = Arc::new(Notification::Cfp(Call::clone(call)));
        (self.called_at, self.called_input) = (step.position, step.input);
        for &index in called {
            let session = &self.sessions[index];
            let ordinal = CALL_ORDINAL + u32::try_from(index).unwrap_or(0);
            let letter =
                step.letter_at(ordinal, &self.matter.id, &session.party.agent, Arc::clone(&told), self.reply_by);
            step.post(Deliver {
                from: Some(self.initiator.agent.clone()),
                qos: session.reach.qos(),
                attempts_max: session.reach.call_attempts_max(),
                traceparent: self.matter.traceparent.clone(),
                ..letter
            });
        }
    }

    /// The position and ordinal a session's current call has its delivery id from, while nothing has been heard of the
    /// contractor since.
    pub(crate) fn unanswered_call(&self, index: usize) -> Option<(Position, u32)> {
        let session = &self.sessions[index];
        let is_waiting = self.phase == Phase::Collecting
            && session.state == SessionState::Invited
            && session.round == self.round
            && session.heard <= self.called_input;
        is_waiting.then(|| (self.called_at, CALL_ORDINAL + u32::try_from(index).unwrap_or(0)))
    }
}

/// When a window that begins with the call ends.
pub(super) fn window_from_call(policy: &Policy, called_at: Timestamp) -> Option<Timestamp> {
    match policy.close.window_anchor {
        WindowAnchor::Cfp => policy.close.window_ms.map(|ms| called_at.plus_ms(ms)),
        WindowAnchor::FirstValid => None,
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

fn lifetime_ms(scope: Option<&Scope>) -> Option<u64> {
    scope.and_then(|scope| scope.ttl).map(|seconds| seconds.saturating_mul(1000))
}

/// The collection deadline ([`reply_by`]). The hard deadline: the policy's, or the scope's lifetime if that is shorter and not already spent as the
/// collection deadline.
fn deadlines(policy: &Policy, cfp: &Cfp, scope: Option<&Scope>, now: Timestamp) -> Result<Deadlines, Misread> {
    let lifetime_ms = lifetime_ms(scope);
    let has_own_deadline = cfp.reply_within_ms.is_some() || cfp.reply_by.is_some();
    let reply_by = reply_by(policy.timers_ms.collect, cfp, scope, now);
    let hard_ms = match lifetime_ms {
        Some(lifetime_ms) if has_own_deadline => lifetime_ms.min(policy.timers_ms.hard),
        Some(_) | None => policy.timers_ms.hard,
    };
    let ends_by = now.plus_ms(hard_ms);
    if reply_by <= now || reply_by > ends_by || reply_by > now.plus_ms(TIMER_MS_MAX) {
        return Err(Misread::BadDeadline);
    }
    Ok(Deadlines { reply_by, ends_by })
}
