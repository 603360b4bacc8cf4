//! Team (docs/spec/team.md): agents join, speak in turn, and conclude.
//!
//! ```text
//!   FORMING --seats--> DISCUSSING --conclude--> [VOTING] --> concluded
//!      |                   |  ^                   |
//!      |                   |  +-----rejected------+
//!      +--> not_formed     +--turns or time used up--> CONCLUDING --conclude--> ...   silence, hard end: unconcluded
//! ```
//!
//! One member holds the floor; an act of whoever holds it, or its silence, takes the turn. `opening.rs` is how a call opens a
//! team, `roster.rs` who is invited and who has a seat, `rules.rs` what becomes of a message, `transitions.rs` what follows from
//! it, `ballot.rs` the vote on a conclusion, `notices.rs` what members hear and see.

mod assigning;
mod ballot;
mod notices;
pub(crate) mod opening;
mod repetition;
mod roster;
mod rules;
mod tasks;
mod transitions;

use std::collections::VecDeque;
use std::sync::Arc;

use schemas::delivery::{CloseReason, Closing, Notification, Outcome};
use schemas::ids::{FamilyPlace, Position};
use schemas::team::{AtConclusion, Conclusion, MESSAGES_SPARE, TeamRules, TeamTask, VoteCount};
use schemas::{AgentId, AwardNo, DeliveryId, Digest, Lot, Payload, RegisterKey, Timestamp};
use serde::{Deserialize, Serialize};

use crate::acceptance::gate::GateFault;
use crate::acceptance::reputation::PinnedReputations;
use crate::effect::Deliver;
use crate::limits::Limits;
use crate::negotiation::disposition::{Incoming, ProtocolRules, ReceiptChange, header_and_phase};
use crate::negotiation::family::{FamilyAction, FamilyOrder};
use crate::negotiation::misunderstanding::ActSet;
use crate::negotiation::protocols::{ProtocolEnd, Timer, TimerKind};
use crate::negotiation::tombstone::Tombstone;
use crate::negotiation::view::NegotiationView;
use crate::negotiation::{CALL_ORDINAL, Header, InputContext, Party, Refusal, Ruling, delivery_id};
use crate::policy::PinnedPolicy;
use schemas::protocols::{Phase, Protocol};

use ballot::{Ballot, ConclusionText};
use notices::SaidBefore;
pub use notices::TeamView;
use repetition::DistinctSays;
use roster::{MemberStanding, Roster};
use rules::{Judge, TeamAction};
use tasks::{TaskList, TasksAwaited};

/// `join_by`.
const JOIN: TimerKind = TimerKind::of(Protocol::Team, 24);
/// The time to vote is over.
const VOTE: TimerKind = TimerKind::of(Protocol::Team, 25);
/// The floor was held in silence.
const SPEAK: TimerKind = TimerKind::of(Protocol::Team, 26);
/// From now on the team only concludes.
const WRAP: TimerKind = TimerKind::of(Protocol::Team, 27);
/// What stands where a call named no policy.
const POLICY_WORD: &str = "team";
/// No conclusion: nobody spoke.
const SILENCE: &str = "silence";
/// No conclusion: the time is over.
const DEADLINE: &str = "deadline";
/// No conclusion: none was voted for.
const REJECTED: &str = "rejected";
/// No conclusion: the members left.
const LEFT: &str = "left";
/// Called off: the award it works for is committed no longer.
const ORPHANED: &str = "orphaned";

