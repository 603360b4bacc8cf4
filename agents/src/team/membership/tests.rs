use std::sync::Arc;

use parking_lot::Mutex;
use schemas::team::{AssignedTask, ProposedConclusion, TeamRules, VoteOf, VoteRules};
use schemas::{AgentId, Digest, MsgId, NegotiationId, Timestamp, WireTime};
use serde_json::{Value, json};

use super::*;
use crate::team::script::{ScriptedSpeaker, Vote};
use crate::team::speaker::{AdvisedSpeaker, PassingSpeaker};

#[test]
fn a_member_speaks_once_in_each_turn_that_is_its_own() {
    let mut bob = member("bob", vec![TeamMove::say("one"), TeamMove::say("two")]);
    assert_eq!(said(bob.handle_floor(&floor(1, 1, "alice"))), Value::Null);
    assert_eq!(said(bob.handle_floor(&floor(2, 2, "bob"))), json!({"act": "say", "turn": 2, "text": "one"}));
    // A task that ends meanwhile leaves the floor where it is.
    let ended = Floor { tasks: vec![ended(1)], ..floor(3, 2, "bob") };
    assert_eq!(said(bob.handle_floor(&ended)), Value::Null);
    assert_eq!(said(bob.handle_receipt(&receipt(4, 3, &[]))), Value::Null);
    assert_eq!(bob.view().recap[&4].by, agent("bob"));
    assert_eq!(said(bob.handle_floor(&floor(6, 5, "bob")))["text"], "two");
    // What was told before changes nothing any more.
    assert_eq!(said(bob.handle_floor(&floor(5, 4, "bob"))), Value::Null);
}

#[test]
fn a_member_goes_on_after_its_own_act_where_only_the_receipt_says_so() {
    let to_itself = TeamMove::Say { text: "first".to_owned(), next: Some(agent("alice")) };
    let mut alice =
        member("alice", vec![to_itself, assign(TaskMode::Async), assign(TaskMode::Sync), TeamMove::say("last")]);
    assert_eq!(said(alice.handle_floor(&floor(1, 1, "alice")))["text"], "first");
    let assigned = said(alice.handle_receipt(&receipt(2, 2, &[])));
    assert_eq!(
        (&assigned["act"], &assigned["mode"], &assigned["turn"]),
        (&json!("assign"), &json!("async"), &json!(2))
    );
    assert_eq!(said(alice.handle_receipt(&receipt(3, 3, &[1])))["mode"], "sync");
    assert_eq!(alice.view().tasks[&1].title.as_deref(), Some("figures"));
    // Now it waits until a notice gives the floor back.
    assert_eq!(said(alice.handle_receipt(&receipt(4, 4, &[2]))), Value::Null);
    assert_eq!(alice.view().state, TeamState::Awaiting);
    let back = Floor { tasks: vec![ended(2)], ..floor(5, 4, "alice") };
    assert_eq!(said(alice.handle_floor(&back))["text"], "last");
}

#[test]
fn advice_is_asked_once_about_a_turn_and_taken_while_that_lasts() {
    let turn = |turn| AdvisedTurn { turn, is_concluding: false };
    let mut bob = advised("bob");
    assert_eq!(said(bob.handle_floor(&floor(1, 1, "alice"))), Value::Null);
    assert!(bob.poll_question().is_none());
    assert_eq!(said(bob.handle_floor(&floor(2, 2, "bob"))), Value::Null);
    assert_eq!(bob.poll_question().map(|view| view.turn), Some(2));
    // A task that ends meanwhile leaves turn and question as they are.
    bob.handle_floor(&Floor { tasks: vec![ended(1)], ..floor(3, 2, "bob") });
    assert!(bob.poll_question().is_none());
    assert_eq!(said(bob.handle_advice(turn(1), Some(TeamMove::say("too late")))), Value::Null);
    let advice = Some(TeamMove::say("advised"));
    assert_eq!(said(bob.handle_advice(turn(2), advice.clone())), json!({"act": "say", "turn": 2, "text": "advised"}));
    assert_eq!(said(bob.handle_advice(turn(2), advice.clone())), Value::Null);
    // The floor has gone on while it was thought about.
    bob.handle_floor(&floor(5, 4, "bob"));
    bob.handle_floor(&floor(6, 5, "alice"));
    assert_eq!(said(bob.handle_advice(turn(4), advice)), Value::Null);
    // Without advice it passes.
    bob.handle_floor(&floor(7, 6, "bob"));
    assert_eq!(said(bob.handle_advice(turn(6), None))["text"], "pass, turn 6");
}

