use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::routine::RoutineFault;
use crate::team::MemberPlan;
use crate::team::membership::AdvisedTurn;
use crate::team::playing::ScenarioPlanner;
use crate::team::scenario::Scenario;
use crate::team::speaker::{AdvisedSpeaker, PassingSpeaker, TeamMove};
use schemas::payload::Terms;

const NOW: Timestamp = Timestamp::from_ms(1_000);

#[test]
fn an_agent_joins_teams_offers_for_tasks_and_refuses_everything_else() {
    let (mut bob, _jobs) = agent_of("bob");
    let joined = said(&mut bob, "alice~paper", team_call("write"));
    assert_eq!(joined, json!({"act": "join", "terms": {"fit": 800_000}}));
    assert_eq!(bob.memberships.part(&id("alice~paper")).unwrap().view().goal, "write");
    let offered = said(&mut bob, "alice~paper~t1", task_call("figures"));
    assert_eq!(offered, json!({"act": "offer", "round": 1, "terms": {"fit": 900_000}}));
    for (negotiation, told, reason) in [
        ("alice~other", team_call("something else"), "knows no such team"),
        ("alice~paper~t2", task_call("songs"), "knows no such task"),
        ("alice~paper~t3", task_call("tables"), "no tables"),
        ("alice~n1", plain_call(), "works in teams only"),
    ] {
        let refused = said(&mut bob, negotiation, told);
        assert_eq!((&refused["act"], &refused["reason"]), (&json!("refuse"), &json!(reason)));
    }
    let (mut carol, _jobs) = agent_of("carol");
    assert_eq!(said(&mut carol, "alice~paper", team_call("write"))["reason"], "no time");
}

#[test]
fn an_award_is_confirmed_and_worked_on_once_it_binds() {
    for (outcome, report) in [
        (Ok("two figures".to_owned()), json!({"act": "inform", "kind": "result", "result": "two figures"})),
        (Err(RoutineFault::Failed("no ink".to_owned())), failure("no ink", false)),
        (Err(RoutineFault::TimedOut), failure("timed_out", true)),
    ] {
        let (mut bob, mut jobs) = agent_of("bob");
        let task = "alice~paper~t1";
        assert_eq!(said(&mut bob, task, award("figures", 1)), json!({"act": "confirm", "award_no": 1}));
        jobs.try_recv().unwrap_err();
        assert_eq!(said(&mut bob, task, committed(1)), Value::Null);
        let TeamJob::Work { award_no, request } = jobs.try_recv().unwrap() else { panic!("no work") };
        assert_eq!((request.title.as_str(), request.text.as_str()), ("figures", "do it"));
        // Said twice, done once.
        assert_eq!(said(&mut bob, task, committed(1)), Value::Null);
        jobs.try_recv().unwrap_err();
        let done = JobDone::Work { task: id(task), award_no, outcome };
        assert_eq!(payloads(&bob.handle_done(NOW, done.clone())), [report]);
        assert!(bob.handle_done(NOW, done).is_empty());
    }
}

#[test]
fn a_result_that_comes_after_the_award_was_lost_says_nothing() {
    let done = |award_no: u32| JobDone::Work {
        task: id("alice~paper~t1"),
        award_no: AwardNo(award_no),
        outcome: Ok(String::new()),
    };
    for (told, answer) in [
        (json!({"act": "cancel", "award_no": 1, "reason": "cancelled"}), json!({"act": "inform", "kind": "cancelled"})),
        (json!({"act": "cancel", "award_no": 1, "reason": "perform_timeout"}), Value::Null),
        (json!({"act": "closed", "outcome": "timeout", "digest": "0".repeat(64)}), Value::Null),
    ] {
        let (mut bob, _jobs) = agent_of("bob");
        for told in [award("figures", 1), committed(1)] {
            said(&mut bob, "alice~paper~t1", told);
        }
        assert_eq!(said(&mut bob, "alice~paper~t1", told), answer);
        assert!(bob.handle_done(NOW, done(1)).is_empty());
    }
}

