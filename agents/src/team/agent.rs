//! An agent that works in teams: called to them, and calling others.
//!
//! | it hears | it does |
//! |---|---|
//! | CFP with a team | JOIN, or REFUSE, as its [`TeamPlanner`] decides |
//! | CFP with a brief: a task goes by award | OFFER, or REFUSE |
//! | any other CFP, ASK of a panel | REFUSE |
//! | FLOOR, and it holds the floor | what its [`Speaker`](super::Speaker) decides: SAY, ASSIGN, PAUSE, CONCLUDE |
//! | FLOOR, and a conclusion is voted on | ACCEPT or REFUSE |
//! | ACCEPT of a task | CONFIRM, or REFUSE |
//! | ACK{committed} of a task | a [`TeamJob`], whose result is INFORM or FAILURE; or a call to a sub-team |
//! | CANCEL of a task by whoever assigned it | INFORM{cancelled} |
//! | CLOSED, REJECT | forgets |
//!
//! What takes time leaves as a [`TeamJob`], to whoever reads the channel, and comes back by [`TeamAgent::handle_done`]. A result
//! that comes after its award was lost says nothing. At most [`TeamAgent::OPEN_MAX`] teams and as many tasks are open at a time.

mod jobs;
mod owned;

use schemas::delivery::{Award, Call, Cancellation, Delivery, Disposition, Notification, Outcome, Receipt};
use schemas::envelope::{ConsentMode, Scope};
use schemas::payload::{Confirm, Inform, InformKind, Offer, Reasoned};
use schemas::team::{Brief, TaskAward, TeamCall};
use schemas::{Act, Address, AgentId, AwardNo, NegotiationId, Payload, Timestamp};
use tokio::sync::mpsc;

use super::membership::TeamSide;
use super::view::TeamView;
use super::{TaskPlan, TeamPlanner, TeamRequest};
use crate::open::OpenNegotiations;
use crate::strategy::{Action, CallAddress, Outgoing, SendOutcome, Sent, Strategy};

pub use jobs::{Advisor, Finder, JobDone, TeamHands, TeamJob};
pub use owned::{OwnedTask, TaskStage};

/// `reason` of the CANCEL that an assigner asked for: the only one that awaits an answer.
const CANCELLED_BY_ASSIGNER: &str = "cancelled";
/// How long a call that no receipt has answered is kept, in milliseconds: a team lasts a day at most.
const TEAM_MS_MAX: u64 = 86_400_000;

/// See the module.
pub struct TeamAgent {
    agent: AgentId,
    planner: Box<dyn TeamPlanner>,
    memberships: OpenNegotiations<TeamSide>,
    tasks: OpenNegotiations<OwnedTask>,
    /// Calls that wait for a search.
    calls: OpenNegotiations<(TeamRequest, Option<TaskAward>)>,
    jobs: mpsc::Sender<TeamJob>,
}

impl TeamAgent {
    /// Most teams, and most tasks, open at a time.
    pub const OPEN_MAX: usize = 4096;

    /// An agent that takes part as its planner decides; what takes time goes to `jobs`.
    #[must_use]
    pub fn new(agent: AgentId, planner: impl TeamPlanner + 'static, jobs: mpsc::Sender<TeamJob>) -> Self {
        Self {
            agent,
            planner: Box::new(planner),
            memberships: OpenNegotiations::new(Self::OPEN_MAX),
            tasks: OpenNegotiations::new(Self::OPEN_MAX),
            calls: OpenNegotiations::new(Self::OPEN_MAX),
            jobs,
        }
    }

    /// Calls a team, `of` the award it works for where it is a sub-team. Searches first where the request asks for that.
    pub fn call(
        &mut self,
        now: Timestamp,
        team: &NegotiationId,
        request: TeamRequest,
        of: Option<TaskAward>,
    ) -> Vec<Action> {
        if request.search.is_empty() {
            return self.call_found(now, team, request, of);
        }
        if !self.calls.has_room() {
            return self.work_instead(of);
        }
        let job = TeamJob::Search { team: team.clone(), queries: request.search.clone() };
        self.calls.insert(team, (request, of), now);
        self.pass_on(now, job)
    }

