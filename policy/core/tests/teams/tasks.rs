//! Tasks (docs/spec/team.md#tasks): how they are opened, awarded, waited for and ended, and what is refused.

use std::sync::Arc;

use policy_core::{Cause, Effect, preset};
use policy_core::{ProtocolView, TeamView};
use schemas::delivery::{Notification, Outcome, ProgressReport};
use schemas::ids::Capability;
use schemas::record::{EngineEvent, Entry};
use schemas::team::{TaskStatus, TeamState};
use schemas::{Act, NegotiationId};
use serde_json::{Value, json};

use crate::gathering::{BEGIN_MS, ENDS_MS, Gathering, SPEAK_MS, merge};
use crate::script::pinned;

const THREE: [&str; 3] = ["alice", "bob", "carol"];

impl Gathering {
    /// ASSIGN of these tasks.
    pub(crate) fn assign(&mut self, at_ms: u64, who: &str, mode: &str, tasks: &[Value]) -> Vec<String> {
        self.say(at_ms, who, Act::Assign, json!({"mode": mode, "tasks": tasks}))
    }

    /// What somebody says in a task.
    pub(crate) fn in_task(&mut self, at_ms: u64, number: u32, who: &str, act: Act, payload: Value) -> Vec<String> {
        let team = self.script.negotiation.clone();
        self.script.negotiation = team.task(number).expect("a task");
        let texts = self.say(at_ms, who, act, payload);
        self.script.negotiation = team;
        texts
    }

    /// The team as a member sees it.
    pub(crate) fn team_view(&self, who: &str) -> TeamView {
        let view = self.script.lane_state.view(&self.script.negotiation, &crate::script::agent(who));
        let Some(ProtocolView::Team(team)) = view.expect("a member's").protocol else { panic!("a team") };
        *team
    }

    pub(crate) fn offer(&mut self, at_ms: u64, number: u32, who: &str, fit: i64) -> Vec<String> {
        self.in_task(at_ms, number, who, Act::Offer, json!({"terms": {"fit": fit, "delivery_ms": 0}}))
    }

    pub(crate) fn confirm(&mut self, at_ms: u64, number: u32, who: &str) -> Vec<String> {
        self.in_task(at_ms, number, who, Act::Confirm, json!({"award_no": 1}))
    }

    pub(crate) fn result(&mut self, at_ms: u64, number: u32, who: &str) -> Vec<String> {
        self.in_task(at_ms, number, who, Act::Inform, json!({"kind": "result", "result": "drawn"}))
    }
}

/// A task for this owner.
pub(crate) fn direct(owner: &str) -> Value {
    json!({"title": "figures", "text": "draw them", "owner": owner})
}

/// A task for whoever is best.
pub(crate) fn open() -> Value {
    json!({"title": "figures", "text": "draw them"})
}

fn changed(mut task: Value, change: Value) -> Value {
    merge(&mut task, change);
    task
}

#[test]
fn a_named_owner_is_awarded_its_task_at_once_and_a_sync_assigner_speaks_next() {
    let mut gathering = Gathering::of(&THREE, json!({}));
    assert_eq!(
        gathering.assign(20, "alice", "sync", &[direct("bob")]),
        [
            "alice<ack:ok",
            "bob<floor:2:2:awaiting@award.0.1",
            "carol<floor:2:2:awaiting@award.0.1",
            "award.0.1",
            "bob<accept:1@award.0.1",
            "alice<inform:awarded:bob:1@award.0.1",
        ]
    );
    let Notification::Accept(award) = &*gathering.script.last("bob", Act::Accept).told else { panic!("ACCEPT") };
    let brief = award.brief.as_deref().expect("a brief");
    assert_eq!((brief.team.as_str(), brief.task, brief.text.as_str()), ("alice~job", 1, "draw them"));
    let cause = gathering.script.effects.iter().rev().find_map(|effect| match effect {
        Effect::Event(policy_core::Event::Decided(decision)) => Some(decision.cause),
        _ => None,
    });
    assert_eq!(cause, Some(Cause::Direct));
    assert_eq!(gathering.floor("carol").waits, [1]);
    assert_eq!(
        gathering.confirm(21, 1, "bob"),
        [
            "award.0.1.end=committed@award.0.1",
            "bob<ack:committed@award.0.1.end",
            "alice<inform:committed:bob:1@award.0.1.end"
        ]
    );
    assert_eq!(
        gathering.result(22, 1, "bob"),
        [
            "bob<ack:ok",
            "alice<inform:result:bob:1",
            "closed=completed@award.0.1.end",
            "alice<closed:completed@closed",
            "bob<closed:completed@closed",
            "alice<floor:3:2:discussing:alice@closed",
            "bob<floor:3:2:discussing:alice@closed",
            "carol<floor:3:2:discussing:alice@closed",
        ]
    );
    let [task] = &gathering.floor("carol").tasks[..] else { panic!("one task") };
    assert_eq!((task.status, task.result.as_deref()), (TaskStatus::Done, Some("drawn")));
    assert_eq!(task.owner.as_ref().map(|owner| owner.as_str()), Some("bob"));
}