#[test]
fn the_owner_of_a_task_calls_a_sub_team_under_the_id_the_exchange_forms() {
    let (mut bob, mut jobs) = agent_of("bob");
    said(&mut bob, "alice~paper~t2", award("survey", 3));
    assert!(bob.handle(NOW, &delivery("alice~paper~t2", committed(3))).is_empty());
    let search = TeamJob::Search { team: id("alice~paper~s2-3"), queries: vec!["drawing".to_owned()] };
    assert_eq!(jobs.try_recv().unwrap(), search);
    let found = ["bob", "dave", "carol"].map(|name| AgentId::try_new(name).unwrap()).to_vec();
    let actions = bob.handle_done(NOW, JobDone::Found { team: id("alice~paper~s2-3"), agents: found });
    let [Action::Send(call)] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!(call.negotiation, id("alice~paper~s2-3"));
    let invited: Vec<String> = call.call_to.as_ref().unwrap().to.iter().map(ToString::to_string).collect();
    assert_eq!(invited, ["agent://carol", "agent://dave"], "itself never, and each once");
    let cfp = serde_json::to_value(&call.payload).unwrap();
    assert_eq!(cfp["team"]["of"], json!({"task": "alice~paper~t2", "award_no": 3}));
    // What the sub-team concludes the exchange reports itself.
    let closed = json!({"act": "closed", "outcome": "concluded", "digest": "0".repeat(64)});
    bob.handle(NOW, &delivery("alice~paper~s2-3", closed));
    jobs.try_recv().unwrap_err();
}

#[test]
fn an_owner_whose_sub_team_comes_to_nothing_works_alone() {
    let closed = |outcome: &str| json!({"act": "closed", "outcome": outcome, "digest": "0".repeat(64)});
    let malformed = json!({"act": "ack", "ack_of": "m1", "disposition": "malformed"});
    for told in [closed("not_formed"), closed("unconcluded"), malformed] {
        let (mut bob, mut jobs) = agent_of("bob");
        for told in [award("survey", 1), committed(1)] {
            said(&mut bob, "alice~paper~t2", told);
        }
        jobs.try_recv().unwrap();
        let dave = AgentId::try_new("dave").unwrap();
        bob.handle_done(NOW, JobDone::Found { team: id("alice~paper~s2-1"), agents: vec![dave] });
        bob.handle(NOW, &delivery("alice~paper~s2-1", told.clone()));
        assert!(matches!(jobs.try_recv(), Ok(TeamJob::Work { .. })), "{told}");
    }
    // Whose own task is over does nothing more.
    let (mut bob, mut jobs) = agent_of("bob");
    for told in [award("survey", 1), committed(1)] {
        said(&mut bob, "alice~paper~t2", told);
    }
    jobs.try_recv().unwrap();
    said(&mut bob, "alice~paper~t2", closed("timeout"));
    bob.handle_done(NOW, JobDone::Found { team: id("alice~paper~s2-1"), agents: Vec::new() });
    jobs.try_recv().unwrap_err();
}

#[test]
fn a_member_hands_its_questions_out_and_says_what_comes_back() {
    let (mut bob, mut jobs) = agent_of("bob");
    bob.planner = Box::new(AdvisedPlanner);
    said(&mut bob, "alice~paper", team_call("write"));
    let floor = json!({"act": "floor", "step": 1, "turn": 1, "turns_left": 32, "state": "discussing", "speaker": "bob",
        "ends_by": "2026-11-20T00:10:00Z", "members": ["bob", "alice"]});
    assert_eq!(said(&mut bob, "alice~paper", floor), Value::Null);
    let TeamJob::Advise { asked_at, view } = jobs.try_recv().unwrap() else { panic!("no question") };
    assert_eq!((asked_at, view.turn, view.goal.as_str()), (NOW, 1, "write"));
    let turn = AdvisedTurn::of(&view);
    let done = JobDone::Advised { team: id("alice~paper"), turn, advice: Some(TeamMove::say("I do it")) };
    assert_eq!(payloads(&bob.handle_done(NOW, done)), [json!({"act": "say", "turn": 1, "text": "I do it"})]);

    // Where too many questions wait, it goes on without advice.
    let (sender, _full) = mpsc::channel(1);
    sender.try_send(TeamJob::Search { team: id("alice~paper"), queries: Vec::new() }).unwrap();
    bob.jobs = sender;
    let floor = json!({"act": "floor", "step": 3, "turn": 3, "turns_left": 30, "state": "discussing", "speaker": "bob",
        "ends_by": "2026-11-20T00:10:00Z"});
    assert_eq!(said(&mut bob, "alice~paper", floor)["text"], "pass, turn 3");
}

