use std::ops::Range;

use schemas::delivery::Delivery;
use schemas::{DeliveryId, Digest, Lane};
use serde_json::{Value, json};

use crate::invariants::{Invariant, Verdict, Witness};
use schemas::{Act, AgentId, AwardNo, MsgId, NegotiationId};

#[test]
fn a_team_that_speaks_in_turn_and_concludes_violates_nothing() {
    let verdict = judged(&story());
    assert_eq!(verdict.violated(), 0, "{:?}", verdict.examples);
    let task = judged(&story_of_a_task());
    assert_eq!(task.violated(), 0, "{:?}", task.examples);
    let sub_team = judged(&story_of_a_sub_team());
    assert_eq!(sub_team.violated(), 0, "{:?}", sub_team.examples);
    let mut verdict = verdict;
    verdict.absorb(task);
    verdict.absorb(sub_team);
    for invariant in Invariant::ALL.iter().filter(|invariant| invariant.is_of_teams()) {
        assert!(
            verdict.by_name.get(invariant).is_some_and(|tally| tally.checked > 0),
            "{invariant:?} was never checked"
        );
    }
}

#[test]
fn each_fault_of_a_team_trips_its_invariant() {
    let changed = |index: usize, pointer: &str, value: Value| {
        let mut story = story();
        *story[index].payload.pointer_mut(pointer).unwrap() = value;
        story
    };
    let without = |index: usize| {
        let mut story = story();
        story.remove(index);
        story
    };
    let plus = |told: Event| {
        let mut story = story();
        story.push(told);
        story
    };
    let told_mallory = told("mallory", floor(1, 1, "alice", json!({"members": ["alice", "bob", "carol"]})));
    let mut told_after_leaving = story();
    told_after_leaving.extend([
        sent("carol", "c3", json!({"act": "end"})),
        told("carol", receipt("c3", json!({"step": 5, "turn": 3}))),
        told("carol", floor(6, 3, "alice", json!({}))),
    ]);
    let also_told = told("bob", floor(3, 3, "carol", json!({"by": "bob", "said": {"text": "two"}})));
    for (name, story, broken) in [
        ("another held the floor", changed(8, "/speaker", json!("carol")), Invariant::OneFloor),
        ("the floor was nobody's", changed(8, "/state", json!("awaiting")), Invariant::OneFloor),
        ("a say behind the last turn", changed(7, "/turn", json!(99)), Invariant::TurnLimit),
        ("a discussion behind the last turn", changed(11, "/turn", json!(33)), Invariant::TurnLimit),
        ("a stranger is told a step", plus(told_mallory), Invariant::MembersOnly),
        ("a step told to one that left", told_after_leaving, Invariant::MembersOnly),
        ("a step in two versions", changed(13, "/said/text", json!("three")), Invariant::SameStory),
        ("a step that a member misses", without(13), Invariant::SameStory),
        ("a step told to whoever made it", plus(also_told), Invariant::SameStory),
        ("a seat without a join", without(2), Invariant::Seated),
    ] {
        let verdict = judged(&story);
        assert!(verdict.by_name.get(&broken).is_some_and(|tally| tally.violated > 0), "{name}: {verdict:?}");
    }
}

#[test]
fn a_call_that_is_refused_makes_its_sender_no_lead() {
    let refused = [
        sent("mallory", "x1", json!({"act": "cfp", "team": {"members": {"max": 2}, "turns": 1}})),
        told("mallory", json!({"act": "ack", "ack_of": "x1", "disposition": "unauthorized"})),
    ];
    let mut refused_last = story();
    refused_last.extend(refused.clone());
    let mut refused_first = refused.to_vec();
    refused_first.extend(story());
    for story in [refused_last, refused_first] {
        let verdict = judged(&story);
        assert_eq!(verdict.violated(), 0, "{:?}", verdict.examples);
        assert!(verdict.by_name.get(&Invariant::Seated).is_some_and(|tally| tally.checked > 0));
    }
}

