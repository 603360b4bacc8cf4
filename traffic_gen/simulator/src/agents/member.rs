//! What the members of a team say: they join, speak, share out tasks, wait for them, conclude, vote, leave; and whatever they
//! should not.

pub(super) mod nesting;

use std::collections::BTreeSet;

use schemas::bargain::Join;
use schemas::delivery::{Call, Closing, Delivery, Disposition, Outcome, ProgressReport, Receipt, RejectReason};
use schemas::ids::Capability;
use schemas::payload::{Accept, AttrValue, Reasoned, Terms};
use schemas::team::{
    Assign, AssignedTask, Conclude, Floor, Pause, ProposedConclusion, Say, Spoken, TaskMode, TaskStatus, TeamState,
};
use schemas::{Act, AgentId, MsgId, NegotiationId, OfferId, Payload, WireTime};

use super::{AgentContext, Draft};
use crate::faults::AgentFault;
use crate::points::Point;
use crate::scenario::{attr_name, teams};

/// Most acts of one member in one team: some never tire.
const SAID_MAX: u32 = 40;
/// Tasks of one assignment, at most.
const ASSIGNED_MAX: usize = 4;
/// Tasks of one assignment where sub-teams may be formed, at most: each that cannot be undoes all.
const NESTED_ASSIGNED_MAX: usize = 2;
/// First acts that share out tasks where sub-teams may be formed, in per mille.
const NESTED_ASSIGNS: u32 = 850;
/// Tasks that name an owner, in per mille.
const OWNED: u32 = 500;
/// Tasks that do where sub-teams may be formed, in per mille: those begin sooner.
const NESTED_OWNED: u32 = 750;
/// Leads that leave a team which goes on without them, in per mille of the notices they are told.
const LEAD_LEAVES: u32 = 25;
/// Late reports behind which the team is asked once more, in per mille.
const ASKED_AGAIN: u32 = 700;
/// What texts are made of: few words, so that some are nearly alike.
const WORDS: [&str; 8] = ["parcel", "north", "carry", "tomorrow", "eleven", "river", "bridge", "late"];

/// A member of a team, and what it remembers.
#[derive(Debug, Default)]
pub(super) struct SimulatedMember {
    /// Whether it called the team.
    is_caller: bool,
    /// Levels of sub-teams that may stand below the team, as far as it was told.
    depth_left: u32,
    /// When the team ends at the latest, as far as it was told.
    ends_by: Option<WireTime>,
    members: Vec<AgentId>,
    step: u32,
    turn: u32,
    /// What the team did after the latest step it was told, and when that was.
    state: Option<(TeamState, WireTime)>,
    said: u32,
    /// The greatest number of a task it was told.
    tasks: u32,
    /// The tasks that have not ended, as far as it was told.
    open: BTreeSet<u32>,
    /// What was said last.
    heard: Option<String>,
    /// The conclusions that were put to the vote.
    proposed: BTreeSet<OfferId>,
    /// Its last message that takes the floor.
    last: Option<(MsgId, Act)>,
}

impl SimulatedMember {
    /// Whoever calls a team that may have so many levels of sub-teams below it.
    pub(super) fn leading(depth_left: u32) -> Self {
        Self { is_caller: true, depth_left, ..Self::default() }
    }

    /// Joins, most of the time.
    pub(super) fn join(context: &mut AgentContext, delivery: &Delivery, call: &Call) -> Self {
        let depth_left = call.team.as_ref().map_or(0, |team| team.depth_left);
        let joining = context.joining(delivery, call);
        context.join(delivery, joining, |context| {
            let mut ppm = || AttrValue::Int(i64::try_from(context.draw(0..5) * 200_000).unwrap_or(0));
            let terms = Terms::from([(attr_name("fit"), ppm()), (attr_name("price"), ppm())]);
            let terms = if context.happens(700) { terms } else { Terms::new() };
            Join { terms, ..Join::default() }
        });
        Self { depth_left, ..Self::default() }
    }

