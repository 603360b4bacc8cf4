//! Sub-teams (docs/spec/team.md#sub-teams): who may call one, what its conclusion is to the task above it, and when it is an orphan.

use std::collections::BTreeSet;
use std::sync::Arc;

use policy_core::{LaneState, Limits};
use schemas::delivery::{Notification, Outcome, ProgressReport};
use schemas::record::{EngineEvent, Entry};
use schemas::team::{FAMILY_OPEN_MAX, TaskStatus};
use schemas::{Act, AgentId, Lane, NegotiationId};
use serde_json::{Value, json};

use crate::gathering::{Gathering, SPEAK_MS, merge, pinned_team};
use crate::script::{Script, agent};
use crate::tasks::direct;

/// The root, its sub-team, and the one below that, with their tasks.
const ROOT: &str = "alice~job";
const TASK: &str = "alice~job~t1";
const SUB: &str = "alice~job~s1-1";
const SUB_TASK: &str = "alice~job~s1-1~t1";
const LEAF: &str = "alice~job~s1-1~s1-1";
const LEAF_TASK: &str = "alice~job~s1-1~s1-1~t1";

impl Gathering {
    /// What is said from now on is said there.
    pub(crate) fn go_to(&mut self, negotiation: &str) -> &mut Self {
        self.script.negotiation = NegotiationId::try_new(negotiation).expect("an id");
        self
    }

    /// A call to the sub-team of an award of a task.
    pub(crate) fn call_sub_team(
        &mut self,
        at_ms: u64,
        (who, task, award_no): (&str, &str, u32),
        invited: &[&str],
        change: Value,
    ) -> Vec<String> {
        let task = NegotiationId::try_new(task).expect("an id");
        let id = task.sub_team(schemas::AwardNo(award_no)).map(|id| id.to_string());
        self.go_to(&id.unwrap_or_else(|| format!("{ROOT}~s1-{award_no}")));
        let of = json!({"task": task, "award_no": award_no});
        let mut rules = json!({"speak_ms": SPEAK_MS, "ends_within_ms": 20_000, "on_repeat": "pass", "of": of});
        merge(&mut rules, change);
        let cfp = json!({"task": "a part of it", "team": rules, "reply_within_ms": 100});
        let mut message = self.script.message(who, Act::Cfp, cfp, json!({}));
        message.pinned = Some(Arc::new(pinned_team(invited)));
        self.script.fold(at_ms, vec![Entry::Message(message)])
    }

    fn is_open(&self, negotiation: &str) -> bool {
        self.script.lane_state.is_open(&NegotiationId::try_new(negotiation).expect("an id"))
    }

    /// How a negotiation ended, as an agent was told it.
    fn end_of(&self, negotiation: &str, who: &str) -> (Outcome, Option<String>) {
        let told = self.script.deliveries.iter().filter(|deliver| deliver.negotiation.as_str() == negotiation);
        let told = told.filter(|deliver| deliver.to.as_str() == who);
        let mut ends = told.filter_map(|deliver| match &*deliver.told {
            Notification::Closed(closing) => Some((closing.outcome, closing.detail.clone())),
            _ => None,
        });
        ends.next_back().expect("it has ended")
    }

    /// The last result that was told somebody in a task.
    fn result_of(&self, task: &str, who: &str) -> Option<String> {
        let told = self.script.deliveries.iter().filter(|deliver| deliver.negotiation.as_str() == task);
        let told = told.filter(|deliver| deliver.to.as_str() == who);
        let mut results = told.filter_map(|deliver| match &*deliver.told {
            Notification::Inform(ProgressReport::Result(news)) => news.result.clone(),
            _ => None,
        });
        results.next_back()
    }
}

