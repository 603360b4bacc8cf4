//! One message: as far as every protocol judges alike (docs/spec/messages.md#ms-32 to #ms-36), then by the table of acts and states
//! (docs/spec/team.md).

use policy_core::Limits;
use schemas::bargain::Join;
use schemas::delivery::{Disposition, Outcome, Receipt, RejectReason, Rejection};
use schemas::ids::Capability;
use schemas::payload::{Accept, Offer, Terms};
use schemas::record::{AdmittedMessage, Message, Pinned};
use schemas::team::{Assign, AtConclusion, MESSAGES_SPARE, OnRepeat, Pause, Say, TaskMode};
use schemas::{Digest, OfferId, Payload, Timestamp};

use super::{JoinAnswer, Team, TeamStage, assigning, repetition};
use crate::contract_net::messages::is_stale;
use crate::contract_net::task::TaskCall;
use crate::contract_net::{Said, Verdict};
use crate::{Moment, fact, scoring};

type TeamVerdict = Verdict<TeamAction>;

#[derive(Default)]
enum TeamAction {
    #[default]
    Nothing,
    Strike,
    Join(Terms),
    Decline,
    /// What is said, and who gets the floor.
    Say(String, Option<usize>),
    /// The tasks it opens.
    Assign(Vec<TaskCall>, TaskMode),
    /// The tasks it waits for, and why.
    Pause(Vec<u32>, Option<String>),
    Conclude(String),
    Vote(bool),
    Leave,
    Cancel,
}

impl Team {
    /// One message of the initiator, or of one of the invited.
    pub(crate) fn hear(&mut self, admitted: &AdmittedMessage, message: Message, moment: Moment, limits: &Limits) {
        let AdmittedMessage { from, digest, .. } = admitted;
        let who = self.people.iter().position(|person| person.agent == *from).expect("a party");
        let (msg_id, seq, payload) = (message.envelope.msg_id, message.envelope.seq, message.payload);
        self.answered_at_once = false;
        self.people[who].was_heard = true;
        let party = &self.people[who].party;
        if let Some(earlier) = party.said.iter().find(|said| said.msg_id == msg_id) {
            return self.answer_again(who, &earlier.clone(), *digest);
        }
        let is_full = party.said.len() >= self.messages_max(limits);
        let may_go = matches!(payload, Payload::End(_) | Payload::Cancel(_));
        let verdict = if is_full && !may_go && self.outcome.is_none() {
            TeamVerdict::of(Disposition::RateLimited)
        } else if is_stale(party.last_seq, seq) {
            TeamVerdict::of(Disposition::StaleSeq)
        } else if self.outcome.is_some() {
            let reply = party.reply_after_end((&msg_id, Disposition::Closed), is_full, self.closed(who));
            TeamVerdict { reply: Some(reply), ..TeamVerdict::of(Disposition::Closed) }
        } else {
            self.judge(who, &payload, admitted.pinned.as_deref(), moment)
        };
        self.answered_at_once = matches!(verdict.then, TeamAction::Conclude(_) | TeamAction::Leave);
        self.receipt_step = None;
        self.receipt_tasks = Vec::new();
        self.follow(who, verdict.then, &admitted.capabilities, moment);
        let step = self.receipt_step.take();
        let receipt = Receipt {
            step,
            turn: step.map(|_| self.turn),
            tasks: std::mem::take(&mut self.receipt_tasks),
            ..Receipt::new(msg_id.clone(), verdict.disposition)
        };
        self.facts.push(fact::ack(&self.id, from, &receipt));
        self.facts.extend(verdict.reply.clone());
        let said = Said { msg_id, digest: *digest, disposition: verdict.disposition, reply: verdict.reply };
        self.people[who].party.note(said, seq, is_full);
    }

    /// One for each turn, and some besides.
    fn messages_max(&self, limits: &Limits) -> usize {
        if self.outcome.is_some() {
            return limits.messages_per_party_max;
        }
        usize::try_from(self.rules.turns).expect("at most a thousand") + MESSAGES_SPARE
    }