/// One open team. `P` is what it runs under: its policies, and in a snapshot their digests.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Team<P = Arc<PinnedPolicy>> {
    header: Header,
    /// Ranks who joins, if the call named one.
    policy: P,
    /// What tasks run under.
    task_policy: P,
    /// What the call pinned for each of the invited.
    reputations: PinnedReputations,
    #[serde(with = "schemas::text::json")]
    rules: Box<TeamRules>,
    /// Whether the call named a policy.
    is_ranked: bool,
    /// Levels of sub-teams that may stand below it.
    depth_left: u32,
    roster: Roster,
    phase: Phase,
    /// Everybody must have joined by then.
    join_by: Timestamp,
    /// Where the call stands: the deliveries of it have their ids from that.
    called_at: Position,
    /// From then on it only concludes.
    wrap_at: Timestamp,
    has_wrapped: bool,
    /// Changes told so far.
    step: u32,
    /// The turn, 0 while it forms.
    turn: u32,
    /// Index of the member that holds the floor, or held it last.
    holder: usize,
    /// The holder must act by then.
    act_by: Timestamp,
    /// Who has had the floor since it only concludes.
    asked: Vec<usize>,
    ballot: Option<Ballot>,
    /// Votes begun.
    attempts: u32,
    recap: VecDeque<SaidBefore>,
    /// Of teams whose rules have an eye on repetition.
    says: DistinctSays,
    tasks: TaskList,
    /// What it waits for, while it does.
    awaited: Option<TasksAwaited>,
    /// How it ended. Open teams, which snapshots hold, have not.
    ended: Option<TeamEnd>,
}

/// How a team ended, beside its outcome.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct TeamEnd {
    pub(crate) detail: Option<Box<str>>,
    #[serde(with = "schemas::text::json")]
    conclusion: Option<Box<Conclusion>>,
    /// Results as digests.
    #[serde(with = "schemas::text::json")]
    tasks: Vec<TeamTask>,
    /// Indices of those that were members at the end, ascending.
    members: Box<[u16]>,
    /// Index of the lead at the end.
    pub(crate) lead: Option<u16>,
}

impl ProtocolRules for Team {
    /// The index of the agent.
    type Speaker = usize;
    type Action = TeamAction;

    const PROTOCOL: Protocol = Protocol::Team;
    const STRIKE: TeamAction = TeamAction::Strike;

    header_and_phase!();

    fn view(&self, viewer: &AgentId, _: Timestamp) -> Option<NegotiationView> {
        notices::view_of(self, viewer)
    }

    fn handle_abort(&mut self, code: &str, context: &mut InputContext<'_>) {
        self.end(Outcome::Aborted, Some(code), None, context);
    }

    fn handle_hard_deadline(&mut self, context: &mut InputContext<'_>) {
        if self.phase == Phase::Forming {
            self.end(Outcome::NotFormed, None, None, context);
        } else {
            self.end(Outcome::Unconcluded, Some(DEADLINE), None, context);
        }
    }

    fn next_timer(&self) -> Option<Timer> {
        let hard = (self.header.ends_by, TimerKind::HARD);
        let own = match (self.phase, &self.ballot) {
            (Phase::Forming, _) => Some((self.join_by, JOIN)),
            (Phase::Discussing | Phase::Concluding, _) => Some((self.act_by, SPEAK)),
            (Phase::Voting, Some(ballot)) => Some((ballot.vote_by, VOTE)),
            (_, _) => None,
        };
        let is_wrapping = !self.has_wrapped && self.phase != Phase::Forming;
        let wrap = is_wrapping.then_some((self.wrap_at, WRAP));
        (self.phase != Phase::Ended).then(|| own.into_iter().chain(wrap).fold(hard, std::cmp::min))
    }

    fn fire(&mut self, timer: TimerKind, context: &mut InputContext<'_>) {
        match timer {
            JOIN => self.form(CloseReason::Deadline, context),
            SPEAK => self.handle_silence(context),
            VOTE => self.handle_vote_timeout(context),
            WRAP => self.handle_wrap(context),
            // No timer of it: left alone it would be due for ever.
            _ => self.handle_abort("unknown_timer", context),
        }
    }

    fn tombstone(&self, limits: &Limits) -> Tombstone {
        let parties: Vec<&Party> = self.roster.parties().collect();
        let end = ProtocolEnd::Team(self.ended.clone().unwrap_or_default());
        Tombstone::of(&self.header, self.turn, &parties, end, limits)
    }