/// Joins everything, and says what is advised.
struct AdvisedPlanner;

impl TeamPlanner for AdvisedPlanner {
    fn join(&mut self, _team: &NegotiationId, _goal: &str, _call: &TeamCall) -> Result<MemberPlan, String> {
        Ok(MemberPlan { terms: Terms::new(), speaker: Box::new(AdvisedSpeaker::new(PassingSpeaker)) })
    }

    fn offer(&mut self, _brief: &Brief) -> Result<Terms, String> {
        Err("no tasks".to_owned())
    }

    fn take(&mut self, _brief: &Brief) -> Result<TaskPlan, String> {
        Err("no tasks".to_owned())
    }
}

fn agent_of(name: &str) -> (TeamAgent, mpsc::Receiver<TeamJob>) {
    let scenario = json!({
        "name": "paper",
        "agents": [
            {"name": "alice"},
            {"name": "bob", "tasks": [
                {"title": "figures", "result": "two figures", "offer": {"fit": 900_000}},
                {"title": "tables", "refuses": "no tables"},
                {"title": "survey", "team": {"goal": "draw", "invites": ["carol"], "search": ["drawing"]}},
            ]},
            {"name": "carol"},
            {"name": "dave"},
        ],
        "team": {
            "lead": "alice", "goal": "write", "invites": ["bob"], "rules": {"depth": 1},
            "members": {"bob": {"join": {"fit": 800_000}}, "carol": {"refuses": "no time"}},
        },
    });
    let scenario = Arc::new(Scenario::parse(&scenario.to_string()).unwrap());
    let agent = AgentId::try_new(name).unwrap();
    let (sender, jobs) = mpsc::channel(8);
    (TeamAgent::new(agent.clone(), ScenarioPlanner::new(scenario, agent), sender), jobs)
}

fn id(text: &str) -> NegotiationId {
    NegotiationId::try_new(text).unwrap()
}

fn delivery(negotiation: &str, payload: Value) -> Delivery {
    serde_json::from_value(json!({
        "envelope": {"msg_id": format!("{:032x}", 1), "ts": "2026-11-20T00:00:00Z", "from": "exchange://llmx",
            "to": ["agent://bob"], "negotiation": negotiation},
        "payload": payload,
    }))
    .unwrap()
}

/// What an agent says to a delivery, at most one thing.
fn said(agent: &mut TeamAgent, negotiation: &str, told: Value) -> Value {
    let said = payloads(&agent.handle(NOW, &delivery(negotiation, told)));
    assert!(said.len() <= 1, "{said:?}");
    said.into_iter().next().unwrap_or_default()
}

fn payloads(actions: &[Action]) -> Vec<Value> {
    let sent = actions.iter().filter_map(|action| match action {
        Action::Send(outgoing) => Some(serde_json::to_value(&outgoing.payload).unwrap()),
        Action::Unschedule(_) | Action::Defer | Action::Release(_) | Action::Stop => None,
    });
    sent.collect()
}

fn call(more: Value) -> Value {
    let mut call = json!({
        "act": "cfp", "task": "write", "round": 1, "reply_by": "2026-11-20T00:00:05Z", "ends_by": "2026-11-20T00:10:00Z",
        "policy": "team-task@1", "policy_digest": "0".repeat(64), "lots": 1,
    });
    call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    call
}

fn plain_call() -> Value {
    call(json!({}))
}

fn team_call(goal: &str) -> Value {
    call(json!({"task": goal, "team": {"lead": "alice", "rules": {}, "depth_left": 1}}))
}

fn brief(title: &str) -> Value {
    json!({"team": "alice~paper", "task": 1, "title": title, "text": "do it", "mode": "sync"})
}

fn task_call(title: &str) -> Value {
    call(json!({"brief": brief(title)}))
}

fn award(title: &str, award_no: u32) -> Value {
    json!({
        "act": "accept", "offer_id": "o1-0", "lot": 1, "award_no": award_no, "terms": {}, "terms_digest": "0".repeat(64),
        "confirm_by": "2026-11-20T00:00:05Z", "brief": brief(title),
    })
}

fn committed(award_no: u32) -> Value {
    json!({"act": "ack", "ack_of": "m1", "disposition": "committed", "award_no": award_no})
}

fn failure(code: &str, retryable: bool) -> Value {
    json!({"act": "failure", "phase": "perform", "code": code, "retryable": retryable})
}
