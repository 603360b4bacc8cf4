use agents::Identity;
use agents::team::TeamMove;
use schemas::delivery::Disposition;
use schemas::{MsgId, Timestamp, WireTime};
use serde_json::{Value, json};

use super::*;
use crate::wire::FrameFault;

#[test]
fn steps_are_told_once_each_and_in_their_order_whoever_heard_them_first() {
    let mut chat = chat();
    assert!(chat.handle_floor(&floor(3, "bob", json!({"by": "carol", "said": {"text": "two"}}))).is_empty());
    assert!(chat.handle_floor(&floor(1, "alice", json!({"members": ["alice", "bob", "carol"]}))).is_empty());
    let told = chat.handle_floor(&floor(2, "carol", json!({"by": "alice", "said": {"text": "one"}})));
    assert_eq!(shown(&told), [(4, "Trip Planner", "one", vec!["carol"]), (4, "carol", "two", vec!["Weather Man"])]);
    assert!(chat.handle_floor(&floor(2, "carol", json!({"by": "alice", "said": {"text": "one"}}))).is_empty());
    // A say that repeats another is told in the words of that.
    let told = chat.handle_floor(&floor(4, "alice", json!({"by": "bob", "said": {"repeats": 2}})));
    assert_eq!(shown(&told), [(4, "Weather Man", "one", vec!["Trip Planner"])]);
    assert_eq!(chat.record().chat_record.len(), 3);
}

#[test]
fn a_frame_is_an_act_of_whoever_holds_the_floor_once() {
    let mut chat = formed();
    let frame = said("Weather Man", 4, "hello", json!(["Trip Planner"]));
    assert_eq!(chat.accept(&bob(), FrameKind::Discussion, frame.clone()), Err(FrameFault::Turn));
    chat.handle_floor(&floor(2, "bob", json!({"by": "alice", "said": {"text": "x"}})));
    let next = Some(alice());
    let accepted = chat.accept(&bob(), FrameKind::Discussion, frame.clone());
    assert_eq!(accepted, Ok(AcceptedFrame::Move(TeamMove::Say { text: "hello".to_owned(), next })));
    assert_eq!(chat.accept(&bob(), FrameKind::Discussion, frame), Err(FrameFault::Turn));
    // What is told is its frame, with the one that holds the floor in the place of those it named.
    let say = SentAct::Say(Say { turn: None, text: "hello".to_owned(), next: Some(alice()) });
    let told = chat.handle_own(&bob(), Some(&say), &receipt(3, 3, &[]));
    assert_eq!(shown(&told), [(4, "Weather Man", "hello", vec!["Trip Planner"])]);
    assert_eq!(told[0].frame.updated_plan, "a plan");
}

#[test]
fn who_is_named_is_a_member_or_the_speaker_itself() {
    for (next, expected) in [
        (json!(["mallory", "carol", "Trip Planner"]), Some("carol")),
        (json!(["mallory"]), Some("alice")),
        (json!("Weather Man"), Some("bob")),
        (json!(""), None),
    ] {
        let mut chat = formed();
        let accepted = chat.accept(&alice(), FrameKind::Discussion, said("Trip Planner", 4, "x", next.clone()));
        let Ok(AcceptedFrame::Move(TeamMove::Say { next: named, .. })) = accepted else { panic!("{accepted:?}") };
        assert_eq!(named.map(|agent| agent.to_string()).as_deref(), expected, "{next}");
    }
}