    /// Takes what a job came to.
    pub fn handle_done(&mut self, now: Timestamp, done: JobDone) -> Vec<Action> {
        match done {
            JobDone::Work { task, award_no, outcome } => {
                let Some(owned) = self.tasks.part(&task).filter(|owned| owned.stage == TaskStage::Working(award_no))
                else {
                    // Cancelled in the meantime, or over.
                    return Vec::new();
                };
                owned.stage = TaskStage::Reported(award_no);
                vec![Outgoing::new(task, OwnedTask::report(outcome)).once(award_no.0).into()]
            }
            JobDone::Found { team, agents } => {
                let Some((mut request, of)) = self.calls.remove(&team) else { return Vec::new() };
                let me = &self.agent;
                let found = agents.into_iter().filter(|agent| agent != me && !request.invites.contains(agent));
                let found: Vec<AgentId> = found.collect();
                request.invites.extend(found);
                if request.invites.is_empty() {
                    tracing::debug!(%team, "nobody was found for a team");
                    return self.work_instead(of);
                }
                self.call_found(now, &team, request, of)
            }
            JobDone::Advised { team, turn, advice } => {
                let said = self.memberships.part(&team).and_then(|membership| membership.handle_advice(turn, advice));
                said.map(|payload| Outgoing::new(team, payload).into()).into_iter().collect()
            }
        }
    }

    /// Hands out what a member wants advice about.
    fn ask(&mut self, now: Timestamp, team: &NegotiationId) -> Vec<Action> {
        let question = self.memberships.part(team).and_then(|membership| membership.poll_question());
        question
            .map(|view| self.pass_on(now, TeamJob::Advise { asked_at: now, view: Box::new(view) }))
            .unwrap_or_default()
    }

    fn call_found(
        &mut self,
        now: Timestamp,
        team: &NegotiationId,
        request: TeamRequest,
        of: Option<TaskAward>,
    ) -> Vec<Action> {
        if !self.memberships.has_room() || self.memberships.contains(team) {
            return self.work_instead(of);
        }
        let cfp = request.cfp(of);
        let (me, rules) = (self.agent.clone(), request.rules);
        let view = TeamView::new(team.clone(), me.clone(), request.goal, me, rules);
        self.memberships.insert(team, TeamSide::new(view, request.speaker), now.plus_ms(TEAM_MS_MAX));
        let mut message = Outgoing::new(team.clone(), Payload::Cfp(cfp)).once(0);
        let to = request.invites.into_iter().map(Address::Agent).collect();
        let scope = Some(Scope { consent: ConsentMode::OptIn, ttl: None, absent: false });
        message.call_to = Some(Box::new(CallAddress { to, capabilities: Vec::new(), scope }));
        vec![message.into()]
    }

    /// A task without a sub-team is worked on alone.
    fn work_instead(&mut self, of: Option<TaskAward>) -> Vec<Action> {
        let Some(TaskAward { task, award_no }) = of else { return Vec::new() };
        self.work(&task, award_no)
    }

    fn work(&mut self, task: &NegotiationId, award_no: AwardNo) -> Vec<Action> {
        let Some(owned) = self.tasks.part(task).filter(|owned| owned.stage == TaskStage::Committed(award_no)) else {
            return Vec::new();
        };
        owned.stage = TaskStage::Working(award_no);
        let job = TeamJob::work(&self.agent, task, award_no, &owned.brief);
        self.pass_on(Timestamp::MAX, job)
    }

    /// Hands a job on. One that finds no room has failed.
    fn pass_on(&mut self, now: Timestamp, job: TeamJob) -> Vec<Action> {
        match self.jobs.try_send(job) {
            Ok(()) => Vec::new(),
            Err(unheard) => self.handle_done(now, unheard.into_inner().turned_away()),
        }
    }

    fn handle_team_call(&mut self, delivery: &Delivery, call: &Call, team: &TeamCall) -> Vec<Action> {
        let id = &delivery.envelope.negotiation;
        let goal = call.task.clone().unwrap_or_default();
        let plan = if self.memberships.has_room() { self.planner.join(id, &goal, team) } else { Err(busy()) };
        match plan {
            Ok(plan) => {
                let view = TeamView::new(id.clone(), self.agent.clone(), goal, team.lead.clone(), team.rules.clone());
                self.memberships.insert(id, TeamSide::new(view, plan.speaker), call.ends_by.0);
                let join = schemas::bargain::Join { mandate: None, terms: plan.terms };
                vec![Outgoing::reply(delivery, Payload::Join(join)).once(0).into()]
            }
            Err(reason) => vec![refuse(delivery, reason, None, 0)],
        }
    }