#[test]
fn a_turn_in_which_only_a_conclusion_is_taken_is_asked_about_anew() {
    let mut bob = advised("bob");
    bob.handle_floor(&floor(2, 2, "bob"));
    assert!(bob.poll_question().is_some());
    let concluding = Floor { state: TeamState::Concluding, ..floor(3, 2, "bob") };
    bob.handle_floor(&concluding);
    assert_eq!(bob.poll_question().map(|view| view.state), Some(TeamState::Concluding));
    let discussing = AdvisedTurn { turn: 2, is_concluding: false };
    assert_eq!(said(bob.handle_advice(discussing, Some(TeamMove::say("more")))), Value::Null);
    let turn = AdvisedTurn { turn: 2, is_concluding: true };
    let concluded = said(bob.handle_advice(turn, Some(TeamMove::say("the end"))));
    assert_eq!(concluded, json!({"act": "conclude", "turn": 2, "text": "the end"}));
}

#[test]
fn a_pause_for_tasks_that_have_all_ended_is_no_waiting_in_whatever_order_it_is_told() {
    let pause = |triggers| TeamMove::Pause { triggers: Some(triggers), text: None };
    let moves = vec![assign(TaskMode::Async), pause(vec![1]), TeamMove::say("on")];
    let mut alice = member("alice", moves.clone());
    alice.handle_floor(&floor(1, 1, "alice"));
    assert_eq!(said(alice.handle_receipt(&receipt(2, 2, &[1])))["triggers"], json!([1]));
    // The task ended in step 3, before the pause of step 4, and is told of behind the receipt.
    assert_eq!(said(alice.handle_receipt(&receipt(4, 3, &[]))), Value::Null);
    let earlier = Floor { tasks: vec![ended(1)], ..floor(3, 2, "alice") };
    assert_eq!(said(alice.handle_floor(&earlier)), json!({"act": "say", "turn": 3, "text": "on"}));
    // Where the task ends later, the notice of that gives the floor back.
    let mut alice = member("alice", moves);
    alice.handle_floor(&floor(1, 1, "alice"));
    alice.handle_receipt(&receipt(2, 2, &[1]));
    assert_eq!(said(alice.handle_receipt(&receipt(3, 3, &[]))), Value::Null);
    let later = Floor { tasks: vec![ended(1)], ..floor(4, 3, "alice") };
    assert_eq!(said(alice.handle_floor(&later))["text"], "on");
}

#[test]
fn behind_the_last_turn_a_lead_concludes_and_waits_for_open_tasks_first() {
    let mut alice = member("alice", vec![assign(TaskMode::Async), TeamMove::Conclude { text: "the end".to_owned() }]);
    alice.view.rules.turns = 1;
    alice.handle_floor(&Floor { turns_left: 1, ..floor(1, 1, "alice") });
    assert_eq!(said(alice.handle_receipt(&receipt(2, 2, &[1]))), Value::Null);
    assert_eq!(alice.view().state, TeamState::Paused);
    let mut alice =
        member("alice", vec![TeamMove::say("last word"), TeamMove::Conclude { text: "the end".to_owned() }]);
    alice.view.rules.turns = 1;
    alice.handle_floor(&Floor { turns_left: 1, ..floor(1, 1, "alice") });
    assert_eq!(
        said(alice.handle_receipt(&receipt(2, 2, &[]))),
        json!({"act": "conclude", "turn": 2, "text": "the end"})
    );
}