#[test]
fn tasks_go_by_number_and_their_owners_ids_are_bound_to_them_in_order() {
    let mut chat = formed();
    let frame = said("Trip Planner", 6, "look\nat the weather", json!(["Weather Man", "carol"]));
    let Ok(AcceptedFrame::Move(TeamMove::Assign(assign))) = chat.accept(&alice(), FrameKind::AsyncAssignment, frame)
    else {
        panic!("no assignment")
    };
    assert_eq!((assign.mode, assign.tasks.len(), assign.tasks[0].title.as_str()), (TaskMode::Async, 2, "look"));
    let act = SentAct::Assign(Assign { turn: None, mode: assign.mode, policy: None, tasks: assign.tasks });
    let told = chat.handle_own(&alice(), Some(&act), &receipt(2, 2, &[1, 2]));
    // The native owner begins in its name: its client's colleagues wait for that.
    assert_eq!(kinds(&told), [6, 8]);
    let native = told[1].frame.clone();
    assert_eq!((native.sender.as_str(), native.task_id.len()), ("carol", ID_DIGITS));
    assert_eq!(native.next_speaker, OneOrMany::One("Trip Planner".to_owned()));

    let report = |kind: u8, id: &str| {
        let frame = said("Weather Man", kind, "sun", json!("Trip Planner"));
        ChatFrame { task_id: id.to_owned(), task_conclusion: "sunny".to_owned(), ..frame }
    };
    let Ok(AcceptedFrame::Relayed(told)) = chat.accept(&bob(), FrameKind::TaskProgress, report(8, "b1")) else {
        panic!("no progress")
    };
    assert_eq!(kinds(&told), [8]);
    for (kind, id) in [(8, "b1"), (8, "b2"), (7, ""), (7, &*native.task_id)] {
        let kind = FrameKind::from_repr(kind).unwrap();
        assert_eq!(chat.accept(&bob(), kind, report(kind as u8, id)), Err(FrameFault::Task), "{kind:?} {id}");
    }
    // The pause names ids; the exchange is told numbers.
    let pause = ChatFrame {
        triggers: vec!["b1".to_owned(), native.task_id, "none".to_owned()],
        ..said("Trip Planner", 9, "wait", json!(""))
    };
    let accepted = chat.accept(&alice(), FrameKind::Pause, pause.clone());
    let expected = TeamMove::Pause { triggers: Some(vec![1, 2]), text: Some("wait".to_owned()) };
    assert_eq!(accepted, Ok(AcceptedFrame::Move(expected)));
    let act = SentAct::Pause(Pause { turn: None, triggers: vec![1, 2], text: None });
    let told = chat.handle_own(&alice(), Some(&act), &receipt(3, 3, &[]));
    assert_eq!((kinds(&told), &told[0].frame.triggers), (vec![9], &pause.triggers[..2].to_vec()));

    assert_eq!(
        chat.accept(&bob(), FrameKind::TaskResult, report(7, "b1")),
        Ok(AcceptedFrame::Result { task: 1, text: "sunny".to_owned() })
    );
    assert_eq!(chat.early_result(1).as_deref(), Some("sunny"));
    let ended = |task: u32, status: &str, owner: &str| json!({"task": task, "status": status, "owner": owner, "result": "sunny"});
    let told = chat.handle_floor(&floor(4, "", json!({"state": "paused", "tasks": [ended(1, "done", "bob")]})));
    assert_eq!(shown(&told), [(7, "Weather Man", "sun", vec!["Trip Planner"])]);
    let failed = json!({"task": 2, "status": "failed", "owner": "carol", "code": "timeout"});
    let told = chat.handle_floor(&floor(5, "alice", json!({"tasks": [failed]})));
    assert_eq!(shown(&told), [(7, "carol", "(failed: timeout)", vec![])]);
    assert_eq!(chat.accept(&bob(), FrameKind::TaskResult, report(7, "b1")), Err(FrameFault::Task));
}