/// Its turns used up, a team waits for all its tasks, whatever the pause names that took the last.
#[test]
fn a_pause_for_an_ended_task_in_the_last_turn_waits_for_the_open_ones() {
    let paused = |waits: Value| {
        let paused = json!({"state": "paused", "turns_left": 0, "waits": waits, "by": "alice"});
        let open = json!({"task": 2, "status": "open"});
        let mut story = story_of_a_task();
        story.truncate(WOKEN + 2);
        story.extend([
            sent("alice", "a3", json!({"act": "assign", "mode": "async"})),
            told("alice", receipt("a3", json!({"step": 4, "turn": 3, "tasks": [2]}))),
            told("bob", floor(4, 3, "alice", json!({"tasks": [open], "by": "alice"}))),
            sent("alice", "a4", json!({"act": "pause", "triggers": [1]})),
            told("alice", receipt("a4", json!({"step": 5, "turn": 4}))),
            told("bob", floor(5, 4, "alice", paused)),
        ]);
        judged(&story)
    };
    let wakes = |verdict: &Verdict| verdict.by_name.get(&Invariant::Wakes).map_or(0, |tally| tally.violated);
    assert_eq!(wakes(&paused(json!([2]))), 0);
    assert_eq!([json!([1]), json!([]), json!([1, 2])].map(|waits| wakes(&paused(waits)) > 0), [true; 3]);
}

#[test]
fn each_fault_of_a_task_trips_its_invariant() {
    let changed = |index: usize, pointer: &str, value: Value| {
        let mut story = story_of_a_task();
        *story[index].payload.pointer_mut(pointer).unwrap() = value;
        story
    };
    let plus = |told: Event| {
        let mut story = story_of_a_task();
        story.push(told);
        story
    };
    let done_again = told("bob", floor(4, 3, "alice", json!({"tasks": [done("done it")]})));
    for (name, story, broken) in [
        ("woken by another task", changed(WOKEN, "/tasks/0/task", json!(2)), Invariant::Wakes),
        ("a task that is not waited for", changed(AWAITING, "/waits", json!([])), Invariant::Wakes),
        ("still asleep", changed(WOKEN, "/state", json!("awaiting")), Invariant::Wakes),
        ("another speaks first", changed(WOKEN, "/speaker", json!("bob")), Invariant::Wakes),
        ("somebody speaks meanwhile", changed(WOKEN, "/by", json!("bob")), Invariant::Wakes),
        ("a result nobody reported", changed(WOKEN, "/tasks/0/result", json!("all")), Invariant::OneResult),
        ("a result of another", changed(WOKEN, "/tasks/0/owner", json!("alice")), Invariant::OneResult),
        ("another result at the end", changed(ENDED, "/tasks/0/status", json!("failed")), Invariant::OneResult),
        ("a task that ends twice", plus(done_again), Invariant::OneResult),
        ("a brief to a stranger", plus(in_task(told("mallory", accept()))), Invariant::MembersOnly),
        ("another conclusion", changed(ENDED, "/conclusion/text", json!("no")), Invariant::SameStory),
    ] {
        let verdict = judged(&story);
        assert!(verdict.by_name.get(&broken).is_some_and(|tally| tally.violated > 0), "{name}: {verdict:?}");
    }
    assert_eq!(judged(&story_of_a_task()).violated(), 0);
}

#[test]
fn who_assigned_a_task_is_owed_no_bare_receipt_in_it_once_it_is_awarded_unless_it_asks() {
    let team = NegotiationId::try_new("alice~team").unwrap();
    let (alice, cancel) = (AgentId::try_new("alice").unwrap(), MsgId::try_new("a9").unwrap());
    for (task, asks, is_missed) in [(1, false, false), (1, true, true), (2, false, true)] {
        let mut witness = watched(&story_of_a_task());
        let document = json!({"envelope": {"msg_id": cancel, "receipt": asks}, "payload": {"act": "cancel"}});
        let task = team.task(task).unwrap();
        witness.sent(&alice, &task, Act::Cancel, document.to_string().as_bytes());
        witness.accepted(&alice, &cancel, &task);
        let broken: Vec<Invariant> = witness.finish().violated_checks().collect();
        let expected = if is_missed { vec![Invariant::NoLostAdmission] } else { Vec::new() };
        assert_eq!(broken, expected, "{task}, which asks: {asks}");
    }
}