/// Alice leads bob and carol; bob's task is that of a sub-team of dan and erin, and erin's there that of one with frank. Everybody
/// has said something in each.
pub(crate) fn three_levels(rules: Value) -> Gathering {
    let mut change = json!({"depth": 2});
    merge(&mut change, rules);
    let mut gathering = Gathering::of(&["alice", "bob", "carol"], change);
    gathering.say(20, "alice", Act::Say, json!({"text": "who is there?", "next": "bob"}));
    gathering.say(20, "bob", Act::Say, json!({"text": "bob is", "next": "carol"}));
    gathering.say(20, "carol", Act::Say, json!({"text": "so is carol", "next": "alice"}));
    gathering.assign(21, "alice", "sync", &[direct("bob")]);
    gathering.confirm(22, 1, "bob");
    gathering.call_sub_team(23, ("bob", TASK, 1), &["dan", "erin"], json!({"depth": 4}));
    gathering.say(24, "dan", Act::Join, json!({}));
    gathering.say(24, "erin", Act::Join, json!({}));
    gathering.say(25, "bob", Act::Say, json!({"text": "who draws?", "next": "dan"}));
    gathering.say(25, "dan", Act::Say, json!({"text": "not dan", "next": "erin"}));
    gathering.say(25, "erin", Act::Say, json!({"text": "erin, then", "next": "bob"}));
    gathering.assign(26, "bob", "sync", &[direct("erin")]);
    gathering.confirm(27, 1, "erin");
    gathering.call_sub_team(28, ("erin", SUB_TASK, 1), &["frank"], json!({"depth": 4}));
    gathering.say(29, "frank", Act::Join, json!({}));
    gathering.say(29, "erin", Act::Say, json!({"text": "with me?"}));
    gathering.say(29, "frank", Act::Say, json!({"text": "with you"}));
    gathering
}

#[test]
fn a_conclusion_is_the_result_of_the_task_above_it_in_the_same_record_over_two_levels() {
    let mut gathering = three_levels(json!({}));
    let texts = gathering.go_to(LEAF).say(30, "erin", Act::Conclude, json!({"text": "two lines"}));
    assert_eq!(texts.iter().filter(|text| text.starts_with("closed=")).count(), 2, "{texts:?}");
    assert_eq!(gathering.result_of(SUB_TASK, "bob").as_deref(), Some("two lines"));
    assert!(gathering.is_open(SUB), "its team goes on");
    let floor = gathering.floor("dan");
    assert_eq!((floor.speaker, floor.tasks[0].status), (Some(agent("bob")), TaskStatus::Done));
    assert_eq!(floor.tasks[0].result.as_deref(), Some("two lines"));
    let texts = gathering.go_to(SUB).say(31, "bob", Act::Conclude, json!({"text": "a figure"}));
    assert_eq!(texts.iter().filter(|text| text.starts_with("closed=")).count(), 2, "{texts:?}");
    let floor = gathering.floor("carol");
    let told = (floor.tasks[0].owner.clone(), floor.tasks[0].result.as_deref());
    assert_eq!(told, (Some(agent("bob")), Some("a figure")));
    gathering.go_to(ROOT).conclude(32, "alice");
    assert_eq!(gathering.script.lane_state.open_count(), 0);
    gathering.script.assert_sound();
}

#[test]
fn agents_hear_each_other_only_where_they_share_a_team() {
    let gathering = three_levels(json!({}));
    let mut pairs: BTreeSet<[AgentId; 2]> = BTreeSet::new();
    for deliver in &gathering.script.deliveries {
        if let Notification::Floor(floor) = &*deliver.told
            && let (Some(by), Some(_)) = (&floor.by, &floor.said)
        {
            let mut pair = [by.clone(), deliver.to.clone()];
            pair.sort();
            pairs.insert(pair);
        }
    }
    let named: Vec<String> = pairs.iter().map(|[one, other]| format!("{one}-{other}")).collect();
    let shared = ["alice-bob", "alice-carol", "bob-carol", "bob-dan", "bob-erin", "dan-erin", "erin-frank"];
    assert_eq!(named, shared, "of the 15 pairs of six agents");
}

#[test]
fn where_no_level_is_left_a_sub_team_is_refused_and_the_task_done_alone() {
    let mut gathering = three_levels(json!({}));
    gathering.go_to(LEAF).assign(30, "erin", "sync", &[direct("frank")]);
    gathering.confirm(31, 1, "frank");
    let Notification::Cfp(call) = &*gathering.script.last("frank", Act::Cfp).told else { panic!("CFP") };
    let call = call.team.as_ref().expect("a call to a team");
    assert_eq!((call.rules.depth, call.depth_left), (4, 0), "the rules ask for more than is left");
    assert_eq!(call.of.as_ref().map(|of| of.task.as_str()), Some(SUB_TASK));
    let texts = gathering.call_sub_team(32, ("frank", LEAF_TASK, 1), &["gina"], json!({}));
    assert_eq!(texts, ["frank<ack:malformed", "frank<not_understood:depth:/payload/team/of"]);
    gathering.go_to(LEAF).result(33, 1, "frank");
    assert_eq!(gathering.floor("erin").tasks[0].result.as_deref(), Some("drawn"));
}