#[test]
fn members_vote_once_on_a_conclusion_and_its_author_not_at_all() {
    let mut bob = member("bob", Vec::new());
    bob.speaker = Box::new(ScriptedSpeaker::new(Vec::new(), None, vec![Vote::No]));
    assert_eq!(said(bob.handle_floor(&voting(2, 7, "alice"))), json!({"act": "refuse"}));
    // Another's vote is a step of its own, and no new conclusion.
    assert_eq!(said(bob.handle_floor(&voting(3, 7, "alice"))), Value::Null);
    let accept = said(bob.handle_floor(&voting(5, 8, "alice")));
    assert_eq!(accept, json!({"act": "accept", "offer_id": offer(8), "terms_digest": Digest::of_bytes(b"x")}));
    assert_eq!(said(member("alice", Vec::new()).handle_floor(&voting(2, 7, "alice"))), Value::Null);
}

#[test]
fn a_lead_whose_own_vote_ends_the_voting_goes_on() {
    let mut alice = member("alice", vec![TeamMove::say("again")]);
    alice.speaker = Box::new(ScriptedSpeaker::new(vec![TeamMove::say("again")], None, vec![Vote::No]));
    assert_eq!(said(alice.handle_floor(&voting(2, 7, "bob"))), json!({"act": "refuse"}));
    // Others have still to vote.
    let mut waits = member("alice", vec![TeamMove::say("again")]);
    waits.handle_floor(&voting(2, 7, "bob"));
    assert_eq!(said(waits.handle_receipt(&receipt(3, 4, &[]))), Value::Null);
    assert_eq!(said(alice.handle_receipt(&receipt(3, 5, &[]))), json!({"act": "say", "turn": 5, "text": "again"}));
}

#[test]
fn a_refused_act_is_followed_by_one_that_can_be_taken() {
    let passes = json!({"act": "say", "turn": 2, "text": "pass, turn 2", "next": "alice"});
    let concludes = json!({"act": "conclude", "turn": 2, "text": "the end"});
    let waits = json!({"act": "pause", "turn": 2, "triggers": [1]});
    for (reason, instead) in [
        ("repeated", passes.clone()),
        ("unknown_member", passes.clone()),
        ("out_of_range", passes),
        ("must_conclude", concludes),
        ("open_tasks", waits),
        ("out_of_turn", Value::Null),
        ("stale_round", Value::Null),
        ("bad_round", Value::Null),
        ("closed", Value::Null),
    ] {
        let mut bob = member("bob", vec![TeamMove::say("one"), TeamMove::Conclude { text: "the end".to_owned() }]);
        bob.view.note_task(&opened(1, "figures".to_owned(), None));
        bob.handle_floor(&floor(2, 2, "bob"));
        assert_eq!(said(bob.handle_refusal(&ActRefusal::new(reason))), instead, "{reason}");
    }
}

#[test]
fn a_member_that_is_refused_again_and_again_falls_silent() {
    let mut bob = member("bob", vec![TeamMove::say("one")]);
    bob.handle_floor(&floor(2, 2, "bob"));
    for _ in 0..REFUSALS_MAX {
        assert_eq!(said(bob.handle_refusal(&ActRefusal::new("repeated")))["act"], "say");
    }
    assert_eq!(said(bob.handle_refusal(&ActRefusal::new("repeated"))), Value::Null);
    // The next turn is another matter, and so is a gateway without room.
    assert_eq!(said(bob.handle_floor(&floor(5, 4, "bob")))["act"], "say");
    for _ in 0..10 {
        assert_eq!(said(bob.handle_unsent(&Refusal::new(Code::Overloaded, "no room")))["turn"], 4);
    }
}

/// Says too much, and less when it is told that.
struct Talker(Arc<Mutex<Vec<String>>>);

impl Speaker for Talker {
    fn speak(&mut self, _view: &TeamView) -> TeamMove {
        TeamMove::Say { text: "all I know".to_owned(), next: Some(agent("mallory")) }
    }

    fn refused(&mut self, _view: &TeamView, refused: &TeamMove, refusal: &ActRefusal) -> Option<TeamMove> {
        self.0.lock().push(refusal.to_string());
        matches!(refused, TeamMove::Say { text, .. } if text == "all I know").then(|| TeamMove::say("a part of it"))
    }
}