    /// Repeats (docs/spec/messages.md#ms-33). After the end only CLOSED is told again.
    fn answer_again(&mut self, who: usize, earlier: &Said, digest: Digest) {
        let is_same = earlier.digest == digest;
        let disposition = if is_same { Disposition::Duplicate } else { Disposition::Conflict };
        let to = &self.people[who].agent;
        self.facts.push(fact::ack_again(&self.id, to, &earlier.msg_id, disposition, earlier.disposition));
        if is_same && self.outcome.is_none() {
            self.facts.extend(earlier.reply.clone());
        } else if is_same && earlier.disposition == Disposition::Closed {
            let (party, to) = (&self.people[who].party, (&earlier.msg_id, earlier.disposition));
            self.facts.push(party.reply_after_end(to, false, self.closed(who)));
        }
    }

    fn follow(&mut self, who: usize, then: TeamAction, capabilities: &[Capability], moment: Moment) {
        match then {
            TeamAction::Nothing => {}
            TeamAction::Strike => self.strike(who, moment),
            TeamAction::Join(terms) => {
                self.people[who].answer = JoinAnswer::Joined(OfferId(moment.position), terms);
                self.people[who].capabilities = capabilities.to_vec();
                self.form_if_answered(moment);
            }
            TeamAction::Decline => {
                self.people[who].answer = JoinAnswer::Declined;
                self.form_if_answered(moment);
            }
            TeamAction::Say(text, next) => self.say(who, text, next, moment),
            TeamAction::Assign(calls, mode) => self.assign(who, calls, mode, moment),
            TeamAction::Pause(triggers, text) => self.pause(who, &triggers, text, moment),
            TeamAction::Conclude(text) => self.conclude(who, text, moment),
            TeamAction::Vote(is_for) => self.vote(who, is_for, moment),
            TeamAction::Leave => self.leave(who, moment),
            TeamAction::Cancel => self.end(Outcome::Cancelled, None, moment),
        }
    }

    /// What the message meets in the table of acts and states.
    fn judge(&self, who: usize, payload: &Payload, pinned: Option<&Pinned>, moment: Moment) -> TeamVerdict {
        let person = &self.people[who];
        let is_second = matches!(payload, Payload::Cfp(cfp) if cfp.team.as_ref().is_some_and(|spec| spec.of.is_some()));
        match self.stage {
            _ if is_second && who == 0 => self.refuse(who, Disposition::OutOfTurn, "taken", None),
            _ if person.has_left => TeamVerdict::of(Disposition::Closed),
            TeamStage::Forming => self.judge_forming(who, payload, moment),
            _ if !person.is_seated => Self::judge_without_a_seat(payload),
            TeamStage::Discussing { .. }
            | TeamStage::Waiting { .. }
            | TeamStage::Concluding { .. }
            | TeamStage::Voting { .. } => self.judge_member(who, payload, pinned, moment),
        }
    }

    fn judge_forming(&self, who: usize, payload: &Payload, moment: Moment) -> TeamVerdict {
        let may_answer = who > 0 && matches!(self.people[who].answer, JoinAnswer::None | JoinAnswer::Undelivered);
        let has_declined = self.people[who].answer == JoinAnswer::Declined;
        match (payload, who) {
            (Payload::Join(join), _) if may_answer => self.judge_join(who, join, moment),
            (Payload::Refuse(_) | Payload::NotUnderstood(_), _) if may_answer => TeamVerdict::ok(TeamAction::Decline),
            (Payload::End(_) | Payload::Cancel(_), 0) => TeamVerdict::ok(TeamAction::Cancel),
            (Payload::End(_), _) if !has_declined => TeamVerdict::ok(TeamAction::Decline),
            (_, _) => self.out_of_turn(who),
        }
    }