    /// A message is written.
    pub(super) fn note_said(&mut self, msg_id: &MsgId, payload: &Payload) {
        let act = payload.act();
        if matches!(act, Act::Say | Act::Assign | Act::Pause | Act::Conclude) {
            self.last = Some((msg_id.clone(), act));
        }
    }

    /// Acts when it has the floor or a vote, and sometimes when it has not.
    pub(super) fn answer_floor(&mut self, context: &mut AgentContext, delivery: &Delivery, floor: &Floor) {
        // What was told before and comes later says nothing.
        if floor.step > self.step {
            self.count_floor(context, delivery, floor);
            self.note_floor(delivery, floor);
        }
        let window_ms = floor.act_by.map_or(200, |by| (by.0.since_us(delivery.envelope.ts.0) / 1000).max(1));
        let is_followed = self.members.len() > 2 && self.members.first() == Some(&context.id);
        if context.errs(AgentFault::Leave) || (is_followed && context.happens(LEAD_LEAVES)) {
            let after_ms = context.draw(0..200);
            context.reply(after_ms, delivery, Payload::End(Reasoned::default()));
        }
        self.meddle(context, delivery);
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

    fn note_floor(&mut self, delivery: &Delivery, floor: &Floor) {
        (self.step, self.turn) = (floor.step, floor.turn);
        self.state = Some((floor.state, delivery.envelope.ts));
        self.ends_by = Some(floor.ends_by);
        if !floor.members.is_empty() {
            self.members.clone_from(&floor.members);
        }
        for task in &floor.tasks {
            self.tasks = self.tasks.max(task.task);
            if matches!(task.status, TaskStatus::Done | TaskStatus::Failed) {
                self.open.remove(&task.task);
            } else {
                self.open.insert(task.task);
            }
        }
        if let Some(Spoken::Text { text }) = &floor.said {
            self.heard = Some(text.clone());
        }
        self.proposed.extend(floor.conclusion.as_ref().map(|proposed| proposed.offer_id));
    }

    /// Counts what a step that it had not been told shows.
    fn count_floor(&self, context: &AgentContext, delivery: &Delivery, floor: &Floor) {
        let before = self.state.map(|(state, _)| state);
        let was_waiting = matches!(before, Some(TeamState::Awaiting | TeamState::Paused));
        let is_waiting = matches!(floor.state, TeamState::Awaiting | TeamState::Paused);
        let timed_out = floor.tasks.iter().any(|task| task.code.as_deref() == Some("timeout"));
        let is_led_by_another = !self.members.is_empty() && self.members.first() != floor.members.first();
        let is_next = floor.step == self.step + 1;
        let in_one_record = self.state.is_some_and(|(_, at)| at == delivery.envelope.ts);
        let wakes = is_next && was_waiting && !is_waiting && !floor.tasks.is_empty();
        context.reached_if([
            (Point::TeamForced, floor.state == TeamState::Concluding),
            (
                Point::TeamForcedWithTasks,
                floor.state == TeamState::Concluding && (was_waiting || !self.open.is_empty()),
            ),
            (Point::MemberMuted, floor.muted.contains(&context.id)),
            (Point::TasksAwaited, floor.state == TeamState::Awaiting && !was_waiting),
            (Point::TeamPaused, floor.state == TeamState::Paused && !was_waiting),
            (Point::TeamWoken, wakes),
            (Point::WokenInPause, wakes && in_one_record && before == Some(TeamState::Paused)),
            (Point::OwnerSilent, before == Some(TeamState::Awaiting) && timed_out),
            (Point::LeadLeft, !floor.members.is_empty() && is_led_by_another),
            (Point::SayRepeated, matches!(floor.said, Some(Spoken::Repeats { .. }))),
        ]);
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
        let is_begun = self.depth_left == 0 || self.tasks > 0;
        if !is_forced && !is_begun && context.happens(NESTED_ASSIGNS) {
            return Payload::Assign(self.assignment(context, turn));
        }
        let may_pause = !self.open.is_empty() || context.happens(50);
        match context.draw(0..20) {
            _ if is_forced => Payload::Conclude(Conclude { turn, text: text(context) }),
            0..4 if may_pause => Payload::Pause(Pause { turn, triggers: self.triggers(context), text: None }),
            0..2 => Payload::Conclude(Conclude { turn, text: text(context) }),
            4..12 => Payload::Assign(self.assignment(context, turn)),
            _ => {
                let heard = self.heard.clone().filter(|_| context.happens(150));
                let text = heard.unwrap_or_else(|| text(context));
                Payload::Say(Say { turn, text, next: self.any_member(context, 500) })
            }
        }
    }

    /// Tasks for somebody, for anybody, for itself, now and then for nobody there is.
    fn assignment(&self, context: &mut AgentContext, turn: Option<u32>) -> Assign {
        let count = 1 + context.index(if self.depth_left > 0 { NESTED_ASSIGNED_MAX } else { ASSIGNED_MAX });
        let policy = match context.draw(0..10) {
            0 => Some("p0".to_owned()),
            1 => Some(teams::TASK_POLICY.to_owned()),
            _ => None,
        };
        let mode = if context.happens(500) { TaskMode::Sync } else { TaskMode::Async };
        context.reached(Point::TasksAssigned);
        Assign { turn, mode, policy, tasks: (0..count).map(|_| self.task(context)).collect() }
    }

    fn task(&self, context: &mut AgentContext) -> AssignedTask {
        let owner = self.any_member(context, if self.depth_left > 0 { NESTED_OWNED } else { OWNED });
        let requires = match context.draw(0..20) {
            _ if owner.is_some() => Vec::new(),
            0 => vec![capability("wings")],
            1..8 => vec![capability("parcels")],
            _ => Vec::new(),
        };
        // Only a task that goes by award has one; gateways refuse it elsewhere.
        let reply_within_per_mille = if owner.is_some() { 20 } else { 300 };
        let reply_within_ms = context.happens(reply_within_per_mille).then(|| context.draw(50..600));
        AssignedTask {
            title: text(context),
            text: text(context),
            owner,
            requires,
            reply_within_ms,
            perform_ms: self.perform_ms(context),
        }
    }

    /// Long enough for a sub-team, where one may be formed.
    fn perform_ms(&self, context: &mut AgentContext) -> Option<u64> {
        let left_ms = self.ends_by.map_or(0, |by| by.0.since_us(context.world.now()) / 1000);
        if self.depth_left > 0 && left_ms > 0 && context.happens(800) {
            return Some((left_ms * context.draw(25..65) / 100).max(100));
        }
        context.happens(300).then(|| context.draw(100..1500))
    }

    /// Some of the tasks it knows, the open ones mostly, now and then one that there is not.
    fn triggers(&self, context: &mut AgentContext) -> Vec<u32> {
        let mut triggers: BTreeSet<u32> = self.open.iter().copied().filter(|_| context.happens(800)).collect();
        if triggers.is_empty() || context.happens(100) {
            triggers.insert(1 + u32::try_from(context.draw(0..u64::from(self.tasks) + 2)).unwrap_or(0));
        }
        triggers.into_iter().collect()
    }

    /// Calls a task off, its own or another's; or calls a sub-team for one that is another's, mostly; or gives its own up.
    fn meddle(&self, context: &mut AgentContext, delivery: &Delivery) {
        self.usurp(context, delivery);
        self.give_up(context, delivery);
        let Some(task) = self.open.last().filter(|_| context.errs(AgentFault::Cancel)) else { return };
        let Some(task) = delivery.envelope.negotiation.task(*task) else { return };
        let after_ms = context.draw(0..300);
        context.say(after_ms, Draft::new(&task, Payload::Cancel(Reasoned::default())));
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

    /// A member whose assignment cannot be may say something else in its turn.
    pub(super) fn answer_not_understood(&mut self, context: &mut AgentContext, delivery: &Delivery) {
        let is_last = |last: &MsgId| delivery.envelope.in_reply_to.as_ref() == Some(last);
        let is_assignment = self.last.as_ref().is_some_and(|(last, act)| is_last(last) && *act == Act::Assign);
        if is_assignment && context.happens(800) {
            self.take_floor(context, delivery, TeamState::Discussing, 60);
        }
    }

    /// Counts what its own messages came to, and goes on where that leaves it the floor.
    pub(super) fn note_receipt(&mut self, context: &mut AgentContext, delivery: &Delivery, receipt: &Receipt) {
        let Some((_, act)) = self.last.clone().filter(|(last, _)| *last == receipt.ack_of) else { return };
        if receipt.disposition == Disposition::StaleRound {
            context.reached(Point::TurnCrossed);
        }
        self.turn = receipt.turn.unwrap_or(self.turn);
        let Some(step) = receipt.step.filter(|step| *step > self.step) else { return };
        self.step = step;
        self.tasks = self.tasks.max(receipt.tasks.iter().max().copied().unwrap_or(0));
        self.open.extend(&receipt.tasks);
        // A receipt does not say it.
        self.state = None;
        // Behind what may leave it the floor, nobody else says that it has it.
        if matches!(act, Act::Assign | Act::Pause) && context.happens(700) {
            self.take_floor(context, delivery, TeamState::Discussing, 100);
        }
    }
}

/// Counts how a team ended.
pub(super) fn note_closed(member: Option<&SimulatedMember>, context: &AgentContext, closing: &Closing) {
    let point = match (closing.outcome, closing.detail.as_deref()) {
        (Outcome::Concluded, _) => {
            if closing.conclusion.as_ref().is_some_and(|conclusion| conclusion.votes.is_some()) {
                context.reached(Point::ConclusionVoted);
                if member.is_some_and(|member| member.proposed.len() > 1) {
                    context.reached(Point::ConclusionVotedAgain);
                }
            }
            Point::TeamConcluded
        }
        (Outcome::NotFormed, _) => Point::TeamNotFormed,
        (Outcome::Unconcluded, Some("silence")) => {
            let asked = member.and_then(|member| member.state).map(|(state, _)| state);
            if asked != Some(TeamState::Concluding) {
                context.reached(Point::TeamMuted);
            }
            Point::TeamSilent
        }
        (Outcome::Unconcluded, Some("deadline")) => Point::TeamOverdue,
        (Outcome::Unconcluded, Some("rejected")) => Point::ConclusionRejected,
        (Outcome::Unconcluded, Some("left")) => Point::TeamLeft,
        _ => return,
    };
    context.reached(point);
}

/// Counts who joined and got no seat.
pub(super) fn note_rejected(member: Option<&SimulatedMember>, context: &AgentContext, reason: RejectReason) {
    if member.is_some() && reason == RejectReason::Outscored {
        context.reached(Point::SeatOutscored);
    }
}

/// Counts a report that comes of a task whose team has ended. Mostly the team is asked once more: it tells its end again, which no
/// result changes.
pub(super) fn note_late_report(context: &mut AgentContext, report: &ProgressReport, team: &NegotiationId) {
    if !matches!(report, ProgressReport::Done(_) | ProgressReport::Result(_)) {
        return;
    }
    context.reached(Point::TaskOutlived);
    if context.happens(ASKED_AGAIN) {
        let after_ms = context.draw(0..300);
        context.say(after_ms, Draft::new(team, Payload::End(Reasoned::default())));
    }
}

fn capability(name: &str) -> Capability {
    Capability::try_new(name).expect("a capability's name")
}

fn text(context: &mut AgentContext) -> String {
    let count = 3 + context.index(6);
    (0..count).map(|_| WORDS[context.index(WORDS.len())]).collect::<Vec<_>>().join(" ")
}