#[test]
fn an_owner_may_report_of_its_task_before_the_assigner_has_heard_that_it_is_open() {
    let mut chat = formed();
    let frame = said("Trip Planner", 6, "look", json!(["Weather Man", "carol"]));
    chat.accept(&alice(), FrameKind::AsyncAssignment, frame).unwrap();
    // Other members are not told who is to own it.
    let open = |task: u32| json!({"task": task, "status": "open", "title": "look"});
    let told = chat.handle_floor(&floor(2, "alice", json!({"by": "alice", "tasks": [open(1), open(2)]})));
    assert_eq!(kinds(&told), [6, 8]);
    assert_eq!(told[1].frame.sender, "carol");
    let report = ChatFrame { task_id: "b1".to_owned(), ..said("Weather Man", 8, "looking", json!("")) };
    let Ok(AcceptedFrame::Relayed(told)) = chat.accept(&bob(), FrameKind::TaskProgress, report) else {
        panic!("no progress")
    };
    assert_eq!(kinds(&told), [8]);
}

#[test]
fn a_pause_with_words_is_told_as_one_whoever_heard_of_it_first_and_as_words_where_nothing_is_waited_for() {
    for hears_first in ["the speaker", "another member"] {
        for (waits, turns_left, told_as) in [
            (vec![1], 3, (9, "Trip Planner", "wait", vec![])),
            (vec![1], 0, (9, "Trip Planner", "wait", vec![])),
            (vec![], 3, (4, "Trip Planner", "wait", vec!["Trip Planner"])),
        ] {
            let mut chat = formed();
            let assign = said("Trip Planner", 6, "look", json!(["Weather Man"]));
            let Ok(AcceptedFrame::Move(TeamMove::Assign(assign))) =
                chat.accept(&alice(), FrameKind::AsyncAssignment, assign)
            else {
                panic!("no assignment")
            };
            let act = SentAct::Assign(Assign { turn: None, mode: assign.mode, policy: None, tasks: assign.tasks });
            chat.handle_own(&alice(), Some(&act), &receipt(2, 2, &[1]));
            let report = ChatFrame { task_id: "b1".to_owned(), ..said("Weather Man", 8, "looking", json!("")) };
            chat.accept(&bob(), FrameKind::TaskProgress, report).unwrap();
            let pause = ChatFrame { triggers: vec!["b1".to_owned()], ..said("Trip Planner", 9, "wait", json!("")) };
            chat.accept(&alice(), FrameKind::Pause, pause).unwrap();
            // The task ends before the pause is heard of, where that is to wait for nothing.
            let mut step = 3;
            if waits.is_empty() {
                let ended = json!({"task": 1, "status": "done", "owner": "bob", "result": "sun"});
                chat.handle_floor(&floor(step, "alice", json!({"tasks": [ended]})));
                step += 1;
            }
            let told = if hears_first == "the speaker" {
                let act = SentAct::Pause(Pause { turn: None, triggers: vec![1], text: Some("wait".to_owned()) });
                chat.handle_own(&alice(), Some(&act), &receipt(step, 3, &[]))
            } else {
                let (state, speaker) = if waits.is_empty() { ("discussing", "alice") } else { ("paused", "") };
                let heard = json!({"by": "alice", "state": state, "said": {"text": "wait"}, "waits": waits,
                    "turns_left": turns_left});
                chat.handle_floor(&floor(step, speaker, heard))
            };
            assert_eq!(shown(&told), [told_as], "{hears_first} {waits:?} {turns_left}");
        }
    }
}

#[test]
fn a_task_that_a_native_member_assigns_is_told_to_its_owner_alone() {
    let mut chat = formed();
    let open = json!({"task": 1, "status": "open", "owner": "bob", "title": "look"});
    let told =
        chat.handle_floor(&floor(2, "", json!({"state": "awaiting", "by": "carol", "tasks": [open], "waits": [1]})));
    assert!(told.is_empty());
    let told = chat.handle_work(&bob(), 1, ("look", "at the weather"));
    assert_eq!(shown(&told), [(5, "carol", "look\nat the weather", vec!["Weather Man"])]);
    assert_eq!(told[0].audience, Audience::Only(bob()));
    assert!(chat.handle_work(&bob(), 1, ("look", "at the weather")).is_empty());
}