#[test]
fn a_sub_team_is_called_by_the_contractor_of_a_committed_award_once() {
    let mut gathering = Gathering::of(&["alice", "bob", "carol"], json!({"depth": 1}));
    gathering.assign(20, "alice", "async", &[direct("bob"), direct("bob"), direct("bob")]);
    let call = |gathering: &mut Gathering, who: &str, task: &str, award_no| {
        gathering.call_sub_team(30, (who, task, award_no), &["dan"], json!({}))
    };
    let not_awarded = ["bob<ack:out_of_turn", "bob<not_understood:not_awarded"];
    assert_eq!(call(&mut gathering, "bob", TASK, 1), not_awarded);
    gathering.go_to(ROOT).confirm(31, 1, "bob");
    for (who, task, award_no) in [("carol", TASK, 1), ("alice", TASK, 1), ("mallory", TASK, 1), ("bob", TASK, 2)] {
        assert_eq!(call(&mut gathering, who, task, award_no), [format!("{who}<ack:unauthorized")], "{task} {award_no}");
    }
    assert_eq!(call(&mut gathering, "bob", "alice~job~t4", 1), ["bob<ack:unauthorized"], "no such task");
    assert_eq!(call(&mut gathering, "bob", "alice~none~t1", 1), ["bob<ack:unauthorized"], "no such team");
    assert_eq!(call(&mut gathering, "bob", TASK, 1), ["dan<cfp", "bob<ack:ok"]);
    assert_eq!(call(&mut gathering, "bob", TASK, 1), ["bob<ack:out_of_turn", "bob<not_understood:taken"]);
    assert_eq!(call(&mut gathering, "carol", TASK, 1), ["carol<ack:unauthorized"]);
    gathering.go_to(SUB).say(32, "dan", Act::Refuse, json!({}));
    assert_eq!(gathering.end_of(SUB, "bob").0, Outcome::NotFormed);
    assert_eq!(call(&mut gathering, "bob", TASK, 1), ["bob<ack:closed", "bob<closed:not_formed@closed"]);
    gathering.go_to(ROOT).confirm(33, 2, "bob");
    gathering.in_task(34, 2, "alice", Act::Cancel, json!({}));
    assert_eq!(call(&mut gathering, "bob", "alice~job~t2", 1), ["bob<ack:revoked"], "it is called off");
    gathering.go_to(ROOT).confirm(35, 3, "bob");
    gathering.result(36, 3, "bob");
    assert_eq!(call(&mut gathering, "bob", "alice~job~t3", 1), ["bob<ack:closed"], "the task is done");
    assert_eq!(call(&mut gathering, "bob", "alice~job~t3", 2), ["bob<ack:closed"], "whatever the award");
    assert_eq!(call(&mut gathering, "carol", "alice~job~t3", 1), ["carol<ack:unauthorized"], "it was not asked");
    assert_eq!(gathering.script.lane_state.open_count(), 3, "the root and two tasks");
}

#[test]
fn whoever_has_left_a_team_calls_no_sub_team_for_an_award_it_had() {
    let mut gathering = Gathering::of(&["alice", "bob", "carol"], json!({"depth": 1}));
    gathering.assign(20, "alice", "async", &[direct("bob")]);
    gathering.confirm(21, 1, "bob");
    gathering.say(22, "bob", Act::End, json!({}));
    let texts = gathering.call_sub_team(23, ("bob", TASK, 1), &["dan"], json!({}));
    assert_eq!(texts, ["bob<ack:unauthorized"], "though the award was taken back from it");
}