#[test]
fn the_receipt_of_an_assignment_tells_its_tasks() {
    let mut gathering = Gathering::of(&THREE, json!({}));
    gathering.assign(20, "alice", "async", &[direct("bob"), direct("carol")]);
    let Notification::Ack(receipt) = &*gathering.script.last("alice", Act::Ack).told else { panic!("a receipt") };
    assert_eq!((receipt.step, receipt.turn, &receipt.tasks[..]), (Some(2), Some(2), &[1, 2][..]));
}

#[test]
fn a_task_that_several_can_do_goes_by_award_among_all_but_its_assigner() {
    let mut gathering = Gathering::of(&["alice", "bob", "carol", "dan"], json!({}));
    assert_eq!(
        gathering.assign(20, "alice", "async", &[open()])[4..],
        ["bob<cfp", "carol<cfp", "dan<cfp"].map(str::to_owned)
    );
    gathering.offer(21, 1, "bob", 100_000);
    gathering.offer(22, 1, "dan", 900_000);
    assert_eq!(
        gathering.in_task(23, 1, "carol", Act::Refuse, json!({}))[1..],
        ["award.0.1", "dan<accept:1@award.0.1", "alice<inform:awarded:dan:1@award.0.1"].map(str::to_owned)
    );
    assert_eq!(gathering.in_task(24, 1, "alice", Act::Offer, json!({"terms": {}}))[0], "alice<ack:out_of_turn");
    gathering.confirm(25, 1, "dan");
    let told = gathering.in_task(26, 1, "dan", Act::Failure, json!({"phase": "perform", "code": "broken"}));
    assert!(told.contains(&"bob<accept:2@award.0.2".to_owned()), "the runner-up takes it: {told:?}");
}

#[test]
fn only_those_that_have_all_that_a_task_requires_are_called_and_one_alone_is_awarded_it() {
    let mut gathering = Gathering::empty();
    gathering.call(&["bob", "carol", "dan"], json!({}), json!({}));
    let drawing = Capability::try_new("drawing").expect("a capability");
    for who in ["bob", "carol", "dan"] {
        let mut join = gathering.script.message(who, Act::Join, json!({}), json!({}));
        join.capabilities = if who == "bob" { Vec::new() } else { vec![drawing.clone()] };
        gathering.send(BEGIN_MS, join);
    }
    let required = || changed(open(), json!({"requires": ["drawing"]}));
    assert_eq!(gathering.assign(20, "alice", "async", &[required()])[4..], ["carol<cfp", "dan<cfp"].map(str::to_owned));
    gathering.say(21, "alice", Act::Say, json!({"text": "and you?", "next": "carol"}));
    let told = gathering.assign(22, "carol", "async", &[required()]);
    assert!(told.contains(&"dan<accept:1@award.0.1".to_owned()), "only dan is left: {told:?}");
}