    /// JOIN of one of the invited: under a policy its terms must pass the gates (docs/spec/team.md#tm-15).
    fn judge_join(&self, who: usize, join: &Join, moment: Moment) -> TeamVerdict {
        let terms = join.terms.clone();
        let Some(policy) = &self.policy else { return TeamVerdict::ok(TeamAction::Join(terms)) };
        let offer = Offer { terms, ..Offer::default() };
        let pinned = self.reputations.get(&self.people[who].agent).copied();
        let weighed = scoring::with_reputation(policy, pinned, &offer);
        let failed = match &weighed {
            Some(offer) => scoring::gate_failed(policy, None, offer, None, Timestamp::MAX, moment.now),
            None => Some("reputation.reserved".to_owned()),
        };
        match failed {
            Some(code) => {
                let offer_id = Some(OfferId(moment.position));
                let rejection = Rejection { offer_id, reason: RejectReason::Policy, code: Some(code) };
                let reply = Some(fact::reject(&self.id, &self.people[who].agent, &rejection));
                TeamVerdict { reply, ..TeamVerdict::of(Disposition::PolicyReject) }
            }
            None => TeamVerdict::ok(TeamAction::Join(weighed.unwrap_or(offer).terms)),
        }
    }

    fn judge_without_a_seat(payload: &Payload) -> TeamVerdict {
        let is_join = matches!(payload, Payload::Join(_));
        TeamVerdict::of(if is_join { Disposition::Late } else { Disposition::Closed })
    }

    fn judge_member(&self, who: usize, payload: &Payload, pinned: Option<&Pinned>, moment: Moment) -> TeamVerdict {
        let must_conclude = matches!(self.stage, TeamStage::Concluding { speaker, .. } if speaker == who);
        match (payload, must_conclude) {
            (Payload::End(_), _) => TeamVerdict::ok(TeamAction::Leave),
            (Payload::Cancel(_), _) if self.lead() == Some(who) => TeamVerdict::ok(TeamAction::Cancel),
            (Payload::Say(_) | Payload::Assign(_) | Payload::Pause(_) | Payload::Conclude(_), _) => {
                self.judge_floor_act(who, payload, pinned, moment)
            }
            (Payload::Accept(accept), _) if matches!(self.stage, TeamStage::Voting { .. }) => {
                self.judge_accept(who, accept)
            }
            (Payload::Refuse(_), _) if self.may_vote(who) => TeamVerdict::ok(TeamAction::Vote(false)),
            (_, true) => self.refuse(who, Disposition::OutOfTurn, "must_conclude", None),
            (_, false) => self.out_of_turn(who),
        }
    }

    /// Say, assign, pause and conclude (docs/spec/team.md#tm-25).
    fn judge_floor_act(&self, who: usize, payload: &Payload, pinned: Option<&Pinned>, moment: Moment) -> TeamVerdict {
        // Of any other act there is none.
        let turn = match (payload, &self.stage) {
            (Payload::Say(said), _) => said.turn,
            (Payload::Assign(said), _) => said.turn,
            (Payload::Pause(said), _) => said.turn,
            (Payload::Conclude(said), _) => said.turn,
            (_, _) => None,
        };
        if turn.is_some_and(|turn| turn < self.turn) {
            return TeamVerdict::of(Disposition::StaleRound);
        }
        if turn.is_some_and(|turn| turn > self.turn) {
            return self.refuse(who, Disposition::OutOfTurn, "bad_round", None);
        }
        match (&self.stage, payload) {
            (TeamStage::Discussing { speaker, .. }, Payload::Say(say)) if *speaker == who => self.judge_say(who, say),
            (TeamStage::Discussing { speaker, .. }, Payload::Assign(assign)) if *speaker == who => {
                self.judge_assign(who, assign, pinned, moment)
            }
            (TeamStage::Discussing { speaker, .. }, Payload::Pause(pause)) if *speaker == who => {
                self.judge_pause(who, pause)
            }
            (
                TeamStage::Discussing { speaker, .. } | TeamStage::Concluding { speaker, .. },
                Payload::Conclude(conclude),
            ) if *speaker == who => {
                if self.rules.at_conclusion == AtConclusion::Settle && !self.tasks.open().is_empty() {
                    return self.refuse(who, Disposition::PolicyReject, "open_tasks", None);
                }
                TeamVerdict::ok(TeamAction::Conclude(conclude.text.clone()))
            }
            (TeamStage::Concluding { speaker, .. }, _) if *speaker == who => {
                self.refuse(who, Disposition::OutOfTurn, "must_conclude", None)
            }
            (_, _) => TeamVerdict { then: TeamAction::Strike, ..self.out_of_turn(who) },
        }
    }