/// A sub-team and its task may end in other ways, as long as they end together. Who asks later is told the end again.
#[test]
fn a_sub_team_may_come_to_nothing_and_its_owner_report_by_itself() {
    let mut orphaned = story_of_a_sub_team();
    let report = json!({"act": "inform", "kind": "result", "result": "alone"});
    orphaned[PROPOSED] = in_task(sent("bob", "b5", report));
    for told in &mut orphaned[SUB_TEAM_CLOSED] {
        told.payload = json!({"act": "closed", "outcome": "cancelled", "detail": "orphaned", "digest": "0".repeat(64)});
    }
    for told in &mut orphaned[TASK_ENDED] {
        told.payload["tasks"][0]["result"] = json!("alone");
    }
    let digest = Digest::of_bytes(b"alone");
    for told in &mut orphaned[TEAM_CLOSED] {
        told.payload["tasks"][0]["digest"] = json!(digest);
    }
    let mut told_again = story_of_a_sub_team();
    let closed = told_again[SUB_TEAM_CLOSED.start].clone();
    told_again.push(Event { reply_to: Some("c9"), second: Some(ENDS_AT + 9), ..closed });
    // Of a task that goes on without its team, no step tells the end.
    let mut outlived = story_of_a_sub_team();
    outlived.drain(TASK_ENDED.start..);
    // Nobody but who asked for it later is told the end of the task.
    let mut asked_for = outlived.clone();
    (asked_for[TASK_CLOSED].second, asked_for[TASK_CLOSED].reply_to) = (Some(ENDS_AT + 3), Some("b9"));
    for story in [orphaned, told_again, outlived, asked_for] {
        let verdict = judged(&story);
        for invariant in [Invariant::FlowsUp, Invariant::NoOrphan] {
            let tally = verdict.by_name.get(&invariant).copied().unwrap_or_default();
            assert!(tally.checked > 0 && tally.violated == 0, "{invariant:?}: {:?}", verdict.examples);
        }
    }
}

#[test]
fn each_fault_of_a_sub_team_trips_its_invariant() {
    let changed = |index: usize, change: &dyn Fn(&mut Event)| {
        let mut story = story_of_a_sub_team();
        change(&mut story[index]);
        story
    };
    let woken = |pointer: &'static str, value: Value| {
        let mut story = story_of_a_sub_team();
        for told in &mut story[TASK_ENDED] {
            *told.payload.pointer_mut(pointer).unwrap() = value.clone();
        }
        story
    };
    let without = |range: Range<usize>| {
        let mut story = story_of_a_sub_team();
        story.drain(range);
        story
    };
    let plus = |told: Event| {
        let mut story = story_of_a_sub_team();
        story.push(told);
        story
    };
    let mut late = story_of_a_sub_team();
    late[TASK_ENDED].iter_mut().for_each(|told| told.second = Some(ENDS_AT + 1));
    let mut proposed_only = story_of_a_sub_team();
    for told in &mut proposed_only[SUB_TEAM_CLOSED] {
        told.payload = json!({"act": "closed", "outcome": "cancelled", "detail": "orphaned", "digest": "0".repeat(64)});
    }
    // The task has failed, and its team is told nothing of it.
    let mut unheard = without(TASK_ENDED.start..story_of_a_sub_team().len());
    unheard[TASK_CLOSED].payload["outcome"] = json!("timeout");
    let mut not_asked_for = without(TASK_ENDED.start..story_of_a_sub_team().len());
    not_asked_for[TASK_CLOSED].second = Some(ENDS_AT + 3);
    let mut early = story_of_a_sub_team();
    early[SUB_TEAM_CALLED].second = Some(0);
    let cancelled = in_task(told("bob", json!({"act": "cancel", "award_no": 1, "reason": "perform_timeout"})));
    let failed = json!({"act": "failure", "contractor": "bob", "award_no": 1, "phase": "perform", "code": "broken",
        "retryable": false});
    let goes_on = in_sub_team(told("carol", floor(3, 2, "bob", json!({}))));
    for (name, story, broken) in [
        ("another result than its words", woken("/tasks/0/result", json!("all")), Invariant::FlowsUp),
        ("a task that failed", woken("/tasks/0/status", json!("failed")), Invariant::FlowsUp),
        ("a result in a later record", late, Invariant::FlowsUp),
        ("a task without an end", without(TASK_CLOSED..story_of_a_sub_team().len()), Invariant::FlowsUp),
        ("a task that timed out unheard", unheard, Invariant::FlowsUp),
        ("a task that ends later", not_asked_for, Invariant::FlowsUp),
        ("words it has not concluded as result", proposed_only, Invariant::FlowsUp),
        ("a call before its award is committed", early, Invariant::NoOrphan),
        ("an award cancelled before", plus(Event { second: Some(ENDS_AT - 1), ..cancelled }), Invariant::NoOrphan),
        (
            "an award that failed before",
            plus(Event { second: Some(ENDS_AT - 1), ..in_task(told("alice", failed)) }),
            Invariant::NoOrphan,
        ),
        ("it goes on after its end", plus(Event { second: Some(ENDS_AT + 9), ..goes_on }), Invariant::NoOrphan),
        ("it outlives its task", without(SUB_TEAM_CLOSED), Invariant::NoOrphan),
        ("its end comes later", changed(TASK_CLOSED, &|told| told.second = Some(ENDS_AT - 1)), Invariant::NoOrphan),
    ] {
        let verdict = judged(&story);
        assert!(verdict.by_name.get(&broken).is_some_and(|tally| tally.violated > 0), "{name}: {verdict:?}");
    }
}