#[test]
fn an_async_assigner_goes_on_and_a_task_that_ends_leaves_the_floor_where_it_is() {
    let mut gathering = Gathering::of(&THREE, json!({}));
    gathering.assign(20, "alice", "async", &[direct("bob")]);
    gathering.speak(21, "alice");
    let before = gathering.floor("carol");
    gathering.confirm(22, 1, "bob");
    gathering.result(23, 1, "bob");
    let after = gathering.floor("carol");
    assert_eq!((after.step, after.turn, &after.speaker), (before.step + 1, before.turn, &before.speaker));
    assert_eq!(after.act_by, before.act_by, "the time for the turn runs on");
}

#[test]
fn a_pause_ends_in_the_step_in_which_the_last_of_its_tasks_does() {
    let mut gathering = Gathering::of(&THREE, json!({}));
    gathering.assign(20, "alice", "async", &[direct("bob"), direct("carol"), direct("carol")]);
    gathering.say(21, "alice", Act::Pause, json!({"triggers": [1, 2]}));
    assert_eq!((gathering.floor("bob").state, gathering.floor("bob").waits), (TeamState::Paused, vec![1, 2]));
    assert_eq!(gathering.speak(22, "alice")[0], "alice<ack:out_of_turn");
    for (number, who) in [(1, "bob"), (2, "carol"), (3, "carol")] {
        gathering.confirm(23, number, who);
    }
    gathering.result(24, 3, "carol");
    gathering.result(25, 1, "bob");
    assert_eq!((gathering.floor("bob").state, gathering.floor("bob").waits), (TeamState::Paused, vec![2]));
    gathering.result(26, 2, "carol");
    let floor = gathering.floor("bob");
    assert_eq!((floor.state, floor.speaker.unwrap().as_str()), (TeamState::Discussing, "alice"));
    let again = gathering.say(27, "alice", Act::Pause, json!({"triggers": [1]}));
    assert_eq!(again[1], "bob<floor:7:4:discussing:alice@award.0.1", "what has ended is not waited for");
}