    fn judge_say(&self, who: usize, say: &Say) -> TeamVerdict {
        let next = match &say.next {
            Some(next) => {
                let next = self.people.iter().position(|person| person.agent == *next);
                match next.filter(|&next| self.may_speak(next)) {
                    Some(next) => Some(next),
                    None => return self.refuse(who, Disposition::Malformed, "unknown_member", Some("/payload/next")),
                }
            }
            None => None,
        };
        if self.rules.on_repeat == OnRepeat::Refuse && self.repeats(&say.text) {
            return self.refuse(who, Disposition::PolicyReject, "repeated", None);
        }
        TeamVerdict::ok(TeamAction::Say(say.text.clone(), next))
    }

    fn repeats(&self, text: &str) -> bool {
        repetition::most_similar(&self.spoken, text, self.rules.repeat_ppm).is_some()
    }

    fn may_vote(&self, who: usize) -> bool {
        matches!(&self.stage, TeamStage::Voting { votes, .. } if votes.iter().all(|(voter, _)| *voter != who))
    }

    /// A vote for a conclusion names it, and what it says (docs/spec/team.md#tm-30).
    fn judge_accept(&self, who: usize, accept: &Accept) -> TeamVerdict {
        let TeamStage::Voting { conclusion, .. } = &self.stage else { return self.out_of_turn(who) };
        if !self.may_vote(who) {
            return self.out_of_turn(who);
        }
        if accept.offer_id != conclusion.offer_id {
            return self.refuse(who, Disposition::OutOfTurn, "standing", None);
        }
        if accept.terms_digest != Some(conclusion.terms_digest) {
            return self.refuse(who, Disposition::Malformed, "terms_digest", Some("/payload/terms_digest"));
        }
        TeamVerdict::ok(TeamAction::Vote(true))
    }

    fn out_of_turn(&self, who: usize) -> TeamVerdict {
        self.refuse(who, Disposition::OutOfTurn, "out_of_turn", None)
    }

    fn refuse(&self, who: usize, disposition: Disposition, reason: &str, pointer: Option<&str>) -> TeamVerdict {
        let reply = Some(fact::not_understood(&self.id, &self.people[who].agent, reason, pointer));
        TeamVerdict { reply, ..TeamVerdict::of(disposition) }
    }

    /// An assignment opens all its tasks, or none (docs/spec/team.md#tm-26).
    fn judge_assign(&self, who: usize, assign: &Assign, pinned: Option<&Pinned>, moment: Moment) -> TeamVerdict {
        match assigning::plan(self, who, assign, pinned, moment) {
            Ok(calls) => TeamVerdict::ok(TeamAction::Assign(calls, assign.mode)),
            Err((disposition, reason, pointer)) => self.refuse(who, disposition, reason, pointer.as_deref()),
        }
    }

    /// A pause waits for tasks that there are.
    fn judge_pause(&self, who: usize, pause: &Pause) -> TeamVerdict {
        let unknown = pause.triggers.iter().position(|&number| !(1..=self.tasks.count()).contains(&number));
        match unknown {
            Some(index) => {
                let pointer = format!("/payload/triggers/{index}");
                self.refuse(who, Disposition::Malformed, "unknown_task", Some(&pointer))
            }
            None => TeamVerdict::ok(TeamAction::Pause(pause.triggers.clone(), pause.text.clone())),
        }
    }
}
