//! What becomes of a message in an open team (docs/spec/team.md#what-is-legal). Judging changes nothing.

use std::ops::Deref;

use schemas::bargain::Join;
use schemas::delivery::Disposition;
use schemas::payload::{Accept, Offer};
use schemas::team::{Assign, AtConclusion, Conclude, OnRepeat, Pause, Say, TaskMode};
use schemas::{Act, Digest, OfferId, Payload, Timestamp};

use super::Team;
use super::assigning::Assignment;
use super::ballot::ConclusionText;
use super::repetition::Sketch;
use super::roster::{JoinOffer, MemberStanding};
use crate::acceptance::gate::{self, CallGates};
use crate::acceptance::score::score;
use crate::negotiation::InputContext;
use crate::negotiation::disposition::Incoming;
use crate::negotiation::family::TaskOpening;
use crate::negotiation::misunderstanding::{ActSet, NotUnderstoodReason};
use crate::negotiation::{FollowUp, Refusal};
use schemas::protocols::Phase;

/// What follows from a message.
#[derive(Debug, Default)]
pub(crate) enum TeamAction {
    #[default]
    Nothing,
    Strike,
    Join(JoinOffer, Vec<schemas::ids::Capability>),
    Decline,
    Say(Box<WellSaid>),
    /// The tasks it opens, and whether they are waited for.
    Assign(Vec<TaskOpening>, bool),
    /// The numbers of tasks, and why they are waited for.
    Pause(Vec<u32>, Option<Box<str>>),
    Conclude(ConclusionText),
    Vote(bool),
    Leave,
    Cancel,
}

/// A say that is heard.
#[derive(Debug)]
pub(crate) struct WellSaid {
    pub(super) text: Box<str>,
    /// Index of who gets the floor.
    pub(super) next: usize,
    /// For later says to be compared with; absent where nobody compares.
    pub(super) sketch: Option<Sketch>,
    /// The step whose say it repeats.
    pub(super) repeats: Option<u32>,
}

/// The acts by which the floor is used.
const FLOOR_ACTS: [Act; 4] = [Act::Say, Act::Assign, Act::Pause, Act::Conclude];

/// Judges messages to a team.
pub(super) struct Judge<'a>(pub(super) &'a Team);

impl Deref for Judge<'_> {
    type Target = Team;

    fn deref(&self) -> &Team {
        self.0
    }
}