#[test]
fn a_speaker_learns_why_its_act_was_refused_and_corrects_it() {
    let learnt = Arc::new(Mutex::new(Vec::new()));
    let mut bob = TeamSide { speaker: Box::new(Talker(Arc::clone(&learnt))), ..member("bob", Vec::new()) };
    bob.handle_floor(&floor(2, 2, "bob"));
    let refusal = ActRefusal { reason: "out_of_range".to_owned(), pointer: Some("/payload/text".to_owned()) };
    assert_eq!(said(bob.handle_refusal(&refusal)), json!({"act": "say", "turn": 2, "text": "a part of it"}));
    // What it corrects no further is followed by what any member does.
    assert_eq!(said(bob.handle_refusal(&refusal))["text"], "pass, turn 2");
    // Of what is somebody else's turn it learns as well, and says nothing.
    bob.handle_floor(&floor(5, 4, "bob"));
    assert_eq!(said(bob.handle_refusal(&ActRefusal::new("stale_round"))), Value::Null);
    let too_long = "out_of_range at /payload/text";
    assert_eq!(*learnt.lock(), [too_long, too_long, "stale_round"]);
}

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}

fn member(me: &str, moves: Vec<TeamMove>) -> TeamSide {
    let team = NegotiationId::try_new("alice~paper").unwrap();
    let vote = Some(VoteRules { of: VoteOf::Majority, vote_ms: 1000, attempts: 2 });
    let rules = TeamRules { vote, ..TeamRules::default() };
    let mut view = TeamView::new(team, agent(me), "a survey".to_owned(), agent("alice"), rules);
    view.members = ["alice", "bob", "carol"].map(agent).to_vec();
    TeamSide::new(view, Box::new(ScriptedSpeaker::new(moves, None, Vec::new())))
}

fn advised(me: &str) -> TeamSide {
    TeamSide { speaker: Box::new(AdvisedSpeaker::new(PassingSpeaker)), ..member(me, Vec::new()) }
}

fn said(payload: Option<Payload>) -> Value {
    payload.map_or(Value::Null, |payload| serde_json::to_value(payload).unwrap())
}

fn floor(step: u32, turn: u32, speaker: &str) -> Floor {
    Floor {
        step,
        turn,
        turns_left: 33 - turn,
        state: TeamState::Discussing,
        speaker: Some(agent(speaker)),
        act_by: None,
        ends_by: WireTime(Timestamp::from_ms(600_000)),
        by: None,
        said: None,
        tasks: Vec::new(),
        waits: Vec::new(),
        members: Vec::new(),
        muted: Vec::new(),
        conclusion: None,
    }
}

fn voting(step: u32, number: u64, by: &str) -> Floor {
    let conclusion = ProposedConclusion {
        offer_id: offer(number),
        by: agent(by),
        text: "x".to_owned(),
        terms_digest: Digest::of_bytes(b"x"),
    };
    Floor { state: TeamState::Voting, speaker: None, conclusion: Some(conclusion), ..floor(step, 4, by) }
}

fn offer(number: u64) -> OfferId {
    OfferId::try_new(&format!("o{number}-0")).unwrap()
}

fn receipt(step: u32, turn: u32, tasks: &[u32]) -> Receipt {
    let ack_of = MsgId::try_new("m1").unwrap();
    Receipt { step: Some(step), turn: Some(turn), tasks: tasks.to_vec(), ..Receipt::new(ack_of, Disposition::Ok) }
}

fn ended(task: u32) -> TeamTask {
    TeamTask { status: TaskStatus::Done, result: Some("two".to_owned()), ..opened(task, "figures".to_owned(), None) }
}

fn assign(mode: TaskMode) -> TeamMove {
    let task = AssignedTask {
        title: "figures".to_owned(),
        text: "draw two".to_owned(),
        owner: Some(agent("bob")),
        requires: Vec::new(),
        reply_within_ms: None,
        perform_ms: None,
    };
    TeamMove::Assign(AssignMove { mode, policy: None, tasks: vec![task] })
}