/// Something an agent sent or was told.
#[derive(Clone)]
struct Event {
    agent: &'static str,
    /// The id of what was sent; absent for what was told.
    sent: Option<&'static str>,
    place: Place,
    /// When it was told; absent: a second after what comes before it.
    second: Option<usize>,
    /// What it was told in reply to.
    reply_to: Option<&'static str>,
    payload: Value,
}

/// Where in the family something is said.
#[derive(Clone, Copy)]
enum Place {
    Team,
    Task,
    SubTeam,
}

fn sent(agent: &'static str, msg_id: &'static str, payload: Value) -> Event {
    Event { sent: Some(msg_id), ..told(agent, payload) }
}

fn told(agent: &'static str, payload: Value) -> Event {
    Event { agent, sent: None, place: Place::Team, second: None, reply_to: None, payload }
}

fn in_task(event: Event) -> Event {
    Event { place: Place::Task, ..event }
}

fn in_sub_team(event: Event) -> Event {
    Event { place: Place::SubTeam, ..event }
}

fn floor(step: u32, turn: u32, speaker: &str, more: Value) -> Value {
    let mut floor = json!({"act": "floor", "step": step, "turn": turn, "turns_left": 33 - turn, "state": "discussing",
        "speaker": speaker, "ends_by": "2026-11-20T00:10:00Z"});
    floor.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    floor
}

fn receipt(ack_of: &str, more: Value) -> Value {
    let mut receipt = json!({"act": "ack", "ack_of": ack_of, "disposition": "ok"});
    receipt.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    receipt
}

/// alice calls bob and carol; alice says one, bob two, carol concludes.
fn story() -> Vec<Event> {
    let first = |name| told(name, floor(1, 1, "alice", json!({"members": ["alice", "bob", "carol"]})));
    let said =
        |to, step, speaker, by, text| told(to, floor(step, step, speaker, json!({"by": by, "said": {"text": text}})));
    let conclusion = json!({"by": "carol", "offer_id": "o1-0", "text": "three", "digest": "0".repeat(64), "turn": 3});
    let closed = |to| {
        told(to, json!({"act": "closed", "outcome": "concluded", "digest": "0".repeat(64), "conclusion": conclusion}))
    };
    vec![
        sent("alice", "a1", json!({"act": "cfp", "team": {}})),
        told("alice", receipt("a1", json!({"invited": 2}))),
        sent("bob", "b1", json!({"act": "join"})),
        told("bob", receipt("b1", json!({}))),
        sent("carol", "c1", json!({"act": "join"})),
        told("carol", receipt("c1", json!({}))),
        sent("alice", "a2", json!({"act": "say", "text": "one"})),
        told("alice", receipt("a2", json!({"step": 2, "turn": 2}))),
        first("alice"),
        first("bob"),
        first("carol"),
        said("bob", 2, "bob", "alice", "one"),
        said("carol", 2, "bob", "alice", "one"),
        said("carol", 3, "carol", "bob", "two"),
        said("alice", 3, "carol", "bob", "two"),
        sent("bob", "b2", json!({"act": "say", "text": "two"})),
        told("bob", receipt("b2", json!({"step": 3, "turn": 3}))),
        sent("carol", "c2", json!({"act": "conclude", "text": "three"})),
        told("carol", receipt("c2", json!({"step": 4, "turn": 3}))),
        closed("alice"),
        closed("bob"),
        closed("carol"),
    ]
}

