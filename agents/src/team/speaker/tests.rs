use schemas::team::{AssignedTask, Floor, Spoken, TeamRules, TeamTask};
use schemas::{NegotiationId, Timestamp, WireTime};

use super::*;
use crate::team::script::{ScriptedSpeaker, Vote};
use crate::team::view::{RECAP_MAX, Remark};

#[test]
fn a_scripted_member_makes_its_moves_and_then_passes_to_the_lead() {
    let mut bob = ScriptedSpeaker::new(vec![TeamMove::say("first")], None, vec![Vote::No]);
    let view = view("bob");
    assert_eq!(bob.speak(&view), TeamMove::say("first"));
    assert_eq!(bob.speak(&view), TeamMove::Say { text: "pass, turn 4".to_owned(), next: Some(agent("alice")) });
    assert_eq!([bob.vote(&view, "x"), bob.vote(&view, "x")], [false, true]);
}

#[test]
fn a_scripted_lead_waits_for_open_tasks_and_concludes_with_their_results() {
    let mut alice = ScriptedSpeaker::new(Vec::new(), Some("found {task 1} and {task 2}".to_owned()), Vec::new());
    let mut view = view("alice");
    view.note_task(&task(1, TaskStatus::Open));
    assert_eq!(alice.speak(&view), TeamMove::Pause { triggers: None, text: None });
    view.note_task(&TeamTask { result: Some("30 papers".to_owned()), ..task(1, TaskStatus::Done) });
    view.note_task(&TeamTask { code: Some("timeout".to_owned()), ..task(2, TaskStatus::Failed) });
    let concluded = TeamMove::Conclude { text: "found 30 papers and (failed: timeout)".to_owned() };
    assert_eq!(alice.speak(&view), concluded);
    // Where it must conclude, moves that are left wait in vain.
    let mut alice = ScriptedSpeaker::new(vec![TeamMove::say("more"), concluded.clone()], None, Vec::new());
    assert_eq!(alice.speak(&TeamView { state: TeamState::Concluding, ..view }), concluded);
}

#[test]
fn a_move_the_exchange_would_refuse_is_made_one_that_it_takes() {
    let mut view = view("bob");
    view.note_task(&task(1, TaskStatus::Open));
    view.muted = vec![agent("carol")];
    let say = |text: &str, next: Option<&str>| TeamMove::Say { text: text.to_owned(), next: next.map(agent) };
    let assign = |owner: Option<&str>| {
        let one = AssignedTask { owner: owner.map(agent), ..assigned("t") };
        TeamMove::Assign(AssignMove { mode: TaskMode::Sync, policy: None, tasks: vec![one] })
    };
    let nothing = TeamMove::Assign(AssignMove { mode: TaskMode::Async, policy: None, tasks: Vec::new() });
    let pause = |triggers: Option<Vec<u32>>| TeamMove::Pause { triggers, text: None };
    let long = "ä".repeat(TEXT_LEN_MAX + 1);
    for (given, taken) in [
        (say("hello", Some("alice")), say("hello", Some("alice"))),
        (say("hello", None), say("hello", None)),
        (say("hello", Some("mallory")), say("hello", Some("bob"))),
        (say("hello", Some("carol")), say("hello", Some("bob"))),
        (say("", None), say("pass, turn 4", Some("alice"))),
        (say(&long, None), say(&long[..2 * TEXT_LEN_MAX], None)),
        (pause(None), pause(Some(vec![1]))),
        (pause(Some(vec![1, 9])), pause(Some(vec![1]))),
        (pause(Some(vec![9])), say("nothing to wait for", Some("bob"))),
        (assign(Some("carol")), assign(Some("carol"))),
        (assign(None), assign(None)),
        (assign(Some("mallory")), say("mallory is no member and gets no task", Some("bob"))),
        (nothing.clone(), say("no task to assign", Some("bob"))),
        (TeamMove::Conclude { text: String::new() }, TeamMove::Conclude { text: "no conclusion".to_owned() }),
    ] {
        assert_eq!(coerced(given.clone(), &view), taken, "{given:?}");
    }
    view.state = TeamState::Concluding;
    for (given, text) in [(say("the end", None), "the end"), (nothing, "no conclusion")] {
        assert_eq!(coerced(given, &view), TeamMove::Conclude { text: text.to_owned() });
    }
}

#[test]
fn a_view_follows_notices_in_whatever_order_they_come() {
    let mut view = view("bob");
    let first = Floor { members: view.members.clone(), ..floor(5, "bob", "one") };
    view.members.clear();
    let later = Floor { tasks: vec![task(1, TaskStatus::Done)], ..floor(7, "bob", "three") };
    assert!(view.handle_floor(&later));
    assert!(view.has_floor());
    assert!(!view.handle_floor(&Floor { tasks: vec![task(1, TaskStatus::Open)], ..floor(6, "carol", "two") }));
    assert!(!view.handle_floor(&first));
    assert_eq!((view.step, view.members.len(), view.next_seat()), (7, 3, Some(&agent("carol"))));
    assert_eq!(view.tasks[&1].status, TaskStatus::Done, "what has ended stays so");
    let texts: Vec<&Spoken> = view.recap.values().map(|Remark { said, .. }| said).collect();
    assert_eq!(texts, [&said("one"), &said("two"), &said("three")]);
    (8..30).for_each(|step| view.note_said(step, agent("carol"), said("more")));
    assert_eq!(view.recap.len(), RECAP_MAX);
}

#[test]
fn the_next_seat_is_the_next_member_that_is_not_muted() {
    let mut view = view("alice");
    assert_eq!(view.next_seat(), Some(&agent("bob")));
    view.muted = vec![agent("bob"), agent("carol")];
    assert_eq!(view.next_seat(), Some(&agent("alice")));
}

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}

fn view(me: &str) -> TeamView {
    let team = NegotiationId::try_new("alice~paper").unwrap();
    let mut view = TeamView::new(team, agent(me), "a survey".to_owned(), agent("alice"), TeamRules::default());
    view.members = ["alice", "bob", "carol"].map(agent).to_vec();
    (view.step, view.turn) = (4, 4);
    view
}

fn said(text: &str) -> Spoken {
    Spoken::Text { text: text.to_owned() }
}

fn floor(step: u32, speaker: &str, text: &str) -> Floor {
    Floor {
        step,
        turn: step,
        turns_left: 32 - step,
        state: TeamState::Discussing,
        speaker: Some(agent(speaker)),
        act_by: None,
        ends_by: WireTime(Timestamp::from_ms(600_000)),
        by: Some(agent("alice")),
        said: Some(said(text)),
        tasks: Vec::new(),
        waits: Vec::new(),
        members: Vec::new(),
        muted: Vec::new(),
        conclusion: None,
    }
}

fn task(number: u32, status: TaskStatus) -> TeamTask {
    TeamTask { task: number, status, owner: None, title: None, result: None, digest: None, code: None, cut: false }
}

fn assigned(title: &str) -> AssignedTask {
    AssignedTask {
        title: title.to_owned(),
        text: "do it".to_owned(),
        owner: None,
        requires: Vec::new(),
        reply_within_ms: None,
        perform_ms: None,
    }
}
