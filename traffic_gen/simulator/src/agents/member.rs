//! What the members of a team say: they join, speak, conclude, vote, leave; and whatever they should not.

use schemas::bargain::Join;
use schemas::delivery::{Call, Closing, Delivery, Disposition, Outcome, Receipt};
use schemas::payload::{Accept, AttrValue, Reasoned, Terms};
use schemas::team::{Conclude, Floor, Pause, ProposedConclusion, Say, TeamState};
use schemas::{AgentId, MsgId, Payload};

use super::AgentContext;
use crate::faults::AgentFault;
use crate::points::Point;
use crate::scenario::attr_name;

/// Most acts of one member in one team: some never tire.
const SAID_MAX: u32 = 40;
/// What texts are made of: few words, so that some are nearly alike.
const WORDS: [&str; 8] = ["parcel", "north", "carry", "tomorrow", "eleven", "river", "bridge", "late"];

/// A member of a team, and what it remembers.
#[derive(Debug)]
pub(super) struct SimulatedMember {
    members: Vec<AgentId>,
    turn: u32,
    said: u32,
    /// Its last message that takes the floor.
    last: Option<MsgId>,
}

impl SimulatedMember {
    /// A member that has not heard anything yet.
    pub(super) const fn new() -> Self {
        Self { members: Vec::new(), turn: 0, said: 0, last: None }
    }

    /// Joins, most of the time.
    pub(super) fn join(context: &mut AgentContext, delivery: &Delivery, call: &Call) -> Self {
        let window_ms = (call.reply_by.0.since_us(delivery.envelope.ts.0) / 1000).max(1);
        let soon = context.draw(0..window_ms.min(200));
        if context.errs(AgentFault::Ignore) {
            return Self::new();
        }
        let is_late = context.errs(AgentFault::OfferLate);
        let after_ms = if is_late { window_ms + context.draw(0..300) } else { soon };
        let payload = if context.errs(AgentFault::Decline) {
            let declines: [fn(Reasoned) -> Payload; 3] = [Payload::Refuse, Payload::NotUnderstood, Payload::End];
            declines[context.index(declines.len())](Reasoned::default())
        } else {
            let ppm =
                |context: &mut AgentContext| AttrValue::Int(i64::try_from(context.draw(0..5) * 200_000).unwrap_or(0));
            let terms = Terms::from([(attr_name("fit"), ppm(context)), (attr_name("price"), ppm(context))]);
            let terms = if context.happens(700) { terms } else { Terms::new() };
            Payload::Join(Join { terms, ..Join::default() })
        };
        context.reply(after_ms, delivery, payload);
        Self::new()
    }

    /// A message is written.
    pub(super) fn note_said(&mut self, msg_id: &MsgId, payload: &Payload) {
        if matches!(payload, Payload::Say(_) | Payload::Assign(_) | Payload::Pause(_) | Payload::Conclude(_)) {
            self.last = Some(msg_id.clone());
        }
    }

    /// Acts when it has the floor or a vote, and sometimes when it has not.
    pub(super) fn answer_floor(&mut self, context: &mut AgentContext, delivery: &Delivery, floor: &Floor) {
        self.note_floor(context, floor);
        let window_ms = floor.act_by.map_or(200, |by| (by.0.since_us(delivery.envelope.ts.0) / 1000).max(1));
        if context.errs(AgentFault::Leave) {
            let after_ms = context.draw(0..200);
            context.reply(after_ms, delivery, Payload::End(Reasoned::default()));
        }
        if let Some(proposed) = &floor.conclusion
            && floor.state == TeamState::Voting
        {
            return self.vote(context, delivery, proposed, window_ms);
        }
        if floor.speaker.as_ref() == Some(&context.id) {
            self.take_floor(context, delivery, floor.state, window_ms);
        } else if context.errs(AgentFault::SpeakOut) {
            let after_ms = context.draw(0..100);
            let act = self.act(context, floor.state);
            context.reply(after_ms, delivery, act);
        }
    }

    fn note_floor(&mut self, context: &AgentContext, floor: &Floor) {
        self.turn = floor.turn;
        if !floor.members.is_empty() {
            self.members.clone_from(&floor.members);
        }
        if floor.state == TeamState::Concluding {
            context.reached(Point::TeamForced);
        }
        if floor.muted.contains(&context.id) {
            context.reached(Point::MemberMuted);
        }
    }