#[test]
fn a_call_to_a_sub_team_whose_id_is_not_that_of_its_award_opens_nothing() {
    let mut gathering = Gathering::of(&["alice", "bob"], json!({"depth": 1}));
    gathering.assign(20, "alice", "sync", &[direct("bob")]);
    gathering.confirm(21, 1, "bob");
    for (id, of) in [(SUB, None), ("bob~mine", Some(TASK)), ("alice~job~s1-2", Some(TASK)), (SUB, Some("bob~b~t1"))] {
        let mut rules = json!({"speak_ms": SPEAK_MS, "ends_within_ms": 20_000});
        of.into_iter().for_each(|task| rules["of"] = json!({"task": task, "award_no": 1}));
        gathering.go_to(id);
        let mut message = gathering.script.message("bob", Act::Cfp, json!({"team": rules}), json!({}));
        message.pinned = Some(Arc::new(pinned_team(&["dan"])));
        assert_eq!(gathering.send(22, message), ["bob<ack:unauthorized"], "{id} {of:?}");
    }
}

#[test]
fn a_sub_team_ends_when_its_contractor_must_have_performed_at_the_latest() {
    let mut gathering = Gathering::of(&["alice", "bob"], json!({"depth": 1}));
    let task = json!({"title": "figures", "text": "draw them", "owner": "bob", "perform_ms": 8_000});
    gathering.assign(20, "alice", "sync", &[task.clone(), task]);
    gathering.confirm(21, 1, "bob");
    gathering.confirm(21, 2, "bob");
    gathering.call_sub_team(22, ("bob", TASK, 1), &["dan"], json!({"ends_within_ms": 80_000}));
    gathering.say(23, "dan", Act::Join, json!({}));
    let ends_by = gathering.floor("dan").ends_by.0;
    assert_eq!(ends_by, schemas::Timestamp::from_ms(crate::script::START_MS + 8_021));
    let texts = gathering.call_sub_team(4_100, ("bob", "alice~job~t2", 1), &["dan"], json!({}));
    let answer = ["bob<ack:malformed", "bob<not_understood:bad_deadline"];
    assert_eq!(texts[texts.len() - 2..], answer.map(str::to_owned), "no time to speak is left");
}