    fn header_and_parties(&mut self) -> (&mut Header, Vec<&mut Party>) {
        (&mut self.header, self.roster.parties_mut().collect())
    }

    fn check(&self) -> Result<(), &'static str> {
        let ensure = |holds: bool, otherwise| if holds { Ok(()) } else { Err(otherwise) };
        let is_open = Protocol::Team.phases().contains(&self.phase) && self.header.outcome.is_none();
        ensure(is_open, "an open team has ended")?;
        self.roster.check()?;
        let members = self.roster.invited() + 1;
        let mut named = self.asked.iter().chain(self.recap.iter().map(SaidBefore::by)).chain([&self.holder]);
        ensure(named.all(|index| *index < members), "a team names somebody that was not invited")?;
        self.tasks.check()?;
        self.says.check()?;
        let is_waiting = matches!(self.phase, Phase::Awaiting | Phase::Paused);
        ensure(is_waiting == self.awaited.is_some(), "a team waits for nothing")?;
        let is_known = |awaited: &TasksAwaited| awaited.is_within(members, &self.tasks);
        ensure(self.awaited.as_ref().is_none_or(is_known), "a team waits for what is not there")?;
        ensure((self.phase == Phase::Voting) == self.ballot.is_some(), "a team votes on nothing")?;
        ensure(self.ballot.as_ref().is_none_or(|ballot| ballot.is_within(members)), "a vote is nobody's")
    }

    fn speaker(&self, agent: &AgentId) -> Option<usize> {
        self.roster.index_of(agent)
    }

    fn party(&self, speaker: usize) -> &Party {
        &self.roster.member(speaker).party
    }

    fn party_mut(&mut self, speaker: usize) -> &mut Party {
        &mut self.roster.member_mut(speaker).party
    }

    fn invited(&self) -> usize {
        self.roster.invited()
    }

    fn messages_max(&self, _: &Limits) -> usize {
        usize::try_from(self.rules.turns).unwrap_or(usize::MAX).saturating_add(MESSAGES_SPARE)
    }

    fn leaves(&self, _: usize, payload: &Payload) -> bool {
        matches!(payload, Payload::End(_) | Payload::Cancel(_))
    }

    fn gate_code(&self, fault: GateFault) -> String {
        fault.code(&self.policy.policy)
    }

    fn hear(&mut self, speaker: usize, _: &InputContext<'_>) {
        self.roster.member_mut(speaker).hear();
    }

    fn judge(
        &self,
        speaker: usize,
        incoming: &Incoming,
        context: &InputContext<'_>,
    ) -> Result<Ruling<TeamAction>, Refusal> {
        Judge(self).judge_message(speaker, incoming, context).map(Ruling::ok)
    }

    fn expected_acts(&self, speaker: usize) -> ActSet {
        Judge(self).legal_acts(speaker)
    }

    /// The receipt of what changes a team is its sender's notice of the change (docs/spec/team.md#tm-54).
    fn tells_by_receipt(&self, action: &TeamAction) -> bool {
        match action {
            TeamAction::Say(_) | TeamAction::Assign(..) | TeamAction::Pause(..) | TeamAction::Conclude(_) => true,
            TeamAction::Leave => self.phase != Phase::Forming,
            TeamAction::Nothing
            | TeamAction::Strike
            | TeamAction::Join(..)
            | TeamAction::Decline
            | TeamAction::Vote(_)
            | TeamAction::Cancel => false,
        }
    }

    fn receipt_change(&self) -> Option<ReceiptChange> {
        let change = || ReceiptChange { step: self.step, turn: self.turn, tasks: self.tasks.opened_in(self.step) };
        self.header.outcome.is_none().then(change)
    }

    fn follow(&mut self, speaker: usize, action: TeamAction, context: &mut InputContext<'_>) {
        match action {
            TeamAction::Nothing => {}
            TeamAction::Strike => self.strike(speaker, context),
            TeamAction::Join(offer, capabilities) => self.join(speaker, offer, capabilities, context),
            TeamAction::Decline => self.decline(speaker, MemberStanding::Declined, context),
            TeamAction::Say(said) => self.say(speaker, *said, context),
            TeamAction::Assign(openings, is_awaited) => self.assign(speaker, openings, is_awaited, context),
            TeamAction::Pause(triggers, text) => self.pause(speaker, &triggers, text, context),
            TeamAction::Conclude(conclusion) => self.conclude(conclusion, context),
            TeamAction::Vote(is_for) => self.vote(speaker, is_for, context),
            TeamAction::Leave => self.leave(speaker, context),
            TeamAction::Cancel => self.end(Outcome::Cancelled, None, None, context),
        }
    }

    fn policies(&self) -> Vec<&Arc<PinnedPolicy>> {
        vec![&self.policy, &self.task_policy]
    }

    /// The call was not delivered to one of whom nothing was heard since: nobody waits for it (docs/spec/team.md#tm-14).
    fn handle_delivery_failure(
        &mut self,
        delivery: DeliveryId,
        to: &AgentId,
        may_answer: bool,
        context: &mut InputContext<'_>,
    ) {
        let Some(index) = self.roster.index_of(to) else { return };
        let call = delivery_id(context.lane, &self.header.id, self.called_at, call_ordinal(index), to);
        let is_awaited = self.phase == Phase::Forming && self.roster.member(index).is_unheard();
        if is_awaited && call == delivery {
            let standing = if may_answer { MemberStanding::Undelivered } else { MemberStanding::Declined };
            self.decline(index, standing, context);
        }
    }
}

