//! What members of teams say, and what they know of what they were told.

use std::sync::Arc;

use policy_core::{Deliver, Limits, preset};
use proptest::test_runner::TestCaseError;
use schemas::delivery::Notification;
use schemas::ids::{AwardNo, Capability, FamilyPlace};
use schemas::record::{AdmittedMessage, Entry, Invitation, Pinned, TaskPolicy};
use schemas::team::{Floor, ProposedConclusion};
use schemas::{Act, AgentId, Digest, NegotiationId, Policy};
use serde_json::{Value, json};

use super::plan::{Action, AssignPlan, Case, LAST, Move, SayPlan, SubTeamPlan, TaskDeed, Turn, VotePlan, Who};
use crate::alike::{Game, Played, Table, abort, id, invitation, party, undelivered};

/// To the end, and beyond.
pub(crate) fn play(case: &Case) -> Result<Played, TestCaseError> {
    let (teams, conclusions) = (vec![(id(), None)], Vec::new());
    let game = Meeting { case, teams, team: 0, conclusions, calls: Vec::new(), tasks: Vec::new() };
    Table::play(game, Limits::default(), case.is_new, &case.moves)
}

struct Meeting<'a> {
    case: &'a Case,
    /// Every team that was called: its id, and its floor as somebody was told it last.
    teams: Vec<(NegotiationId, Option<Floor>)>,
    /// The one that is spoken in.
    team: usize,
    conclusions: Vec<ProposedConclusion>,
    calls: Vec<Deliver>,
    /// The tasks there were, and who was last awarded each.
    tasks: Vec<(NegotiationId, Option<(AgentId, AwardNo)>)>,
}

impl Game for Meeting<'_> {
    type Who = (usize, Who);
    type Action = Action;

    fn call(table: &Table<Self>) -> AdmittedMessage {
        let case = table.game.case;
        let mut payload = json!({"team": case.rules, "task": "write a survey"});
        case.join_ms.into_iter().for_each(|ms| payload["reply_within_ms"] = json!(ms));
        if case.policy.is_some() {
            payload["policy"] = json!("seats");
        }
        let invited = (1..=usize::from(case.invited)).rev().map(|index| invitation(party(index))).collect();
        let pinned = Some(pinned(case.policy.as_ref(), invited));
        AdmittedMessage { pinned, ..table.message(&party(0), Act::Cfp, payload, false) }
    }

    fn entry(table: &mut Table<Self>, one: &Move) -> Option<Entry> {
        let (team, who) = one.who;
        table.game.team = if team == LAST { table.game.teams.len() - 1 } else { team % table.game.teams.len() };
        let game = &table.game;
        let from = match who {
            Who::Speaker => game.floor().and_then(|floor| floor.speaker.clone()).unwrap_or(party(0)),
            Who::Party(index) => party(index % (usize::from(game.case.invited) + 1)),
            Who::Owner => game.owner(&one.action),
            Who::Stranger => party(9),
        };
        let (act, payload) = match &one.action {
            Action::Tick => return Some(Entry::Tick),
            Action::Abort => return abort(game.teams[game.team].0.clone()),
            Action::Undelivered(which, may_answer) => {
                return undelivered(game.calls.get(which % game.calls.len().max(1))?, *may_answer);
            }
            Action::Repeat(which) => return Some(table.repeat(*which)),
            Action::Conflict(which) => return Some(table.conflict(*which)),
            Action::Join(fit) => (Act::Join, json!({"terms": {"fit": fit}})),
            Action::Say(plan) => (Act::Say, game.words_of(plan)),
            Action::Flood(_) => (Act::Say, json!({"text": "again"})),
            Action::Assign(plan) => (Act::Assign, game.assign(plan)),
            Action::InTask(which, action) => game.work(*which, *action),
            Action::CallSubTeam(which, plan) => return Some(call_sub_team(table, &from, *which, plan)),
            Action::Pause(turn, triggers) => (Act::Pause, game.in_turn(*turn, json!({"triggers": triggers}))),
            Action::Conclude(turn) => (Act::Conclude, game.in_turn(*turn, json!({"text": "the survey"}))),
            Action::Accept(plan) => (Act::Accept, game.accept(*plan)),
            Action::Refuse => (Act::Refuse, json!({})),
            Action::End => (Act::End, json!({})),
            Action::Cancel => (Act::Cancel, json!({})),
            Action::Other(act) => other(act),
        };
        let mut message = table.message(&from, act, payload, one.is_stale);
        message.negotiation = match &one.action {
            Action::InTask(which, _) => game.task(*which).0,
            _ => game.teams[game.team].0.clone(),
        };
        if let Action::Assign(AssignPlan { has_policy: true, .. }) = &one.action {
            message.pinned = Some(Arc::new(crate::alike::pinned(task_policy(20), Vec::new())));
        }
        Some(table.say(message))
    }

    fn remember(&mut self, deliver: &Deliver) {
        if matches!(deliver.negotiation.place(), FamilyPlace::Task(_)) {
            self.remember_task(deliver);
        }
        match &*deliver.told {
            Notification::Floor(floor) => {
                let proposed = floor.conclusion.clone();
                self.conclusions.extend(proposed.filter(|one| !self.conclusions.contains(one)));
                let team = self.teams.iter_mut().find(|(id, _)| *id == deliver.negotiation);
                team.expect("it was called").1 = Some((**floor).clone());
            }
            Notification::Cfp(call) => {
                self.calls.push(deliver.clone());
                if call.team.is_some() && self.teams.iter().all(|(id, _)| *id != deliver.negotiation) {
                    self.teams.push((deliver.negotiation.clone(), None));
                }
            }
            _ => {}
        }
    }

    /// Every other party does.
    fn numbers(agent: &AgentId) -> bool {
        *agent != party(1)
    }

    fn times(one: &Move) -> usize {
        if let Action::Flood(times) = one.action { times } else { 1 }
    }

    /// Two parties can draw.
    fn capabilities(agent: &AgentId) -> Vec<Capability> {
        let draws = *agent == party(1) || *agent == party(3);
        if draws { vec![Capability::try_new("drawing").expect("a name")] } else { Vec::new() }
    }
}