#[test]
fn a_client_is_told_that_a_turn_has_lapsed_and_that_only_a_conclusion_is_taken() {
    let mut chat = formed();
    let told = chat.handle_floor(&floor(2, "bob", json!({})));
    assert_eq!(shown(&told), [(4, EXCHANGE_NAME, YOUR_TURN, vec!["Weather Man"])]);
    assert!(chat.handle_floor(&floor(3, "carol", json!({}))).is_empty(), "a native member needs no frame");
    let told = chat.handle_floor(&floor(4, "alice", json!({"state": "concluding"})));
    assert_eq!((told[0].frame.content.as_str(), &told[0].audience), (CONCLUDE_NOW, &Audience::Only(alice())));
}

#[test]
fn a_client_whose_act_was_refused_is_told_why_and_holds_the_floor_again_once_its_agent_has_kept_it() {
    let mut chat = formed();
    let words = said("Trip Planner", 4, "words", json!("Weather Man"));
    assert!(chat.accept(&alice(), FrameKind::Discussion, words.clone()).is_ok());
    assert!(chat.handle_refused(&bob(), "repeated").is_empty(), "bob's client has sent nothing");
    let told = chat.handle_refused(&alice(), "repeated");
    assert_eq!(shown(&told), [(4, EXCHANGE_NAME, "Your message was refused: repeated", vec![])]);
    assert_eq!(told[0].audience, Audience::Only(alice()));
    assert_eq!(chat.accept(&alice(), FrameKind::Discussion, words.clone()), Err(FrameFault::Turn));
    let kept = SentAct::Say(Say { turn: None, text: format!("{REFUSED}1"), next: Some(alice()) });
    let told = chat.handle_own(&alice(), Some(&kept), &receipt(2, 2, &[]));
    assert_eq!(shown(&told), [(4, EXCHANGE_NAME, SPEAK_AGAIN, vec!["Trip Planner"])]);
    assert_eq!(told[0].audience, Audience::Only(alice()));
    assert!(chat.record().chat_record.is_empty(), "nobody has said anything");
    assert!(chat.accept(&alice(), FrameKind::Discussion, words).is_ok());
    // A native member that says so is heard like any other.
    let text = format!("{REFUSED}3");
    let told = chat.handle_floor(&floor(3, "alice", json!({"by": "carol", "said": {"text": text}})));
    assert_eq!(shown(&told), [(4, "carol", text.as_str(), vec!["Trip Planner"])]);
}

#[test]
fn a_client_whose_conclusion_was_refused_or_that_must_conclude_is_asked_again_at_once() {
    let end = said("Trip Planner", 11, "the end", json!(""));
    let mut concluding = formed();
    concluding.handle_floor(&floor(2, "alice", json!({"state": "concluding"})));
    assert!(concluding.accept(&alice(), FrameKind::Conclusion, end.clone()).is_ok());
    let mut discussing = formed();
    let words = said("Trip Planner", 4, "words", json!(""));
    assert!(discussing.accept(&alice(), FrameKind::Discussion, words).is_ok());
    for (mut chat, why) in [(concluding, "out_of_range at /payload/text"), (discussing, MUST_CONCLUDE)] {
        let told = chat.handle_refused(&alice(), why);
        let content = format!("Your message was refused: {why}");
        assert_eq!(shown(&told), [(4, EXCHANGE_NAME, content.as_str(), vec!["Trip Planner"])]);
        assert!(chat.accept(&alice(), FrameKind::Conclusion, end.clone()).is_ok(), "{why}");
    }
}