impl Team<Digest> {
    /// What a snapshot holds, under the policies whose digests it names; absent where one is missing.
    pub(crate) fn under(self, policy: impl Fn(Digest) -> Option<Arc<PinnedPolicy>>) -> Option<Team> {
        Some(Team {
            policy: policy(self.policy)?,
            task_policy: policy(self.task_policy)?,
            reputations: self.reputations,
            header: self.header,
            rules: self.rules,
            is_ranked: self.is_ranked,
            depth_left: self.depth_left,
            roster: self.roster,
            phase: self.phase,
            join_by: self.join_by,
            called_at: self.called_at,
            wrap_at: self.wrap_at,
            has_wrapped: self.has_wrapped,
            step: self.step,
            turn: self.turn,
            holder: self.holder,
            act_by: self.act_by,
            asked: self.asked,
            ballot: self.ballot,
            attempts: self.attempts,
            recap: self.recap,
            says: self.says,
            tasks: self.tasks,
            awaited: self.awaited,
            ended: self.ended,
        })
    }
}

impl Team {
    /// The agent that leads, whom its tasks obey.
    pub(crate) fn lead(&self) -> Option<&AgentId> {
        self.roster.lead().map(|lead| self.roster.agent(lead))
    }

    /// Whether an agent was a member, and has left.
    pub(crate) fn has_left(&self, agent: &AgentId) -> bool {
        let left = |index| self.roster.member(index).standing == MemberStanding::Left;
        self.roster.index_of(agent).is_some_and(left)
    }

    /// Does what another of its family orders.
    pub(crate) fn handle_order(&mut self, action: FamilyAction, context: &mut InputContext<'_>) {
        match action {
            FamilyAction::Progress(number, progress) => self.handle_progress(number, progress, context),
            FamilyAction::ParentEnded => self.handle_parent_ended(context),
            FamilyAction::Abort => self.handle_abort("task_aborted", context),
            FamilyAction::OpenTask(_)
            | FamilyAction::CallOff
            | FamilyAction::MemberLeft(_)
            | FamilyAction::DetachFromTeam(_)
            | FamilyAction::SubTeamCalled(_)
            | FamilyAction::SubTeamConcluded(..) => debug_assert!(false, "an order goes to the parent or a child"),
        }
    }

    /// The id of its policy, or the word for none.
    fn policy_id(&self) -> Arc<str> {
        if self.is_ranked { Arc::clone(&self.policy.id) } else { Arc::from(POLICY_WORD) }
    }