/// A bad assignment: its tasks, and what it is answered.
const FAULTS: &[(&str, [&str; 2])] = &[
    (r#"[{"owner": "mallory"}]"#, ["malformed", "unknown_member:/payload/tasks/0/owner"]),
    (r#"[{"owner": "bob"}, {"owner": "dan"}]"#, ["malformed", "unknown_member:/payload/tasks/1/owner"]),
    (r#"[{"requires": ["flying"]}]"#, ["policy_reject", "no_candidate:/payload/tasks/0"]),
    (r#"[{}, {}, {}]"#, ["malformed", "too_many_tasks:/payload/tasks"]),
    (r#"[{"owner": "bob", "perform_ms": 98001}]"#, ["malformed", "bad_deadline:/payload/tasks/0"]),
    (r#"[{"owner": "bob"}, {"reply_within_ms": 88000}]"#, ["malformed", "bad_deadline:/payload/tasks/1"]),
];

#[test]
fn an_assignment_of_which_one_task_cannot_be_opens_none() {
    for (tasks, [answer, reason]) in FAULTS {
        let mut gathering = Gathering::of(&["alice", "bob", "carol", "dan"], json!({"tasks": 2}));
        gathering.say(19, "dan", Act::End, json!({}));
        let tasks: Vec<Value> = serde_json::from_str(tasks).expect("tasks");
        let tasks: Vec<Value> =
            tasks.into_iter().map(|task| changed(json!({"title": "x", "text": "y"}), task)).collect();
        let texts = gathering.assign(20, "alice", "sync", &tasks);
        assert_eq!(texts, [format!("alice<ack:{answer}"), format!("alice<not_understood:{reason}")]);
        assert_eq!(gathering.script.lane_state.open_count(), 1, "{reason}: nothing opens");
        gathering.assign(21, "alice", "async", &[direct("bob")]);
        assert_eq!(gathering.floor("bob").turn, 2, "{reason}: no turn was taken, no number used up");
        assert_eq!(gathering.floor("bob").tasks[0].task, 1);
    }
}

#[test]
fn an_assignment_of_no_tasks_keeps_the_floor_and_takes_the_turn() {
    for mode in ["sync", "async"] {
        let mut gathering = Gathering::of(&THREE, json!({}));
        assert_eq!(gathering.assign(20, "alice", mode, &[])[0], "alice<ack:ok", "{mode}");
        let floor = gathering.floor("bob");
        assert_eq!((floor.state, floor.turn, floor.waits), (TeamState::Discussing, 2, Vec::new()), "{mode}");
        assert_eq!(floor.speaker.unwrap().as_str(), "alice", "{mode}");
    }
}

#[test]
fn an_assignment_runs_under_the_policy_that_is_pinned_with_it_and_under_none_that_cannot_award_tasks() {
    let named = |name: &str| {
        let mut gathering = Gathering::of(&THREE, json!({}));
        let payload = json!({"mode": "async", "policy": name, "tasks": [direct("bob")]});
        let mut message = gathering.script.message("alice", Act::Assign, payload, json!({}));
        message.pinned = preset(name).map(|policy| Arc::new(pinned(policy, &[])));
        gathering.send(20, message)
    };
    assert_eq!(named("team-task")[0], "alice<ack:ok");
    assert_eq!(named("high")[0], "alice<ack:ok");
    for unfit in ["bargain-low", "none"] {
        assert_eq!(
            named(unfit),
            ["alice<ack:malformed", "alice<not_understood:invalid_policy:/payload/policy"],
            "{unfit}"
        );
    }
}

#[test]
fn under_settle_a_conclusion_waits_for_the_tasks() {
    let mut gathering = Gathering::of(&THREE, json!({}));
    gathering.assign(20, "alice", "async", &[direct("bob")]);
    assert_eq!(gathering.conclude(21, "alice"), ["alice<ack:policy_reject", "alice<not_understood:open_tasks"]);
    let Notification::NotUnderstood(told) = &*gathering.script.last("alice", Act::NotUnderstood).told else {
        panic!("NOT_UNDERSTOOD")
    };
    assert_eq!(told.expected, [Act::Say, Act::Pause]);
    gathering.in_task(22, 1, "bob", Act::Refuse, json!({}));
    assert_eq!(gathering.floor("carol").tasks[0].code.as_deref(), Some("no_candidate"));
    gathering.conclude(23, "alice");
    assert_eq!(gathering.closing("bob").outcome, Outcome::Concluded);
}

#[test]
fn under_cancel_a_conclusion_calls_the_tasks_off() {
    let mut gathering = Gathering::of(&THREE, json!({"at_conclusion": "cancel"}));
    gathering.assign(20, "alice", "async", &[direct("bob"), open()]);
    let texts = gathering.conclude(21, "alice");
    assert!(texts.contains(&"bob<cancel:1:cancelled@award.0.1.end".to_owned()), "{texts:?}");
    assert_eq!(gathering.script.lane_state.open_count(), 1, "bob has yet to answer");
    gathering.in_task(22, 1, "bob", Act::Inform, json!({"kind": "cancelled"}));
    assert_eq!(gathering.script.lane_state.open_count(), 0);
}

#[test]
fn under_leave_a_result_goes_to_assigner_and_lead_and_the_conclusion_stays() {
    let mut gathering = Gathering::of(&THREE, json!({"at_conclusion": "leave"}));
    gathering.speak(20, "alice");
    gathering.assign(21, "bob", "async", &[direct("carol")]);
    gathering.confirm(22, 1, "carol");
    gathering.conclude(23, "bob");
    let concluded = gathering.closing("alice");
    let texts = gathering.result(10_000, 1, "carol");
    assert_eq!(
        texts[..3],
        ["carol<ack:ok", "alice<inform:result:carol:1", "bob<inform:result:carol:1"].map(str::to_owned)
    );
    gathering.speak(10_001, "alice");
    assert_eq!(gathering.closing("alice"), concluded);
    let Notification::Inform(ProgressReport::Result(news)) = &*gathering.script.last("alice", Act::Inform).told else {
        panic!("a result")
    };
    assert_eq!(news.result.as_deref(), Some("drawn"));
}

#[test]
fn whoever_leaves_loses_its_tasks() {
    let mut gathering = Gathering::of(&["alice", "bob", "carol", "dan"], json!({}));
    gathering.assign(20, "alice", "async", &[direct("bob"), direct("bob"), open()]);
    gathering.confirm(21, 1, "bob");
    gathering.say(22, "bob", Act::End, json!({}));
    let floor = gathering.floor("carol");
    assert_eq!((floor.step, floor.tasks[0].task, floor.tasks[0].code.as_deref()), (5, 2, Some("left")));
    assert_eq!(gathering.script.lane_state.open_count(), 2, "the third goes on");
}

#[test]
fn whoever_leaves_a_team_ends_what_it_assigned_and_is_out_of_the_running_for_the_rest() {
    let mut gathering = Gathering::of(&["alice", "bob", "carol", "dan"], json!({}));
    gathering.speak(20, "alice");
    gathering.assign(21, "bob", "async", &[direct("carol"), direct("dan")]);
    gathering.confirm(22, 1, "carol");
    gathering.in_task(23, 2, "bob", Act::Cancel, json!({}));
    gathering.say(24, "bob", Act::Say, json!({"text": "go on", "next": "alice"}));
    gathering.assign(25, "alice", "async", &[open()]);
    gathering.offer(26, 3, "bob", 900_000);
    let told = gathering.say(27, "bob", Act::End, json!({}));
    for wanted in
        ["carol<cancel:1:cancelled@award.0.1.end", "bob<reject:withdrawn", "carol<closed:cancelled:left@closed"]
    {
        assert!(told.contains(&wanted.to_owned()), "{wanted} in {told:?}");
    }
    assert!(!told.contains(&"dan<cancel:1:cancelled@award.0.1.end".to_owned()), "dan was told before");
    let codes: Vec<_> = gathering.team_view("carol").tasks.into_iter().map(|task| task.code).collect();
    assert_eq!(codes, [Some("left".to_owned()), Some("left".to_owned()), None]);
    gathering.offer(28, 3, "dan", 100_000);
    let told = gathering.in_task(29, 3, "carol", Act::Refuse, json!({}));
    assert!(told.contains(&"dan<accept:1@award.0.1".to_owned()), "bob is not waited for, nor chosen: {told:?}");
}

#[test]
fn whoever_has_left_is_a_stranger_to_the_tasks_of_its_team() {
    let mut gathering = Gathering::of(&["alice", "bob", "carol", "dan"], json!({"at_conclusion": "leave"}));
    gathering.assign(20, "alice", "async", &[direct("carol"), open()]);
    gathering.confirm(21, 1, "carol");
    gathering.say(22, "alice", Act::End, json!({}));
    for (number, concludes) in [(1, false), (2, false), (1, true), (2, true)] {
        if concludes {
            gathering.conclude(23, "bob");
        }
        let task = gathering.script.negotiation.task(number).expect("a task");
        assert_eq!(gathering.script.lane_state.view(&task, &crate::script::agent("alice")), None, "task {number}");
        for act in [Act::Cancel, Act::NotUnderstood] {
            let told = gathering.in_task(24, number, "alice", act, json!({}));
            assert_eq!(told, ["alice<ack:unauthorized"], "task {number}: {act}");
        }
        assert!(gathering.script.lane_state.view(&task, &crate::script::agent("carol")).is_some());
    }
}

#[test]
fn a_task_that_is_called_off_keeps_its_standing_until_its_owner_has_answered() {
    let mut gathering = Gathering::of(&THREE, json!({}));
    gathering.assign(20, "alice", "async", &[direct("bob"), direct("carol")]);
    gathering.confirm(21, 1, "bob");
    gathering.in_task(22, 1, "alice", Act::Cancel, json!({}));
    gathering.in_task(22, 2, "alice", Act::Cancel, json!({}));
    let tasks = gathering.team_view("carol").tasks;
    assert_eq!((tasks[0].status, tasks[1].status), (TaskStatus::Running, TaskStatus::Open));
    assert_eq!(tasks[0].owner.as_ref().map(|owner| owner.as_str()), Some("bob"));
    for (number, owner) in [(1, "bob"), (2, "carol")] {
        let task = gathering.script.negotiation.task(number).expect("a task");
        let view = gathering.script.lane_state.view(&task, &crate::script::agent("alice")).expect("the assigner's");
        let awards: Vec<_> = view.awards.iter().map(|award| (award.contractor.as_str(), award.state)).collect();
        assert_eq!(awards, [(owner, "cancel_pending")]);
    }
}

#[test]
fn a_task_is_called_off_by_its_assigner_or_the_lead_and_by_nobody_else() {
    for (who, answer) in [("bob", "ok"), ("alice", "ok"), ("dan", "unauthorized"), ("carol", "out_of_turn")] {
        let mut gathering = Gathering::of(&["alice", "bob", "carol", "dan"], json!({}));
        gathering.speak(20, "alice");
        gathering.assign(21, "bob", "sync", &[direct("carol")]);
        let cancel = json!({"reason": "enough"});
        assert_eq!(gathering.in_task(22, 1, who, Act::Cancel, cancel)[0], format!("{who}<ack:{answer}"));
        if answer == "ok" {
            gathering.in_task(23, 1, "carol", Act::Inform, json!({"kind": "cancelled"}));
            let floor = gathering.floor("dan");
            assert_eq!((floor.speaker.unwrap().as_str(), floor.tasks[0].code.as_deref()), ("bob", Some("cancelled")));
            let again = gathering.in_task(24, 1, who, Act::Cancel, json!({}));
            assert_eq!(again[0], format!("{who}<ack:closed"));
        }
    }
}

#[test]
fn the_assigner_may_do_a_task_itself() {
    let mut gathering = Gathering::of(&["alice", "bob"], json!({}));
    let texts = gathering.assign(20, "alice", "sync", &[direct("alice")]);
    assert_eq!(texts[3..], ["alice<accept:1@award.0.1", "alice<inform:awarded:alice:1@award.0.1"].map(str::to_owned));
    assert_eq!(gathering.confirm(21, 1, "alice")[1], "alice<ack:committed@award.0.1.end");
    let texts = gathering.result(22, 1, "alice");
    assert_eq!(texts.iter().filter(|text| text.contains("closed:completed")).count(), 1, "one CLOSED: {texts:?}");
    assert_eq!(gathering.floor("bob").speaker.unwrap().as_str(), "alice");
}

#[test]
fn an_owner_that_does_nothing_costs_the_team_no_more_than_its_time() {
    let mut gathering = Gathering::of(&THREE, json!({}));
    gathering.assign(20, "alice", "sync", &[changed(direct("bob"), json!({"perform_ms": 500}))]);
    gathering.confirm(21, 1, "bob");
    gathering.script.tick(521);
    assert_eq!(gathering.floor("carol").state, TeamState::Awaiting);
    gathering.script.tick(522);
    let floor = gathering.floor("carol");
    assert_eq!((floor.speaker.unwrap().as_str(), floor.tasks[0].code.as_deref()), ("alice", Some("timeout")));
}

#[test]
fn after_the_last_turn_a_team_waits_for_its_tasks_and_then_concludes() {
    let mut gathering = Gathering::of(&THREE, json!({"turns": 1}));
    gathering.assign(20, "alice", "async", &[direct("bob")]);
    assert_eq!((gathering.floor("bob").state, gathering.floor("bob").waits), (TeamState::Paused, vec![1]));
    gathering.confirm(21, 1, "bob");
    gathering.result(22, 1, "bob");
    let floor = gathering.floor("bob");
    assert_eq!((floor.state, floor.speaker.unwrap().as_str()), (TeamState::Concluding, "alice"));
}

#[test]
fn when_it_must_conclude_a_team_has_no_open_task() {
    let mut gathering = Gathering::of(&THREE, json!({}));
    gathering.assign(20, "alice", "sync", &[direct("bob")]);
    gathering.confirm(21, 1, "bob");
    gathering.script.tick(ENDS_MS - 2 * SPEAK_MS + 1);
    let floor = gathering.floor("carol");
    assert_eq!((floor.state, floor.speaker.unwrap().as_str()), (TeamState::Concluding, "alice"));
    assert_eq!(gathering.script.lane_state.open_count(), 1);
}

#[test]
fn a_team_that_is_called_off_or_aborted_takes_its_tasks_with_it() {
    let mut called_off = Gathering::of(&THREE, json!({}));
    called_off.assign(20, "alice", "async", &[open()]);
    called_off.say(21, "alice", Act::Cancel, json!({}));
    assert_eq!(called_off.script.lane_state.open_count(), 0);
    let mut aborted = Gathering::of(&THREE, json!({}));
    aborted.assign(20, "alice", "async", &[open()]);
    let negotiation = aborted.script.negotiation.clone();
    aborted.script.engine(21, 0, EngineEvent::Abort { negotiation, code: "register_conflict".to_owned() });
    assert_eq!(aborted.script.lane_state.open_count(), 0);
}

#[test]
fn an_aborted_task_has_failed_and_its_team_goes_on() {
    let mut gathering = Gathering::of(&THREE, json!({}));
    gathering.assign(20, "alice", "sync", &[direct("bob")]);
    let negotiation = NegotiationId::try_new("alice~job~t1").expect("an id");
    let texts =
        gathering.script.engine(21, 0, EngineEvent::Abort { negotiation, code: "register_conflict".to_owned() });
    assert!(texts.contains(&"carol<floor:3:2:discussing:alice@award.0.1".to_owned()), "{texts:?}");
    assert_eq!(gathering.floor("carol").tasks[0].code.as_deref(), Some("aborted"));
}

#[test]
fn members_see_whose_a_task_is_and_its_result() {
    let mut gathering = Gathering::of(&THREE, json!({}));
    gathering.assign(20, "alice", "async", &[direct("bob"), open()]);
    gathering.confirm(21, 1, "bob");
    let tasks = gathering.team_view("carol").tasks;
    assert_eq!((tasks[0].status, tasks[0].title.as_deref()), (TaskStatus::Running, Some("figures")));
    assert_eq!(tasks[0].owner.as_ref().map(|owner| owner.as_str()), Some("bob"));
    assert_eq!((tasks[1].status, &tasks[1].owner), (TaskStatus::Open, &None));
}

#[test]
fn tasks_may_open_and_end_in_one_record() {
    let mut gathering = Gathering::of(&THREE, json!({}));
    let assign = json!({"mode": "sync", "tasks": [direct("bob")]});
    let assign = gathering.script.message("alice", Act::Assign, assign, json!({}));
    let mut refuse = gathering.script.message("bob", Act::Refuse, json!({}), json!({}));
    refuse.negotiation = NegotiationId::try_new("alice~job~t1").expect("an id");
    gathering.script.fold(20, vec![Entry::Message(assign), Entry::Message(refuse)]);
    let floor = gathering.floor("carol");
    assert_eq!((floor.step, floor.turn, floor.state), (3, 2, TeamState::Discussing));
}

#[test]
fn of_too_many_texts_a_view_cuts_the_oldest_results() {
    let mut gathering = Gathering::of(&["alice", "bob"], json!({}));
    for _ in 0..2 {
        gathering.assign(20, "alice", "async", &vec![direct("bob"); 9]);
    }
    let long = "x".repeat(4096);
    for number in 1..=18 {
        gathering.confirm(21, number, "bob");
        gathering.in_task(22, number, "bob", Act::Inform, json!({"kind": "result", "result": long}));
    }
    let tasks = gathering.team_view("bob").tasks;
    let cut: Vec<bool> = tasks.iter().map(|task| task.cut).collect();
    assert_eq!(cut, [vec![true; 2], vec![false; 16]].concat(), "64 KiB are sixteen of them");
    assert!(tasks.iter().all(|task| task.cut == task.digest.is_some() && task.cut == task.result.is_none()));
}