impl Meeting<'_> {
    fn remember_task(&mut self, deliver: &Deliver) {
        let known = self.tasks.iter().position(|(task, _)| *task == deliver.negotiation);
        let index = known.unwrap_or_else(|| {
            self.tasks.push((deliver.negotiation.clone(), None));
            self.tasks.len() - 1
        });
        if let Notification::Accept(award) = &*deliver.told {
            self.tasks[index].1 = Some((deliver.to.clone(), award.award_no));
        }
    }

    fn floor(&self) -> Option<&Floor> {
        self.teams[self.team].1.as_ref()
    }

    /// The n-th task, or one that never was.
    fn task(&self, which: usize) -> (NegotiationId, Option<(AgentId, AwardNo)>) {
        let known = if which == LAST { self.tasks.last() } else { self.tasks.get(which % self.tasks.len().max(1)) };
        let known = known.cloned();
        known.unwrap_or((id().task(1).expect("a team's"), None))
    }

    fn owner(&self, action: &Action) -> AgentId {
        let task = match action {
            Action::InTask(which, _) | Action::CallSubTeam(which, _) => self.task(*which).1,
            _ => None,
        };
        task.map_or(party(0), |(owner, _)| owner)
    }

    fn work(&self, which: usize, action: TaskDeed) -> (Act, Value) {
        let award_no = self.task(which).1.map_or(AwardNo(1), |(_, award_no)| award_no);
        match action {
            TaskDeed::Offer(fit) => (Act::Offer, json!({"terms": {"fit": fit * 250_000}})),
            TaskDeed::Confirm => (Act::Confirm, json!({"award_no": award_no})),
            TaskDeed::Result => (Act::Inform, json!({"kind": "result", "result": "a figure"})),
            TaskDeed::Done => (Act::Inform, json!({"kind": "done"})),
            TaskDeed::Failure => (Act::Failure, json!({"phase": "perform", "code": "broken"})),
            TaskDeed::Refuse => (Act::Refuse, json!({})),
            TaskDeed::Cancel => (Act::Cancel, json!({})),
        }
    }

    fn assign(&self, plan: &AssignPlan) -> Value {
        let tasks = plan.tasks.iter().map(|task| {
            let mut document = json!({"title": "figures", "text": "draw figure 1"});
            task.owner.into_iter().for_each(|owner| document["owner"] = json!(party(owner)));
            task.reply_within_ms.into_iter().for_each(|ms| document["reply_within_ms"] = json!(ms));
            task.perform_ms.into_iter().for_each(|ms| document["perform_ms"] = json!(ms));
            if task.is_drawn {
                document["requires"] = json!(["drawing"]);
            }
            document
        });
        let tasks: Vec<Value> = tasks.collect();
        let mut payload = self.in_turn(plan.turn, json!({"mode": plan.mode, "tasks": tasks}));
        if plan.has_policy {
            payload["policy"] = json!("quick");
        }
        payload
    }

    fn words_of(&self, plan: &SayPlan) -> Value {
        let mut payload = self.in_turn(plan.turn, json!({"text": plan.text}));
        plan.next.into_iter().for_each(|next| payload["next"] = json!(party(next)));
        payload
    }

    fn in_turn(&self, turn: Turn, mut payload: Value) -> Value {
        let current = self.floor().map_or(1, |floor| floor.turn);
        let named = match turn {
            Turn::Unnamed => None,
            Turn::Current => Some(current),
            Turn::Earlier => Some(current.saturating_sub(1).max(1)),
            Turn::Later => Some(current + 1),
        };
        named.into_iter().for_each(|turn| payload["turn"] = json!(turn));
        payload
    }

    fn accept(&self, plan: VotePlan) -> Value {
        let which = if let VotePlan::Earlier(which) = plan { which } else { self.conclusions.len().saturating_sub(1) };
        let Some(meant) = self.conclusions.get(which % self.conclusions.len().max(1)) else {
            return json!({"offer_id": "o1-0", "terms_digest": Digest([0; 32])});
        };
        match plan {
            VotePlan::WithoutDigest => json!({"offer_id": meant.offer_id}),
            VotePlan::OtherDigest => json!({"offer_id": meant.offer_id, "terms_digest": Digest([0; 32])}),
            VotePlan::Right | VotePlan::Earlier(_) => {
                json!({"offer_id": meant.offer_id, "terms_digest": meant.terms_digest})
            }
        }
    }
}