    /// Under which the formation is registered.
    fn formed_key(&self) -> RegisterKey {
        RegisterKey::Award(self.header.id.clone(), Lot(0), AwardNo(1))
    }

    /// Enters the terminal state: the end is registered, then told to members, and of a team that never formed to everybody
    /// that has not declined (docs/spec/team.md#tm-62).
    fn end(
        &mut self,
        outcome: Outcome,
        detail: Option<&str>,
        conclusion: Option<(ConclusionText, Option<VoteCount>)>,
        context: &mut InputContext<'_>,
    ) {
        debug_assert!(self.header.outcome.is_none(), "a team has one end");
        self.header.outcome = Some(outcome);
        let is_formed = self.phase != Phase::Forming;
        let conclusion = conclusion.map(|(conclusion, votes)| Box::new(self.conclusion_notice(conclusion, votes)));
        let awards = u32::from(conclusion.is_some());
        let detail = detail.map(str::to_owned);
        let tasks = self.tasks.closed();
        let told = Arc::new(Notification::Closed(Closing {
            detail: detail.clone(),
            conclusion: conclusion.clone(),
            tasks: tasks.clone(),
            ..Closing::new(outcome, self.header.chain)
        }));
        let before = is_formed.then(|| self.formed_key());
        let after = self.header.register_end(outcome, before, context);
        for index in self.roster.concerned() {
            let in_reply_to = (index == 0).then(|| self.header.call_msg_id.clone());
            let delivery = self.header.delivery(context, self.roster.agent(index), Arc::clone(&told));
            context.deliver(Deliver { in_reply_to, after: after.clone(), ..delivery });
        }
        self.header.announce_end(outcome, context);
        let members = self.roster.seated().map(|index| u16::try_from(index).unwrap_or(u16::MAX)).collect();
        let detail = detail.map(String::into_boxed_str);
        let lead = self.roster.lead().and_then(|lead| u16::try_from(lead).ok());
        self.ended = Some(TeamEnd { detail, conclusion, tasks, members, lead });
        self.raise_conclusion(context);
        self.release_tasks(outcome, context);
        self.finish(outcome, self.policy_id(), (self.turn, 0, awards), context);
    }

    /// What a sub-team has concluded is the result of its task (docs/spec/team.md#tm-65).
    fn raise_conclusion(&self, context: &mut InputContext<'_>) {
        let conclusion = self.ended.as_ref().and_then(|ended| ended.conclusion.as_deref());
        let FamilyPlace::SubTeam { award_no, .. } = self.header.id.place() else { return };
        let (Some(conclusion), Some(to)) = (conclusion, self.header.id.parent()) else { return };
        let action = FamilyAction::SubTeamConcluded(award_no, Box::from(conclusion.text.as_str()));
        context.orders.give(FamilyOrder { to, cause: self.header.chain, action });
    }

    /// What becomes of the tasks that are open at the end (docs/spec/team.md#tm-49).
    fn release_tasks(&self, outcome: Outcome, context: &mut InputContext<'_>) {
        match (outcome, self.rules.at_conclusion, self.lead()) {
            (Outcome::Concluded, AtConclusion::Leave, Some(lead)) => {
                self.order_tasks(|| FamilyAction::DetachFromTeam(lead.clone()), context);
            }
            (Outcome::Aborted, ..) => self.order_tasks(|| FamilyAction::Abort, context),
            (..) => self.order_tasks(|| FamilyAction::CallOff, context),
        }
    }

    fn conclusion_notice(&self, conclusion: ConclusionText, votes: Option<VoteCount>) -> Conclusion {
        Conclusion {
            by: self.roster.agent(conclusion.by).clone(),
            offer_id: conclusion.offer_id,
            text: conclusion.text.into_string(),
            digest: conclusion.digest,
            turn: conclusion.turn,
            votes,
        }
    }
}

/// The ordinal of the call to an invited agent.
fn call_ordinal(index: usize) -> u32 {
    CALL_ORDINAL + u32::try_from(index).unwrap_or(0)
}