#[test]
fn a_client_is_told_by_length_and_limit_that_its_text_is_cut() {
    let chat = formed();
    let notice = |kind: FrameKind, frame: &ChatFrame| chat.notice_of_cut(&alice(), kind, frame);
    let of = |kind: FrameKind, length: usize| said("Trip Planner", kind as u8, &"ä".repeat(length), json!("carol"));
    for kind in [
        FrameKind::Discussion,
        FrameKind::SyncAssignment,
        FrameKind::AsyncAssignment,
        FrameKind::Pause,
        FrameKind::Conclusion,
        FrameKind::TaskResult,
    ] {
        let told = notice(kind, &of(kind, TEXT_LEN_MAX + 1));
        let content = "Your text has 4097 characters: the exchange takes 4096, the rest is cut off";
        assert_eq!(shown(&told), [(4, EXCHANGE_NAME, content, vec![])], "{kind:?}");
        assert_eq!(told[0].audience, Audience::Only(alice()));
        assert!(notice(kind, &of(kind, TEXT_LEN_MAX)).is_empty(), "{kind:?}");
    }
    // These are sent on whole.
    for kind in [FrameKind::Concluding, FrameKind::TaskProgress] {
        assert!(notice(kind, &of(kind, TEXT_LEN_MAX + 1)).is_empty(), "{kind:?}");
    }
    // What counts of a result is its conclusion.
    let result = ChatFrame { task_conclusion: "sun".to_owned(), ..of(FrameKind::TaskResult, TEXT_LEN_MAX + 1) };
    assert!(notice(FrameKind::TaskResult, &result).is_empty());
}

#[test]
fn an_end_without_a_conclusion_is_told_too_so_that_no_client_waits_for_one() {
    let mut chat = formed();
    chat.handle_floor(&floor(3, "bob", json!({"by": "carol", "said": {"text": "late"}})));
    let closing = json!({"outcome": "unconcluded", "detail": "silence", "digest": "0".repeat(64)});
    let told = chat.handle_closed(Some(&serde_json::from_value(closing).unwrap()));
    assert_eq!(shown(&told)[1], (11, EXCHANGE_NAME, "(no conclusion: unconcluded, silence)", vec![]));
    assert_eq!(told[0].frame.content, "late");
}

#[test]
fn a_frame_without_words_is_dropped_and_binds_none_that_nobody_said() {
    let pause = |triggers: &[&str]| ChatFrame {
        triggers: triggers.iter().map(|id| (*id).to_owned()).collect(),
        ..said("Trip Planner", 9, "wait", json!(""))
    };
    for (kind, frame, fault) in [
        (FrameKind::Discussion, said("Trip Planner", 4, "", json!("")), FrameFault::Empty),
        (FrameKind::Discussion, said("Trip Planner", 4, " \n", json!(["carol"])), FrameFault::Empty),
        (FrameKind::SyncAssignment, said("Trip Planner", 5, "", json!(["carol"])), FrameFault::Empty),
        (FrameKind::AsyncAssignment, said("Trip Planner", 6, "", json!("")), FrameFault::Empty),
        (FrameKind::Conclusion, said("Trip Planner", 11, "", json!("")), FrameFault::Empty),
        (FrameKind::Pause, pause(&[]), FrameFault::Task),
        (FrameKind::Pause, pause(&["none"]), FrameFault::Task),
    ] {
        let mut chat = formed();
        assert_eq!(chat.accept(&alice(), kind, frame), Err(fault), "{kind:?}");
        // The turn is as before.
        let words = said("Trip Planner", 4, "words", json!(""));
        assert!(chat.accept(&alice(), FrameKind::Discussion, words).is_ok(), "{kind:?}");
    }
}