/// Where in [`story_of_a_task`] bob is told that the team waits, and alice that it goes on, and the end.
const AWAITING: usize = 9;
const WOKEN: usize = 14;
const ENDED: usize = 19;

fn accept() -> Value {
    let brief = json!({"team": "alice~team", "task": 1, "title": "it", "text": "do it", "mode": "sync"});
    json!({"act": "accept", "offer_id": "o1-0", "lot": 0, "award_no": 1, "terms": {}, "terms_digest": "0".repeat(64),
        "confirm_by": "2026-11-20T00:00:10Z", "brief": brief})
}

fn done(result: &str) -> Value {
    json!({"task": 1, "status": "done", "owner": "bob", "result": result})
}

/// alice calls bob, and waits for a task of his; he does it, and she concludes.
fn story_of_a_task() -> Vec<Event> {
    let members = json!({"members": ["alice", "bob"]});
    let first = |name| told(name, floor(1, 1, "alice", members.clone()));
    let mut waiting = floor(2, 2, "alice", json!({"state": "awaiting", "waits": [1], "by": "alice"}));
    waiting.as_object_mut().unwrap().remove("speaker");
    let woken = floor(3, 2, "alice", json!({"tasks": [done("done it")], "by": null}));
    let conclusion = json!({"by": "alice", "offer_id": "o1-0", "text": "so", "digest": "0".repeat(64), "turn": 2});
    let digest = Digest::of_bytes(b"done it");
    let ended = json!({"task": 1, "status": "done", "owner": "bob", "digest": digest});
    let closed = |to| {
        told(
            to,
            json!({"act": "closed", "outcome": "concluded", "digest": "0".repeat(64), "conclusion": conclusion,
            "tasks": [ended]}),
        )
    };
    vec![
        sent("alice", "a1", json!({"act": "cfp", "team": {}})),
        told("alice", receipt("a1", json!({"invited": 1}))),
        sent("bob", "b1", json!({"act": "join"})),
        told("bob", receipt("b1", json!({}))),
        first("alice"),
        first("bob"),
        sent("alice", "a2", json!({"act": "assign", "mode": "sync"})),
        told("alice", receipt("a2", json!({"step": 2, "turn": 2, "tasks": [1]}))),
        in_task(told("bob", accept())),
        told("bob", waiting),
        in_task(sent("bob", "b2", json!({"act": "confirm"}))),
        in_task(told("bob", json!({"act": "ack", "ack_of": "b2", "disposition": "committed", "award_no": 1}))),
        in_task(sent("bob", "b3", json!({"act": "inform", "kind": "result", "result": "done it"}))),
        in_task(told("bob", json!({"act": "closed", "outcome": "completed", "digest": "0".repeat(64)}))),
        told("alice", woken.clone()),
        told("bob", woken),
        sent("alice", "a3", json!({"act": "conclude", "text": "so"})),
        told("alice", receipt("a3", json!({"step": 4, "turn": 2}))),
        closed("bob"),
        closed("alice"),
    ]
}

/// Where in [`story_of_a_sub_team`] carol is called to it, bob concludes it, and what follows from that in the same record, with
/// the end of the team above last.
const SUB_TEAM_CALLED: usize = 14;
const PROPOSED: usize = 22;
const SUB_TEAM_CLOSED: Range<usize> = 23..25;
const TASK_CLOSED: usize = 25;
const TASK_ENDED: Range<usize> = 26..28;
const TEAM_CLOSED: Range<usize> = 30..32;
const ENDS_AT: usize = 40;