/// A call to the sub-team of the n-th task's last award.
fn call_sub_team(table: &mut Table<Meeting<'_>>, from: &AgentId, which: usize, plan: &SubTeamPlan) -> Entry {
    let (task, award) = table.game.task(which);
    let award_no = award.map_or(1, |(_, award_no)| award_no.0) + u32::from(plan.is_wrong);
    let mut rules = plan.rules.clone();
    rules["of"] = json!({"task": task, "award_no": award_no});
    let payload = json!({"team": rules, "task": "a part of it", "reply_within_ms": plan.join_ms});
    let mut message = table.message(from, Act::Cfp, payload, false);
    let id = task.sub_team(AwardNo(award_no)).filter(|_| !plan.is_forged);
    message.negotiation = id.unwrap_or_else(|| NegotiationId::form(from, "own").expect("an id"));
    message.pinned = Some(pinned(None, plan.invited.iter().map(|index| invitation(party(*index))).collect()));
    table.say(message)
}

/// An act that no team knows.
fn other(act: &str) -> (Act, Value) {
    match act {
        "cfp" => (Act::Cfp, json!({"task": "another"})),
        "offer" => (Act::Offer, json!({"terms": {}})),
        "withdraw" => (Act::Withdraw, json!({})),
        "confirm" => (Act::Confirm, json!({"award_no": 1})),
        "inform" => (Act::Inform, json!({"kind": "done"})),
        "failure" => (Act::Failure, json!({"phase": "perform", "code": "broken"})),
        _ => (Act::NotUnderstood, json!({})),
    }
}

/// What a gateway pins: a fitness that counts, and is not nothing.
fn pinned(tie_break: Option<&Value>, invited: Vec<Invitation>) -> Arc<Pinned> {
    let mut policy = preset("high").expect("a preset");
    let mut document = serde_json::to_value(&policy).expect("a document");
    document["id"] = json!("seats@1");
    document["gates"] = json!([{"attr": "fit", "min": 1}]);
    document["weights"] = json!([{"attr": "fit", "w": 1000, "dir": "higher", "lo": 0, "hi": 1_000_000}]);
    tie_break.into_iter().for_each(|tie_break| document["tie_break"] = tie_break.clone());
    if tie_break.is_some() {
        policy = serde_json::from_value(document).expect("a policy");
    }
    let task = task_policy(60);
    let task_policy = TaskPolicy { digest: task.digest().expect("integers and texts"), policy: Arc::new(task) };
    Arc::new(Pinned { task_policy: Some(task_policy), ..crate::alike::pinned(policy, invited) })
}

/// The best fitness wins; one runner-up, two awards.
fn task_policy(confirm_ms: u64) -> Policy {
    let mut document = serde_json::to_value(preset("high").expect("a preset")).expect("a document");
    document["id"] = json!("team-task@1");
    document["gates"] = json!([]);
    document["weights"] = json!([{"attr": "fit", "w": 1000, "dir": "higher", "lo": 0, "hi": 1_000_000}]);
    document["standby"] = json!(1);
    document["max_awards"] = json!(2);
    document["hold_until"] = json!("done");
    document["timers_ms"] =
        json!({"collect": 40, "confirm": confirm_ms, "perform": 1_200, "cancel": 30, "hard": 3_000});
    serde_json::from_value(document).expect("a policy")
}