#[test]
fn a_record_is_bounded_in_bytes_and_its_oldest_frames_give_way() {
    let mut chat = formed();
    let plan = "p".repeat(RECORD_BYTES_MAX / 4);
    for step in 2..12 {
        chat.handle_floor(&floor(step, "alice", json!({"by": "carol", "said": {"text": "go on"}})));
        let content = format!("word {step}");
        let frame = ChatFrame { updated_plan: plan.clone(), ..said("Trip Planner", 10, &content, json!("")) };
        let accepted = chat.accept(&alice(), FrameKind::Concluding, frame);
        let Ok(AcceptedFrame::Relayed(told)) = accepted else { panic!("{accepted:?}") };
        assert_eq!(told[0].frame.updated_plan, plan, "it is told whole");
    }
    let kept: Vec<String> = chat.record().chat_record.iter().map(|frame| frame.get().to_owned()).collect();
    assert!(kept.iter().map(String::len).sum::<usize>() <= RECORD_BYTES_MAX);
    assert!(kept.last().unwrap().contains("word 11") && kept.iter().any(|frame| frame.contains("word 9")));
    assert!(!kept.iter().any(|frame| frame.contains("word 8")));
    assert_eq!(kept.iter().map(String::len).sum::<usize>(), chat.record_bytes);
    // One that is larger than the bound is told and not kept.
    let frame = ChatFrame { updated_plan: "p".repeat(RECORD_BYTES_MAX), ..said("Trip Planner", 4, "x", json!("")) };
    chat.tell_all(frame);
    assert_eq!((chat.record.len(), chat.record_bytes), (0, 0));
}

#[test]
fn steps_that_never_follow_are_kept_to_a_bound() {
    let mut chat = formed();
    for step in 3..2000 {
        chat.handle_floor(&floor(step, "bob", json!({"by": "carol", "said": {"text": "x"}})));
    }
    assert_eq!(chat.waiting.len(), STEPS_WAITING_MAX);
    let told = chat.handle_floor(&floor(2, "bob", json!({"by": "carol", "said": {"text": "x"}})));
    assert_eq!(told.len(), STEPS_WAITING_MAX + 1);
}

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}

fn alice() -> AgentId {
    agent("alice")
}

fn bob() -> AgentId {
    agent("bob")
}

fn chat() -> Chat {
    let named = [("Trip Planner", "alice"), ("Weather Man", "bob")];
    let identity = |id: &str| Identity { agent: agent(id), token: "token".into() };
    let names = NameBook::try_new(named.map(|(name, id)| (name.to_owned(), identity(id)))).unwrap();
    let team = NegotiationId::try_new("alice~chat").unwrap();
    Chat::new((team, alice(), TeamRules::default()), None, Arc::new(names), BTreeMap::new())
}

/// Alice, bob and carol, of which carol is no client; alice has the floor.
fn formed() -> Chat {
    let mut chat = chat();
    chat.handle_floor(&floor(1, "alice", json!({"members": ["alice", "bob", "carol"]})));
    chat
}

fn floor(step: u32, speaker: &str, more: Value) -> Floor {
    let mut floor = json!({"step": step, "turn": step, "turns_left": 10, "state": "discussing",
        "ends_by": WireTime(Timestamp::from_ms(600_000))});
    if !speaker.is_empty() {
        floor["speaker"] = json!(speaker);
    }
    floor.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(floor).unwrap()
}

fn receipt(step: u32, turn: u32, tasks: &[u32]) -> Receipt {
    let receipt = Receipt::new(MsgId::try_new("m1").unwrap(), Disposition::Ok);
    Receipt { step: Some(step), turn: Some(turn), tasks: tasks.to_vec(), ..receipt }
}

fn said(sender: &str, kind: u8, content: &str, next: Value) -> ChatFrame {
    let frame = json!({"content": content, "sender": sender, "next_speaker": next, "state": 1, "type": kind,
        "updated_plan": "a plan"});
    serde_json::from_value(frame).unwrap()
}

fn shown(told: &[ToldFrame]) -> Vec<(u8, &str, &str, Vec<&str>)> {
    let mut shown = Vec::new();
    for ToldFrame { frame, .. } in told {
        let names = frame.next_speaker.iter().collect();
        shown.push((frame.kind, frame.sender.as_str(), frame.content.as_str(), names));
    }
    shown
}

fn kinds(told: &[ToldFrame]) -> Vec<u8> {
    told.iter().map(|told| told.frame.kind).collect()
}