/// As [`story_of_a_task`], but bob calls a sub-team with carol, which does it.
fn story_of_a_sub_team() -> Vec<Event> {
    let mut story = story_of_a_task();
    let after = story.split_off(WOKEN);
    story.truncate(WOKEN - 2);
    let of = json!({"task": "alice~team~t1", "award_no": 1});
    let rules = json!({"lead": "bob", "rules": {}, "depth_left": 0, "of": of});
    let call = json!({"act": "cfp", "round": 1, "reply_by": "2026-11-20T00:00:30Z", "ends_by": "2026-11-20T00:01:00Z",
        "policy": "team", "policy_digest": "0".repeat(64), "lots": 1, "team": rules});
    let members = json!({"members": ["bob", "carol"]});
    let said = |to, text| told(to, floor(2, 2, "bob", json!({"by": "carol", "said": {"text": text}})));
    let conclusion = json!({"by": "bob", "offer_id": "o2-0", "text": "done it", "digest": "0".repeat(64), "turn": 2});
    let closed = json!({"act": "closed", "outcome": "concluded", "digest": "0".repeat(64), "conclusion": conclusion});
    let below = [
        sent("bob", "b3", json!({"act": "cfp", "team": {"of": of}})),
        told("bob", receipt("b3", json!({"invited": 1}))),
    ];
    let told_below = [
        told("carol", call),
        sent("carol", "c1", json!({"act": "join"})),
        told("carol", receipt("c1", json!({}))),
        told("bob", floor(1, 1, "carol", members.clone())),
        told("carol", floor(1, 1, "carol", members)),
        said("bob", "so"),
        sent("carol", "c2", json!({"act": "say", "text": "so"})),
        told("carol", receipt("c2", json!({"step": 2, "turn": 2}))),
        sent("bob", "b4", json!({"act": "conclude", "text": "done it"})),
    ];
    let ends = [Event { reply_to: Some("b3"), ..told("bob", closed.clone()) }, told("carol", closed)];
    let end_of_task = in_task(told("bob", json!({"act": "closed", "outcome": "completed", "digest": "0".repeat(64)})));
    let at_once = |event: Event| Event { second: Some(ENDS_AT), ..event };
    story.extend(below.into_iter().chain(told_below).map(in_sub_team));
    story.extend(ends.map(in_sub_team).into_iter().chain([end_of_task]).map(at_once));
    story.extend(after.into_iter().enumerate().map(|(index, event)| match index {
        0 | 1 => at_once(event),
        _ => Event { second: Some(ENDS_AT + index), ..event },
    }));
    story
}

fn judged(story: &[Event]) -> Verdict {
    watched(story).finish()
}

fn watched(story: &[Event]) -> Witness {
    let mut witness = Witness::default();
    let team = NegotiationId::try_new("alice~team").unwrap();
    for (index, Event { agent, sent, place, second, reply_to, payload }) in story.iter().enumerate() {
        let second = second.unwrap_or(index);
        let negotiation = match place {
            Place::Team => team.clone(),
            Place::Task => team.task(1).unwrap(),
            Place::SubTeam => team.task(1).unwrap().sub_team(AwardNo(1)).unwrap(),
        };
        let agent = AgentId::try_new(agent).unwrap();
        if let Some(msg_id) = sent {
            let act: Act = serde_json::from_value(payload["act"].clone()).unwrap();
            let document = json!({"envelope": {"msg_id": msg_id}, "payload": payload}).to_string();
            witness.sent(&agent, &negotiation, act, document.as_bytes());
            continue;
        }
        let id = DeliveryId::new(Lane(0), [u8::try_from(index).unwrap(); 16]);
        let delivery: Delivery = serde_json::from_value(json!({
            "envelope": {"msg_id": id, "ts": format!("2026-11-20T00:00:{second:02}Z"), "from": "exchange://llmx",
                "to": [format!("agent://{agent}")], "negotiation": negotiation, "in_reply_to": reply_to},
            "payload": payload,
        }))
        .unwrap();
        witness.received(&agent, &delivery);
    }
    witness
}