    fn take_floor(&mut self, context: &mut AgentContext, delivery: &Delivery, state: TeamState, window_ms: u64) {
        if self.said >= SAID_MAX || context.errs(AgentFault::Dawdle) {
            return;
        }
        self.said += 1;
        let is_late = context.errs(AgentFault::ConfirmLate);
        let after_ms = if is_late { window_ms + context.draw(0..100) } else { context.draw(0..window_ms.min(60)) };
        let act = self.act(context, state);
        context.reply(after_ms, delivery, act);
    }

    fn act(&self, context: &mut AgentContext, state: TeamState) -> Payload {
        let turn = match context.draw(0..20) {
            0 => Some(self.turn.saturating_sub(1).max(1)),
            1 => Some(self.turn + 1),
            2..10 => Some(self.turn),
            _ => None,
        };
        let is_forced = state == TeamState::Concluding && !context.errs(AgentFault::SpeakOut);
        match context.draw(0..20) {
            _ if is_forced => Payload::Conclude(Conclude { turn, text: text(context) }),
            0 => Payload::Pause(Pause { turn, triggers: vec![1], text: None }),
            1..4 => Payload::Conclude(Conclude { turn, text: text(context) }),
            _ => Payload::Say(Say { turn, text: text(context), next: self.any_member(context, 500) }),
        }
    }

    /// Some member, or none; now and then somebody who is none.
    fn any_member(&self, context: &mut AgentContext, per_mille: u32) -> Option<AgentId> {
        if self.members.is_empty() || !context.happens(per_mille) {
            return None;
        }
        if context.happens(30) {
            return AgentId::try_new("nobody").ok();
        }
        let index = context.index(self.members.len());
        self.members.get(index).cloned()
    }

    fn vote(&self, context: &mut AgentContext, delivery: &Delivery, proposed: &ProposedConclusion, window_ms: u64) {
        let is_own = proposed.by == context.id;
        if (is_own && !context.errs(AgentFault::SpeakOut)) || context.errs(AgentFault::Dawdle) {
            return;
        }
        let is_late = context.errs(AgentFault::ConfirmLate);
        let after_ms = if is_late { window_ms + context.draw(0..100) } else { context.draw(0..window_ms.min(200)) };
        if context.happens(300) {
            return context.reply(after_ms, delivery, Payload::Refuse(Reasoned::default()));
        }
        let mut offer_id = proposed.offer_id;
        if context.errs(AgentFault::ConfirmWrong) {
            offer_id.0.seq += 1;
        }
        let accept = Accept { offer_id, terms_digest: Some(proposed.terms_digest) };
        context.reply(after_ms, delivery, Payload::Accept(accept));
    }

    /// Counts what its own messages came to.
    pub(super) fn note_receipt(&mut self, context: &AgentContext, receipt: &Receipt) {
        if self.last.as_ref() != Some(&receipt.ack_of) {
            return;
        }
        if receipt.disposition == Disposition::StaleRound {
            context.reached(Point::TurnCrossed);
        }
        self.turn = receipt.turn.unwrap_or(self.turn);
    }
}

/// Counts how a team ended.
pub(super) fn note_closed(context: &AgentContext, closing: &Closing) {
    let point = match (closing.outcome, closing.detail.as_deref()) {
        (Outcome::Concluded, _) => {
            if closing.conclusion.as_ref().is_some_and(|conclusion| conclusion.votes.is_some()) {
                context.reached(Point::ConclusionVoted);
            }
            Point::TeamConcluded
        }
        (Outcome::NotFormed, _) => Point::TeamNotFormed,
        (Outcome::Unconcluded, Some("silence")) => Point::TeamSilent,
        (Outcome::Unconcluded, Some("deadline")) => Point::TeamOverdue,
        (Outcome::Unconcluded, Some("rejected")) => Point::ConclusionRejected,
        (Outcome::Unconcluded, Some("left")) => Point::TeamLeft,
        _ => return,
    };
    context.reached(point);
}

fn text(context: &mut AgentContext) -> String {
    let count = 3 + context.index(6);
    (0..count).map(|_| WORDS[context.index(WORDS.len())]).collect::<Vec<_>>().join(" ")
}