    fn handle_task_call(&mut self, delivery: &Delivery, call: &Call, brief: &Brief) -> Vec<Action> {
        let id = &delivery.envelope.negotiation;
        let offered = if self.tasks.has_room() { self.planner.offer(brief) } else { Err(busy()) };
        match offered {
            Ok(terms) => {
                self.tasks.insert(id, OwnedTask::new(brief.clone()), call.ends_by.0);
                let offer = Offer { terms, round: Some(call.round), ..Offer::default() };
                vec![Outgoing::reply(delivery, Payload::Offer(offer)).once(call.round).into()]
            }
            Err(reason) => vec![refuse(delivery, reason, Some(call.round), call.round)],
        }
    }

    fn handle_award(&mut self, now: Timestamp, delivery: &Delivery, award: &Award) -> Vec<Action> {
        let (id, award_no) = (&delivery.envelope.negotiation, award.award_no);
        // Apart from the rounds, under which this act may have been used before.
        let number = u32::MAX - award_no.0;
        let Some(brief) = award.brief.as_deref() else {
            return vec![refuse(delivery, "takes tasks of teams only".to_owned(), None, number)];
        };
        if !self.tasks.contains(id) {
            if !self.tasks.has_room() {
                return vec![refuse(delivery, busy(), None, number)];
            }
            let until =
                self.memberships.part(&brief.team).map_or(TEAM_MS_MAX, |member| member.view().rules.ends_within_ms);
            self.tasks.insert(id, OwnedTask::new(brief.clone()), now.plus_ms(until));
        }
        let plan = self.planner.take(brief);
        let Some(owned) = self.tasks.part(id) else { return Vec::new() };
        match plan {
            Ok(plan) => {
                owned.take(award_no, plan);
                let confirm = Payload::Confirm(Confirm { award_no, terms_digest: None });
                vec![Outgoing::reply(delivery, confirm).once(award_no.0).into()]
            }
            Err(reason) => {
                self.tasks.remove(id);
                vec![refuse(delivery, reason, None, number)]
            }
        }
    }

    fn handle_receipt(&mut self, now: Timestamp, delivery: &Delivery, receipt: &Receipt) -> Vec<Action> {
        let id = &delivery.envelope.negotiation;
        let said = receipt.first.unwrap_or(receipt.disposition);
        if let (Disposition::Committed, Some(award_no)) = (said, receipt.award_no) {
            return self.handle_commitment(now, id, award_no);
        }
        let Some(membership) = self.memberships.part(id) else { return Vec::new() };
        // Before it has formed, a team's only act of the lead is its call.
        let is_turned_down = said != Disposition::Ok && membership.view().step == 0 && membership.view().is_lead();
        if is_turned_down {
            return self.leave(id);
        }
        say(delivery, membership.handle_receipt(receipt))
    }

    fn handle_commitment(&mut self, now: Timestamp, task: &NegotiationId, award_no: AwardNo) -> Vec<Action> {
        let Some(plan) = self.tasks.part(task).and_then(|owned| owned.commit(award_no)) else { return Vec::new() };
        match (plan, task.sub_team(award_no)) {
            (TaskPlan::Team(request), Some(team)) => {
                self.call(now, &team, *request, Some(TaskAward { task: task.clone(), award_no }))
            }
            (TaskPlan::Team(_) | TaskPlan::Alone, _) => self.work(task, award_no),
        }
    }

    fn handle_cancel(&mut self, delivery: &Delivery, cancellation: &Cancellation) -> Vec<Action> {
        let id = &delivery.envelope.negotiation;
        self.tasks.remove(id);
        let mut actions = vec![Action::Unschedule(id.clone())];
        if cancellation.reason == CANCELLED_BY_ASSIGNER {
            let inform = Inform { kind: InformKind::Cancelled, result: None, routine: None };
            // Apart from the award numbers, under which this act may have been used before.
            let number = u32::MAX - cancellation.award_no.0;
            actions.push(Outgoing::reply(delivery, Payload::Inform(inform)).once(number).into());
        }
        actions
    }

