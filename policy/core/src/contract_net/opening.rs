//! Rows 1 and 1b: a call opens a negotiation, or is answered NOT_UNDERSTOOD and stores nothing.

use std::sync::Arc;

use schemas::delivery::{Call, Disposition, Notice, Told};
use schemas::envelope::{Envelope, Scope};
use schemas::ids::Position;
use schemas::payload::Cfp;
use schemas::policy::{OnIncomplete, Policy, TIMER_MS_MAX, WindowAnchor};
use schemas::record::{Invitation, Pinned};
use schemas::{Act, Address, AgentId, Digest, NegotiationId, Timestamp, WireTime};

use crate::acceptance::threshold::Period;
use crate::contract_net::state::{Misread, Phase, SessionState};
use crate::effect::{Deliver, Effect, Event, PublicNotice};
use crate::negotiation::{Negotiation, PinnedPolicy, Tally};
use crate::session::{Party, Reply, Seen, Session};
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
        negotiation.link(&self.digest.0, step);
        let everyone: Vec<usize> = (0..negotiation.sessions.len()).collect();
        negotiation.deliver_call(&call, &everyone, step);
        negotiation.acknowledge_call(self.envelope, self.digest, step);
        negotiation.announce(step);
        Ok(negotiation)
    }

    /// One session per invited contractor, in the order of their ids. The initiator cannot be its own contractor.
    fn sessions(&self, invited_max: usize, mut share: impl FnMut(&AgentId) -> AgentId) -> Vec<Session> {
        let mut invited: Vec<&Invitation> =
            self.pinned.invited.iter().filter(|invitation| invitation.agent != self.initiator).collect();
        invited.sort_by(|left, right| left.agent.cmp(&right.agent));
        invited.dedup_by(|left, right| left.agent == right.agent);
        invited.truncate(invited_max);
        invited.into_iter().map(|invitation| Session::new(share(&invitation.agent), invitation.qos)).collect()
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
            id: self.id.clone(),
            pinned: Arc::clone(&self.policy),
            initiator: Party::new(self.initiator.clone()),
            expected: u32::try_from(sessions.len()).unwrap_or(u32::MAX),
            sessions,
            call_msg_id: self.envelope.msg_id.clone(),
            left_out: self.pinned.left_out,
            currency: self.cfp.currency.as_deref().map(Box::from),
            notices: public_addresses(&self.envelope.to),
            traceparent: self.envelope.traceparent.as_deref().map(Arc::from),
            call: may_call_again.then(|| Arc::clone(call)),
            started_at: step.now,
            ends_by: deadlines.ends_by,
            phase: Phase::Collecting,
            outcome: None,
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
            chain: Digest([0; 32]),
            last_key: None,
            offers: 0,
            finals: 0,
        }
    }
}

impl Negotiation {
    /// Delivers a call to some sessions, whose round it opens (or whose deadline it extends).
    pub(super) fn deliver_call(&mut self, call: &Arc<Call>, called: &[usize], step: &mut Step<'_>) {
        let told = Arc::new(Told::Cfp(Call::clone(call)));
        (self.called_at, self.called_input) = (step.position, step.input);
        for &index in called {
            let session = &self.sessions[index];
            let ordinal = CALL_ORDINAL + u32::try_from(index).unwrap_or(0);
            let letter = step.letter_at(ordinal, &self.id, &session.party.agent, Arc::clone(&told), self.reply_by);
            step.post(Deliver {
                from: Some(self.initiator.agent.clone()),
                qos: session.qos,
                traceparent: self.traceparent.clone(),
                ..letter
            });
        }
    }

    fn acknowledge_call(&mut self, envelope: &Envelope, digest: Digest, step: &mut Step<'_>) {
        let seen = Seen {
            msg_id: envelope.msg_id.clone(),
            digest: digest.short(),
            act: Act::Cfp,
            disposition: Disposition::Ok,
            reply: Reply::None,
            award_no: None,
            position: step.position,
            at: step.now,
        };
        let receipt = self.receipt(&seen, Disposition::Ok, None);
        self.report(step, Told::Ack(receipt), None);
        self.initiator.remember(seen, envelope.seq);
    }

    fn announce(&self, step: &mut Step<'_>) {
        let invited = u32::try_from(self.sessions.len()).unwrap_or(u32::MAX);
        if let Some(to) = &self.notices {
            let notice = Notice::Called { negotiation: self.id.clone(), invited, reply_by: WireTime(self.reply_by) };
            step.out.push_back(Effect::Notice(PublicNotice { to: Arc::clone(to), notice }));
        }
        step.event(Event::Started {
            negotiation: self.id.clone(),
            policy: Arc::clone(&self.pinned.id),
            invited,
            left_out: self.left_out,
            at: step.now,
        });
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

/// The collection deadline: `reply_within_ms`, else `reply_by` (read against log time), else the scope's lifetime, else the
/// policy's. The hard deadline: the policy's, or the scope's lifetime if that is shorter and not already spent as the
/// collection deadline.
fn deadlines(policy: &Policy, cfp: &Cfp, scope: Option<&Scope>, now: Timestamp) -> Result<Deadlines, Misread> {
    let lifetime_ms = scope.and_then(|scope| scope.ttl).map(|seconds| seconds.saturating_mul(1000));
    let has_own_deadline = cfp.reply_within_ms.is_some() || cfp.reply_by.is_some();
    let reply_by = match (cfp.reply_within_ms, cfp.reply_by) {
        (Some(ms), _) => now.plus_ms(ms),
        (None, Some(reply_by)) => reply_by.0,
        (None, None) => now.plus_ms(lifetime_ms.unwrap_or(policy.timers_ms.collect)),
    };
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

fn public_addresses(to: &[Address]) -> Option<Arc<[Address]>> {
    let public: Vec<Address> = to
        .iter()
        .filter(|address| match address {
            Address::Topic(_) | Address::Group(_) => true,
            Address::Agent(_) => false,
        })
        .cloned()
        .collect();
    (!public.is_empty()).then(|| Arc::from(public))
}