impl Judge<'_> {
    /// What the message meets in the table of acts and states.
    pub(super) fn judge_message(
        &self,
        speaker: usize,
        incoming: &Incoming,
        context: &InputContext<'_>,
    ) -> Result<TeamAction, Refusal> {
        let is_second_call =
            matches!(&incoming.payload, Payload::Cfp(cfp) if cfp.team.as_ref().is_some_and(|team| team.of.is_some()));
        if is_second_call && speaker == 0 {
            Err(Refusal::out_of_turn(NotUnderstoodReason::Taken))
        } else if self.phase == Phase::Forming {
            self.judge_forming(speaker, incoming, context)
        } else if self.roster.member(speaker).is_seated() {
            self.judge_member(speaker, incoming, context)
        } else {
            Err(self.refuse_unseated(speaker, &incoming.payload))
        }
    }

    /// Whoever has no seat hears nothing more (docs/spec/team.md#tm-21).
    fn refuse_unseated(&self, speaker: usize, payload: &Payload) -> Refusal {
        let has_left = self.roster.member(speaker).standing == MemberStanding::Left;
        if matches!(payload, Payload::Join(_)) && !has_left {
            Refusal::silent(Disposition::Late)
        } else {
            Refusal::answered(Disposition::Closed, FollowUp::Closed)
        }
    }

    fn judge_forming(
        &self,
        speaker: usize,
        incoming: &Incoming,
        context: &InputContext<'_>,
    ) -> Result<TeamAction, Refusal> {
        let standing = self.roster.member(speaker).standing;
        let may_join = matches!(standing, MemberStanding::Invited | MemberStanding::Undelivered);
        match (&incoming.payload, standing) {
            (Payload::End(_) | Payload::Cancel(_), _) if speaker == 0 => Ok(TeamAction::Cancel),
            (Payload::Join(join), _) if may_join => self.judge_join(speaker, join, incoming, context),
            (Payload::Refuse(_) | Payload::NotUnderstood(_), _) if may_join => Ok(TeamAction::Decline),
            (Payload::End(_), MemberStanding::Invited | MemberStanding::Undelivered | MemberStanding::Joined) => {
                Ok(TeamAction::Decline)
            }
            (_, _) => Err(Refusal::out_of_turn(NotUnderstoodReason::OutOfTurn)),
        }
    }

    /// JOIN (docs/spec/team.md#tm-15): a policy that is named gates and scores what it offers.
    fn judge_join(
        &self,
        speaker: usize,
        join: &Join,
        incoming: &Incoming,
        context: &InputContext<'_>,
    ) -> Result<TeamAction, Refusal> {
        let policy = &self.policy.policy;
        let mut offered = JoinOffer { position: context.position, score: 0, terms: join.terms.clone() };
        if self.is_ranked {
            let offer = Offer { terms: join.terms.clone(), ..Offer::default() };
            let asked = CallGates { currency: None, documents: None };
            let refused = |fault| Refusal::answered(Disposition::PolicyReject, FollowUp::Policy(fault));
            let weighed = self.reputations.weighed(policy, speaker.saturating_sub(1), &join.terms).map_err(refused)?;
            gate::check(policy, asked, (&offer, &weighed), Timestamp::MAX, context.now).map_err(refused)?;
            offered.score = score(policy, &weighed);
        }
        Ok(TeamAction::Join(offered, incoming.capabilities.clone()))
    }

    fn judge_member(
        &self,
        speaker: usize,
        incoming: &Incoming,
        context: &InputContext<'_>,
    ) -> Result<TeamAction, Refusal> {
        let payload = &incoming.payload;
        match (payload, self.phase) {
            (Payload::End(_), _) => Ok(TeamAction::Leave),
            (Payload::Cancel(_), _) if self.roster.lead() == Some(speaker) => Ok(TeamAction::Cancel),
            (
                Payload::Say(Say { turn, .. })
                | Payload::Pause(Pause { turn, .. })
                | Payload::Conclude(Conclude { turn, .. })
                | Payload::Assign(Assign { turn, .. }),
                _,
            ) => {
                Refusal::check_round(*turn, self.turn)?;
                self.check_floor(speaker, payload.act())?;
                self.judge_floor(speaker, incoming, context)
            }
            (_, Phase::Concluding) if self.holder == speaker => {
                Err(Refusal::out_of_turn(NotUnderstoodReason::MustConclude))
            }
            (Payload::Accept(accept), Phase::Voting) => {
                self.judge_vote(speaker, accept).map(|()| TeamAction::Vote(true))
            }
            (Payload::Refuse(_), Phase::Voting) if !self.has_voted(speaker) => Ok(TeamAction::Vote(false)),
            (_, _) => Err(Refusal::out_of_turn(NotUnderstoodReason::OutOfTurn)),
        }
    }

    /// Whether the floor is the speaker's, in a state that takes the act.
    fn check_floor(&self, speaker: usize, act: Act) -> Result<(), Refusal> {
        let is_open = matches!(self.phase, Phase::Discussing | Phase::Concluding);
        if !is_open || self.holder != speaker {
            return Err(Refusal::strike(NotUnderstoodReason::OutOfTurn));
        }
        if self.phase == Phase::Concluding && act != Act::Conclude {
            return Err(Refusal::out_of_turn(NotUnderstoodReason::MustConclude));
        }
        Ok(())
    }

    fn judge_floor(
        &self,
        speaker: usize,
        incoming: &Incoming,
        context: &InputContext<'_>,
    ) -> Result<TeamAction, Refusal> {
        match (&incoming.payload, self.phase) {
            (Payload::Say(say), _) => self.judge_say(speaker, say),
            (Payload::Pause(pause), _) => self.judge_pause(pause),
            (Payload::Assign(assign), _) => {
                let assignment = Assignment { team: self, assigner: speaker, assign, incoming, context };
                assignment.openings().map(|openings| TeamAction::Assign(openings, assign.mode == TaskMode::Sync))
            }
            (Payload::Conclude(_), _) if self.has_unsettled_tasks() => {
                let refusal = Refusal::plain(Disposition::PolicyReject, NotUnderstoodReason::OpenTasks);
                Err(refusal.expecting(|| ActSet::of(&[Act::Pause, Act::Say])))
            }
            (Payload::Conclude(conclude), _) => Ok(TeamAction::Conclude(ConclusionText {
                offer_id: OfferId(context.position),
                by: speaker,
                text: Box::from(conclude.text.as_str()),
                digest: Digest::of_bytes(conclude.text.as_bytes()),
                turn: self.turn,
            })),
            (_, _) => Err(Refusal::out_of_turn(NotUnderstoodReason::OutOfTurn)),
        }
    }

    /// Whether tasks are open that must have ended before a conclusion.
    fn has_unsettled_tasks(&self) -> bool {
        self.rules.at_conclusion == AtConclusion::Settle && !self.tasks.open().is_empty()
    }

    fn judge_say(&self, speaker: usize, say: &Say) -> Result<TeamAction, Refusal> {
        let unknown = || Refusal::malformed(NotUnderstoodReason::UnknownMember, "/payload/next");
        let next = match &say.next {
            Some(next) => self.roster.active(next).ok_or_else(unknown)?,
            None => self.roster.next_after(speaker).unwrap_or(speaker),
        };
        let sketch = (self.rules.on_repeat != OnRepeat::Pass).then(|| Sketch::of(&say.text));
        let repeats = sketch.as_ref().and_then(|sketch| self.says.repeated_by(sketch, self.rules.repeat_ppm));
        if repeats.is_some() && self.rules.on_repeat == OnRepeat::Refuse {
            return Err(Refusal::plain(Disposition::PolicyReject, NotUnderstoodReason::Repeated));
        }
        Ok(TeamAction::Say(Box::new(WellSaid { text: Box::from(say.text.as_str()), next, sketch, repeats })))
    }

    fn judge_pause(&self, pause: &Pause) -> Result<TeamAction, Refusal> {
        let unknown = pause.triggers.iter().position(|task| !self.tasks.knows(*task));
        if let Some(index) = unknown {
            let pointer = format!("/payload/triggers/{index}");
            return Err(Refusal::malformed(NotUnderstoodReason::UnknownTask, pointer));
        }
        Ok(TeamAction::Pause(pause.triggers.clone(), pause.text.as_deref().map(Box::from)))
    }

    fn has_voted(&self, speaker: usize) -> bool {
        self.ballot.as_ref().is_none_or(|ballot| ballot.has_voted(speaker))
    }

    /// A vote for the conclusion that is voted on, by its id and its digest (docs/spec/team.md#tm-34).
    fn judge_vote(&self, speaker: usize, accept: &Accept) -> Result<(), Refusal> {
        let Some(ballot) = self.ballot.as_ref().filter(|ballot| !ballot.has_voted(speaker)) else {
            return Err(Refusal::out_of_turn(NotUnderstoodReason::OutOfTurn));
        };
        if ballot.conclusion.offer_id != accept.offer_id {
            return Err(Refusal::out_of_turn(NotUnderstoodReason::Standing));
        }
        if accept.terms_digest != Some(ballot.conclusion.digest) {
            let pointer = "/payload/terms_digest";
            return Err(Refusal::malformed(NotUnderstoodReason::TermsDigest, pointer));
        }
        Ok(())
    }

    /// What a party could legally have said: `expected` of a NOT_UNDERSTOOD.
    pub(super) fn legal_acts(&self, speaker: usize) -> ActSet {
        let standing = self.roster.member(speaker).standing;
        let is_lead = if self.phase == Phase::Forming { speaker == 0 } else { self.roster.lead() == Some(speaker) };
        let mut acts = match (self.phase, standing) {
            (Phase::Forming, MemberStanding::Invited | MemberStanding::Undelivered) => {
                vec![Act::Join, Act::Refuse, Act::NotUnderstood]
            }
            (Phase::Discussing, _) if self.holder == speaker => FLOOR_ACTS.to_vec(),
            (Phase::Concluding, _) if self.holder == speaker => vec![Act::Conclude],
            (Phase::Voting, _) if !self.has_voted(speaker) => vec![Act::Accept, Act::Refuse],
            (_, _) => Vec::new(),
        };
        if standing != MemberStanding::Declined {
            acts.push(Act::End);
        }
        if is_lead {
            acts.push(Act::Cancel);
        }
        ActSet::of(&acts)
    }
}