    /// A team has ended, or this agent is out of it. What a sub-team could not do its lead does alone.
    fn leave(&mut self, id: &NegotiationId) -> Vec<Action> {
        let mut actions = vec![Action::Release(id.clone())];
        if let Some(membership) = self.memberships.remove(id)
            && membership.view().is_lead()
        {
            actions.extend(self.work_instead(award_of(id)));
        }
        actions
    }

    fn handle_closed(&mut self, id: &NegotiationId, outcome: Outcome) -> Vec<Action> {
        let is_concluded = outcome == Outcome::Concluded;
        if is_concluded || self.tasks.remove(id).is_some() {
            self.memberships.remove(id);
            return vec![Action::Release(id.clone())];
        }
        self.leave(id)
    }
}

impl Strategy for TeamAgent {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is told others, or in other protocols")]
    fn handle(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        let id = &delivery.envelope.negotiation;
        let expired = [self.memberships.expire(now), self.tasks.expire(now)].concat();
        self.calls.expire(now);
        let mut actions: Vec<Action> = expired.into_iter().map(Action::Release).collect();
        actions.extend(match &delivery.payload {
            Notification::Cfp(call) => match (&call.team, &call.brief) {
                (Some(team), _) => self.handle_team_call(delivery, call, team),
                (None, Some(brief)) => self.handle_task_call(delivery, call, brief),
                (None, None) => vec![refuse(delivery, "works in teams only".to_owned(), None, call.round)],
            },
            Notification::Floor(floor) => {
                say(delivery, self.memberships.part(id).and_then(|membership| membership.handle_floor(floor)))
            }
            Notification::Ack(receipt) => self.handle_receipt(now, delivery, receipt),
            Notification::NotUnderstood(why) => {
                say(delivery, self.memberships.part(id).and_then(|member| member.handle_refusal(&why.into())))
            }
            Notification::Accept(award) => self.handle_award(now, delivery, award),
            Notification::Cancel(cancellation) => self.handle_cancel(delivery, cancellation),
            Notification::Reject(rejection) if rejection.reason.goes_on() => Vec::new(),
            Notification::Reject(_) => {
                self.tasks.remove(id);
                self.memberships.remove(id);
                vec![Action::Release(id.clone())]
            }
            Notification::Closed(closing) => self.handle_closed(id, closing.outcome),
            Notification::Ask(_) => vec![Action::refuse(delivery, "works in teams only")],
            // How its own task goes tells an assigner by notices of the team.
            _ => Vec::new(),
        });
        actions.extend(self.ask(now, id));
        actions
    }

    fn handle_sent(&mut self, now: Timestamp, sent: &Sent) -> Vec<Action> {
        let id = &sent.negotiation;
        let mut actions = match &sent.outcome {
            SendOutcome::Accepted { .. } => Vec::new(),
            SendOutcome::Refused(_) | SendOutcome::Unanswered if sent.act == Act::Cfp => self.leave(id),
            SendOutcome::Refused(refusal) => {
                let again = self.memberships.part(id).and_then(|membership| membership.handle_unsent(refusal));
                again
                    .map(|payload| Outgoing::new(id.clone(), payload).after_ms(OVERLOADED_PAUSE_MS).into())
                    .into_iter()
                    .collect()
            }
            // Its floor lapses, or its task does.
            SendOutcome::Unanswered => Vec::new(),
        };
        actions.extend(self.ask(now, id));
        actions
    }
}

/// How long a message waits that a gateway, or the agent itself, did not take, in milliseconds.
const OVERLOADED_PAUSE_MS: u64 = 200;

/// The award that a sub-team works for.
fn award_of(team: &NegotiationId) -> Option<TaskAward> {
    let schemas::ids::FamilyPlace::SubTeam { award_no, .. } = team.place() else { return None };
    team.parent().map(|task| TaskAward { task, award_no })
}

fn say(delivery: &Delivery, payload: Option<Payload>) -> Vec<Action> {
    payload.map(|payload| Action::reply(delivery, payload)).into_iter().collect()
}

fn refuse(delivery: &Delivery, reason: String, round: Option<u32>, number: u32) -> Action {
    Outgoing::reply(delivery, Payload::Refuse(Reasoned { reason: Some(reason), round })).once(number).into()
}

fn busy() -> String {
    "busy".to_owned()
}

#[cfg(test)]
mod tests;
