//! Rows 1 and 1b.

use policy_core::{Phase, SessionState};
use schemas::delivery::{Disposition, Receipt};
use schemas::policy::WindowAnchor;
use schemas::record::{AdmittedMessage, Message};
use schemas::{AgentId, Payload, Policy, Timestamp};

use super::Moment;
use super::negotiation::{Negotiation, Party, Said, Session, Window, count};
use crate::fact;

impl Negotiation {
    /// The negotiation of a call, or why it cannot be followed.
    pub(super) fn open(message: &AdmittedMessage, decoded: &Message, moment: Moment) -> Result<Self, &'static str> {
        let Payload::Cfp(cfp) = &decoded.payload else { return Err("no call") };
        let pinned = message.pinned.as_ref().expect("every call of a case is pinned");
        let policy = (*pinned.policy).clone();
        let ttl_ms = decoded.envelope.scope.as_ref().and_then(|scope| scope.ttl).map(|ttl| ttl * 1000);
        let (reply_ms, hard_ms) = deadlines(&policy, cfp.reply_within_ms, ttl_ms).ok_or("bad_deadline")?;
        let agents = pinned.invited.iter().map(|invitation| invitation.agent.clone());
        let invited: Vec<AgentId> = agents.filter(|agent| *agent != message.from).collect();
        if invited.is_empty() {
            return Err("no_recipient");
        }
        let parties = invited.iter().chain([&message.from]).map(|agent| (agent.clone(), Party::default()));
        let reply_by = moment.now.plus_ms(reply_ms);
        let mut one = Self {
            id: message.negotiation.clone(),
            initiator: message.from.clone(),
            currency: cfp.currency.clone(),
            is_public: !decoded.envelope.to.is_empty(),
            ends_by: moment.now.plus_ms(hard_ms),
            parties: parties.collect(),
            sessions: invited.iter().map(|agent| (agent.clone(), Session::invited())).collect(),
            phase: Phase::Collecting,
            outcome: None,
            round: 1,
            called_at: moment.now,
            period_us: reply_ms * 1000,
            reply_by,
            extensions: 0,
            window: Window::NotBegun,
            crossing: None,
            decide_by: None,
            cancel_by: None,
            closed_at: None,
            lots: Vec::new(),
            standby: Vec::new(),
            awards: 0,
            past: Vec::new(),
            offers: 0,
            facts: Vec::new(),
            policy,
        };
        one.begin_window(WindowAnchor::Cfp, moment.now);
        one.acknowledge_call(message, decoded);
        one.call(&invited);
        Ok(one)
    }

    fn acknowledge_call(&mut self, message: &AdmittedMessage, decoded: &Message) {
        let msg_id = decoded.envelope.msg_id.clone();
        let receipt = Receipt {
            ack_of: msg_id.clone(),
            disposition: Disposition::Ok,
            first: None,
            offer_id: None,
            invited: Some(count(self.sessions.len())),
            left_out: None,
            award_no: None,
        };
        self.facts.push(fact::ack(&self.id, &self.initiator, &receipt));
        if self.is_public {
            self.facts.push(fact::notice_called(&self.id));
        }
        let party = self.parties.get_mut(&message.from).expect("it calls");
        party.last_seq = decoded.envelope.seq;
        party.said.push(Said { msg_id, digest: message.digest, disposition: Disposition::Ok, reply: None });
    }

    /// CFP to some contractors, for the current round and deadline.
    pub(super) fn call(&mut self, contractors: &[AgentId]) {
        for contractor in contractors {
            self.session(contractor).was_heard = false;
            self.facts.push(fact::cfp(&self.id, contractor, self.round, self.reply_by, self.ends_by));
        }
    }

    /// A window with this anchor begins now.
    pub(super) fn begin_window(&mut self, anchor: WindowAnchor, now: Timestamp) {
        let close = &self.policy.close;
        if let (Some(ms), true, Window::NotBegun) = (close.window_ms, close.window_anchor == anchor, self.window) {
            self.window = Window::EndsAt(now.plus_ms(ms));
        }
    }
}

impl Session {
    fn invited() -> Self {
        Self { state: SessionState::Invited, round: 1, strikes: 0, was_heard: false, was_bound: false, offer: None }
    }
}

/// Milliseconds to the collection deadline and to the hard one, if the call leaves time to reply.
fn deadlines(policy: &Policy, reply_within_ms: Option<u64>, ttl_ms: Option<u64>) -> Option<(u64, u64)> {
    let reply_ms = reply_within_ms.or(ttl_ms).unwrap_or(policy.timers_ms.collect);
    // A lifetime that is already the collection deadline does not bound the negotiation once more.
    let bound_ms = ttl_ms.filter(|_| reply_within_ms.is_some());
    let hard_ms = bound_ms.map_or(policy.timers_ms.hard, |bound| bound.min(policy.timers_ms.hard));
    (reply_ms > 0 && reply_ms <= hard_ms).then_some((reply_ms, hard_ms))
}