/// What becomes of the award of the root's task: a name, and the way to it.
type Loss = (&'static str, fn(&mut Gathering));

#[test]
fn a_sub_team_whose_award_is_committed_no_longer_ends_and_so_does_all_below_it() {
    let losses: [Loss; 7] = [
        ("its owner reports", |gathering| drop(gathering.go_to(ROOT).result(30, 1, "bob"))),
        ("its owner fails", |gathering| {
            let failure = json!({"phase": "perform", "code": "broken"});
            drop(gathering.go_to(ROOT).in_task(30, 1, "bob", Act::Failure, failure));
        }),
        ("its owner leaves", |gathering| drop(gathering.go_to(ROOT).say(30, "bob", Act::End, json!({})))),
        ("it is called off", |gathering| {
            drop(gathering.go_to(ROOT).in_task(30, 1, "alice", Act::Cancel, json!({})));
        }),
        ("its assigner leaves", |gathering| drop(gathering.go_to(ROOT).say(30, "alice", Act::End, json!({})))),
        ("the root is called off", |gathering| drop(gathering.go_to(ROOT).say(30, "alice", Act::Cancel, json!({})))),
        ("its contractor takes too long", |gathering| drop(gathering.script.tick(70_000))),
    ];
    for (name, lose) in losses {
        // Nobody falls silent in the time there is.
        let mut gathering = three_levels(json!({}));
        lose(&mut gathering);
        for (team, member) in [(SUB, "dan"), (LEAF, "frank")] {
            assert!(!gathering.is_open(team), "{name}: {team}");
            if name != "its contractor takes too long" {
                let orphaned = (Outcome::Cancelled, Some("orphaned".to_owned()));
                assert_eq!(gathering.end_of(team, member), orphaned, "{name}: {team}");
            }
        }
        gathering.script.assert_sound();
    }
}

#[test]
fn an_aborted_team_takes_all_below_it_along() {
    for aborted in [ROOT, TASK] {
        let mut gathering = three_levels(json!({}));
        let negotiation = NegotiationId::try_new(aborted).expect("an id");
        gathering.script.engine(30, 0, EngineEvent::Abort { negotiation, code: "register_conflict".to_owned() });
        for (team, member) in [(SUB, "dan"), (LEAF, "frank")] {
            assert_eq!(gathering.end_of(team, member).0, Outcome::Aborted, "{aborted}: {team}");
        }
        assert_eq!(gathering.is_open(ROOT), aborted == TASK);
    }
}

#[test]
fn a_sub_team_that_comes_to_nothing_leaves_the_task_with_its_owner() {
    let mut gathering = three_levels(json!({}));
    gathering.go_to(SUB).say(30, "bob", Act::Cancel, json!({}));
    assert!(!gathering.is_open(LEAF), "its own tasks are called off, and what works for them");
    assert_eq!(gathering.end_of(SUB, "dan"), (Outcome::Cancelled, None));
    assert!(gathering.is_open(TASK));
    gathering.go_to(ROOT).result(31, 1, "bob");
    assert_eq!(gathering.floor("carol").tasks[0].result.as_deref(), Some("drawn"));
}

#[test]
fn a_conclusion_flows_up_although_the_owner_of_the_task_has_left_its_sub_team() {
    let mut gathering = three_levels(json!({}));
    gathering.go_to(LEAF).say(30, "erin", Act::Conclude, json!({"text": "two lines"}));
    gathering.go_to(SUB).say(31, "bob", Act::End, json!({}));
    gathering.go_to(SUB).say(32, "dan", Act::Conclude, json!({"text": "without bob"}));
    let floor = gathering.floor("carol");
    let told = (floor.tasks[0].owner.clone(), floor.tasks[0].result.as_deref());
    assert_eq!(told, (Some(agent("bob")), Some("without bob")));
}

#[test]
fn under_leave_a_task_and_its_sub_team_outlive_their_team() {
    let mut gathering = Gathering::of(&["alice", "bob"], json!({"at_conclusion": "leave", "depth": 1}));
    gathering.assign(20, "alice", "async", &[direct("bob")]);
    gathering.confirm(21, 1, "bob");
    gathering.conclude(22, "alice");
    gathering.call_sub_team(23, ("bob", TASK, 1), &["dan"], json!({}));
    gathering.say(24, "dan", Act::Join, json!({}));
    gathering.conclude(25, "bob");
    assert_eq!(gathering.result_of(TASK, "alice").as_deref(), Some("so"));
    assert_eq!(gathering.script.lane_state.open_count(), 0);
}

#[test]
fn whoever_leaves_a_team_keeps_its_seat_and_its_tasks_in_the_sub_teams_that_go_on() {
    let mut gathering = Gathering::of(&["alice", "bob", "carol"], json!({"depth": 1}));
    gathering.assign(20, "alice", "async", &[direct("bob")]);
    gathering.confirm(21, 1, "bob");
    gathering.call_sub_team(22, ("bob", TASK, 1), &["carol", "dan"], json!({}));
    gathering.say(23, "carol", Act::Join, json!({}));
    gathering.say(23, "dan", Act::Join, json!({}));
    gathering.assign(24, "bob", "async", &[direct("carol")]);
    gathering.confirm(25, 1, "carol");
    gathering.go_to(ROOT).say(26, "carol", Act::End, json!({}));
    gathering.go_to(SUB).result(27, 1, "carol");
    assert_eq!(gathering.floor("dan").tasks[0].result.as_deref(), Some("drawn"));
    gathering.say(28, "bob", Act::Say, json!({"text": "go on", "next": "carol"}));
    assert!(gathering.conclude(29, "carol").contains(&"carol<ack:ok".to_owned()));
    assert_eq!(gathering.result_of(TASK, "alice").as_deref(), Some("so"));
}

#[test]
fn what_a_sub_team_has_left_open_goes_on_though_the_award_it_worked_for_has_ended() {
    let mut gathering = Gathering::of(&["alice", "bob"], json!({"depth": 2}));
    gathering.assign(20, "alice", "async", &[direct("bob")]);
    gathering.confirm(21, 1, "bob");
    gathering.call_sub_team(22, ("bob", TASK, 1), &["dan"], json!({"depth": 1, "at_conclusion": "leave"}));
    gathering.say(23, "dan", Act::Join, json!({}));
    gathering.assign(24, "bob", "async", &[direct("dan")]);
    gathering.confirm(25, 1, "dan");
    gathering.call_sub_team(26, ("dan", SUB_TASK, 1), &["erin"], json!({}));
    gathering.say(27, "erin", Act::Join, json!({}));
    gathering.go_to(SUB).conclude(28, "bob");
    assert_eq!(gathering.result_of(TASK, "alice").as_deref(), Some("so"));
    gathering.go_to(ROOT).conclude(29, "alice");
    let is_open = [ROOT, TASK, SUB, SUB_TASK, LEAF].map(|id| gathering.is_open(id));
    assert_eq!(is_open, [false, false, false, true, true]);
    gathering.go_to(LEAF).say(30, "dan", Act::Conclude, json!({"text": "late"}));
    assert_eq!(gathering.result_of(SUB_TASK, "bob").as_deref(), Some("late"));
    assert_eq!(gathering.script.lane_state.open_count(), 0);
}

#[test]
fn a_family_has_so_many_open_negotiations_and_no_more() {
    let mut gathering = Gathering::of(&["alice", "bob"], json!({"depth": 1}));
    let sixteen: Vec<Value> = vec![direct("bob"); 16];
    let mut teams = vec![(ROOT.to_owned(), "alice")];
    for number in 1..=4 {
        teams.push((format!("{ROOT}~s{number}-1"), "bob"));
    }
    let mut open = 1;
    for (index, (team, lead)) in teams.iter().enumerate() {
        if index > 0 {
            let task = format!("{ROOT}~t{index}");
            gathering.go_to(&task).script.confirm(30, "bob", 1);
            gathering.call_sub_team(31, ("bob", &task, 1), &["dan"], json!({}));
            gathering.say(32, "dan", Act::Join, json!({}));
            open += 1;
        }
        for _ in 0..4 {
            let owner = if index == 0 { "bob" } else { "dan" };
            let tasks: Vec<Value> = sixteen.iter().map(|_| direct(owner)).collect();
            let texts = gathering.go_to(team).assign(33, lead, "async", &tasks);
            let fits = open + 16 <= FAMILY_OPEN_MAX;
            assert_eq!(texts[0], if fits { format!("{lead}<ack:ok") } else { format!("{lead}<ack:malformed") });
            if fits {
                open += 16;
            } else {
                assert_eq!(texts[1], format!("{lead}<not_understood:too_many_tasks:/payload/tasks"));
            }
            assert_eq!(gathering.script.lane_state.open_count(), open);
        }
    }
    while open < FAMILY_OPEN_MAX {
        gathering.go_to(&teams[4].0).assign(34, "bob", "async", &[direct("dan")]);
        open += 1;
    }
    gathering.go_to(&format!("{ROOT}~t5")).script.confirm(35, "bob", 1);
    let call =
        |gathering: &mut Gathering| gathering.call_sub_team(36, ("bob", &format!("{ROOT}~t5"), 1), &["dan"], json!({}));
    let full = ["bob<ack:malformed", "bob<not_understood:too_many_tasks:/payload/team/of"];
    assert_eq!(call(&mut gathering), full);
    let snapshot = gathering.script.lane_state.snapshot();
    gathering.script.lane_state = LaneState::restore(&snapshot, Lane(0), Limits::default()).expect("a snapshot");
    assert_eq!(call(&mut gathering), full, "after a restart too");
    gathering.go_to(ROOT).in_task(37, 6, "bob", Act::Refuse, json!({}));
    assert_eq!(call(&mut gathering), ["dan<cfp", "bob<ack:ok"], "one has ended");
}

#[test]
fn a_full_lane_opens_neither_tasks_nor_sub_teams() {
    let limits = Limits { open_max: 3, ..Limits::default() };
    let mut gathering = Gathering { script: Script::with_limits(limits) };
    gathering.call(&["bob"], json!({"depth": 1}), json!({}));
    gathering.say(10, "bob", Act::Join, json!({}));
    let too_many = ["alice<ack:malformed", "alice<not_understood:too_many_tasks:/payload/tasks"];
    assert_eq!(gathering.assign(20, "alice", "async", &vec![direct("bob"); 3]), too_many);
    assert_eq!(gathering.assign(21, "alice", "async", &vec![direct("bob"); 2])[0], "alice<ack:ok");
    gathering.confirm(22, 1, "bob");
    assert_eq!(gathering.call_sub_team(23, ("bob", TASK, 1), &["dan"], json!({})), ["bob<ack:rate_limited"]);
    gathering.go_to(ROOT).in_task(24, 2, "bob", Act::Refuse, json!({}));
    assert_eq!(gathering.call_sub_team(25, ("bob", TASK, 1), &["dan"], json!({})), ["dan<cfp", "bob<ack:ok"]);
}
