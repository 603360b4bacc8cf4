//! Teams from their call to their end, that together take every way there is: for what must hold of all of them, and for the
//! golden logs.

use schemas::Act;
use schemas::record::EngineEvent;
use serde_json::json;

use crate::gathering::{BEGIN_MS, Gathering, REPLY_MS, SPEAK_MS};
use crate::nesting::three_levels;
use crate::tasks::{direct, open};

const THREE: [&str; 3] = ["alice", "bob", "carol"];

/// Each team by a name of its own.
pub(crate) fn stories() -> Vec<(&'static str, Gathering)> {
    vec![
        ("concluded", concluded()),
        ("voted", voted()),
        ("rejected", rejected()),
        ("outscored", outscored()),
        ("not formed", not_formed()),
        ("silent", silent()),
        ("out of turns", out_of_turns()),
        ("left", left()),
        ("out of time", out_of_time()),
        ("called off", called_off()),
        ("aborted", aborted()),
        ("worked", worked()),
        ("waited", waited()),
        ("left with tasks", left_with_tasks()),
        ("concluded without tasks", concluded_without_tasks()),
        ("outlived", outlived()),
        ("repeated", repeated("reference")),
        ("repetition refused", repeated("refuse")),
        ("nested", nested()),
        ("orphaned", orphaned()),
        ("nested no further", nested_no_further()),
    ]
}

fn concluded() -> Gathering {
    let mut gathering = Gathering::of(&THREE, json!({}));
    gathering.say(20, "alice", Act::Say, json!({"text": "carol first", "next": "carol", "turn": 1}));
    gathering.say(21, "carol", Act::Say, json!({"text": "done", "next": "mallory"}));
    gathering.say(22, "carol", Act::Say, json!({"text": "done"}));
    gathering.say(23, "carol", Act::Say, json!({"text": "late", "turn": 2}));
    gathering.say(24, "alice", Act::Say, json!({"text": "early", "turn": 9}));
    gathering.conclude(25, "alice");
    gathering.speak(26, "bob");
    gathering
}

fn voted() -> Gathering {
    let mut gathering = Gathering::of(&THREE, json!({"vote": {"of": "majority"}}));
    gathering.conclude(20, "alice");
    gathering.say(21, "alice", Act::Refuse, json!({}));
    gathering.say(22, "bob", Act::Accept, json!({"offer_id": "o1-0"}));
    gathering.approve(23, "carol");
    gathering
}

fn rejected() -> Gathering {
    let mut gathering = Gathering::of(&THREE, json!({"vote": {"of": "all", "vote_ms": 50, "attempts": 2}}));
    gathering.conclude(20, "alice");
    gathering.say(21, "bob", Act::Refuse, json!({"reason": "too short"}));
    gathering.conclude(22, "alice");
    gathering.approve(23, "bob");
    gathering.script.tick(73);
    gathering
}

fn outscored() -> Gathering {
    let mut gathering = Gathering::empty();
    let ranked = json!({"policy": "team-seats"});
    gathering.call(&["bob", "carol", "dan"], json!({"members": {"min": 2, "max": 2}}), ranked);
    for (who, fit) in [("bob", 900_000), ("carol", 100), ("dan", 900_000)] {
        gathering.say(BEGIN_MS, who, Act::Join, json!({"terms": {"fit": fit, "price": 5_000_000}}));
    }
    gathering.say(20, "carol", Act::Join, json!({}));
    gathering.conclude(21, "alice");
    gathering
}

fn not_formed() -> Gathering {
    let mut gathering = Gathering::empty();
    gathering.call(&["bob", "carol", "dan"], json!({"members": {"min": 3}}), json!({}));
    gathering.say(1, "bob", Act::Join, json!({}));
    gathering.say(2, "carol", Act::Refuse, json!({}));
    gathering.script.tick(REPLY_MS + 1);
    gathering
}

fn silent() -> Gathering {
    let mut gathering = Gathering::of(&THREE, json!({"max_strikes": 1}));
    gathering.speak(20, "bob");
    for nth in 1..=2 {
        gathering.script.tick(BEGIN_MS + nth * (SPEAK_MS + 1));
    }
    gathering
}

fn out_of_turns() -> Gathering {
    let mut gathering = Gathering::of(&THREE, json!({"turns": 2}));
    gathering.speak(20, "alice");
    gathering.speak(21, "bob");
    gathering.speak(22, "alice");
    for nth in 1..=3 {
        gathering.script.tick(22 + nth * (SPEAK_MS + 1));
    }
    gathering
}

fn left() -> Gathering {
    let mut gathering = Gathering::of(&["alice", "bob", "carol", "dan"], json!({}));
    gathering.say(20, "alice", Act::End, json!({}));
    gathering.speak(21, "bob");
    gathering.say(22, "bob", Act::End, json!({}));
    gathering.speak(23, "alice");
    gathering.say(24, "dan", Act::End, json!({}));
    gathering
}

fn out_of_time() -> Gathering {
    let rules = json!({"speak_ms": 40_000, "ends_within_ms": 200_000, "vote": {"of": "all", "vote_ms": 80_000_000}});
    let mut gathering = Gathering::of(&THREE, rules);
    gathering.speak(30_000, "alice");
    gathering.speak(60_000, "bob");
    gathering.speak(90_000, "carol");
    gathering.script.tick(120_001);
    gathering.conclude(130_000, "alice");
    gathering.script.tick(200_001);
    gathering
}

fn called_off() -> Gathering {
    let mut gathering = Gathering::of(&THREE, json!({}));
    gathering.say(20, "bob", Act::Cancel, json!({}));
    gathering.say(21, "alice", Act::Cancel, json!({"reason": "no more"}));
    gathering
}

fn aborted() -> Gathering {
    let mut gathering = Gathering::of(&THREE, json!({}));
    let negotiation = gathering.script.negotiation.clone();
    gathering.script.engine(20, 0, EngineEvent::Abort { negotiation, code: "register_conflict".to_owned() });
    gathering
}

fn worked() -> Gathering {
    let mut gathering = Gathering::of(&["alice", "bob", "carol", "dan"], json!({}));
    gathering.assign(20, "alice", "sync", &[direct("bob"), open(), direct("alice")]);
    gathering.offer(21, 2, "carol", 900_000);
    gathering.offer(22, 2, "dan", 100_000);
    gathering.in_task(23, 2, "bob", Act::Refuse, json!({}));
    for (number, who) in [(1, "bob"), (2, "carol"), (3, "alice")] {
        gathering.confirm(24, number, who);
    }
    gathering.in_task(25, 2, "carol", Act::Failure, json!({"phase": "perform", "code": "broken"}));
    gathering.in_task(26, 2, "dan", Act::Confirm, json!({"award_no": 2}));
    for (number, who) in [(1, "bob"), (2, "dan"), (3, "alice")] {
        gathering.result(27, number, who);
    }
    gathering.conclude(28, "alice");
    gathering.result(29, 1, "bob");
    gathering
}

fn waited() -> Gathering {
    let mut gathering = Gathering::of(&THREE, json!({"turns": 5}));
    gathering.assign(20, "alice", "async", &[direct("bob"), direct("mallory")]);
    gathering.assign(21, "alice", "async", &[direct("bob"), direct("carol")]);
    gathering.say(22, "alice", Act::Pause, json!({"triggers": [1, 9]}));
    gathering.conclude(23, "alice");
    gathering.say(24, "alice", Act::Pause, json!({"triggers": [1, 2], "text": "both"}));
    gathering.in_task(25, 1, "bob", Act::Refuse, json!({}));
    gathering.confirm(26, 2, "carol");
    gathering.script.tick(60_100);
    gathering.say(60_101, "alice", Act::Pause, json!({"triggers": [1]}));
    gathering.assign(60_102, "alice", "async", &[direct("bob")]);
    gathering.assign(60_103, "alice", "async", &[direct("carol")]);
    gathering.script.tick(75_000);
    gathering.conclude(75_001, "alice");
    gathering
}

fn left_with_tasks() -> Gathering {
    let mut gathering = Gathering::of(&["alice", "bob", "carol", "dan"], json!({}));
    gathering.speak(20, "alice");
    gathering.assign(21, "bob", "async", &[direct("bob"), direct("carol"), open()]);
    gathering.confirm(22, 1, "bob");
    gathering.in_task(23, 2, "alice", Act::Cancel, json!({}));
    gathering.in_task(24, 2, "alice", Act::Cancel, json!({}));
    gathering.in_task(25, 2, "dan", Act::Cancel, json!({}));
    gathering.say(26, "bob", Act::Say, json!({"text": "you go on", "next": "alice"}));
    gathering.assign(27, "alice", "sync", &[direct("bob"), open()]);
    gathering.confirm(28, 4, "bob");
    gathering.offer(29, 5, "bob", 900_000);
    gathering.say(30, "bob", Act::End, json!({}));
    gathering.result(31, 1, "bob");
    gathering.in_task(32, 3, "bob", Act::Cancel, json!({}));
    gathering.offer(33, 5, "bob", 900_000);
    gathering.offer(34, 5, "dan", 100_000);
    gathering.in_task(35, 5, "carol", Act::Refuse, json!({}));
    gathering.confirm(36, 5, "dan");
    gathering.result(37, 5, "dan");
    gathering.conclude(38, "alice");
    gathering.result(39, 4, "bob");
    gathering
}

fn concluded_without_tasks() -> Gathering {
    let mut gathering = Gathering::of(&THREE, json!({"at_conclusion": "cancel"}));
    gathering.assign(20, "alice", "async", &[direct("bob"), open(), direct("carol")]);
    gathering.confirm(21, 1, "bob");
    gathering.conclude(22, "alice");
    gathering.in_task(23, 1, "bob", Act::Inform, json!({"kind": "cancelled"}));
    gathering.script.tick(10_000);
    gathering
}

fn outlived() -> Gathering {
    let mut gathering = Gathering::of(&THREE, json!({"at_conclusion": "leave"}));
    gathering.speak(20, "alice");
    gathering.assign(21, "bob", "async", &[direct("carol"), direct("carol")]);
    gathering.confirm(22, 1, "carol");
    gathering.confirm(22, 2, "carol");
    gathering.conclude(23, "bob");
    gathering.result(10_000, 1, "carol");
    gathering.in_task(10_001, 2, "alice", Act::Cancel, json!({}));
    gathering.in_task(10_002, 2, "carol", Act::Inform, json!({"kind": "cancelled"}));
    gathering
}

fn nested() -> Gathering {
    let mut gathering = three_levels(json!({}));
    gathering.go_to("alice~job~s1-1~s1-1").conclude(30, "erin");
    gathering.go_to("alice~job~s1-1").conclude(31, "bob");
    gathering.go_to("alice~job").conclude(32, "alice");
    gathering
}

fn orphaned() -> Gathering {
    let mut gathering = three_levels(json!({}));
    gathering.go_to("alice~job").result(30, 1, "bob");
    gathering.go_to("alice~job~s1-1").in_task(31, 1, "erin", Act::Inform, json!({"kind": "cancelled"}));
    gathering.go_to("alice~job~s1-1~s1-1").speak(32, "frank");
    gathering.go_to("alice~job").conclude(33, "alice");
    gathering
}

fn nested_no_further() -> Gathering {
    let mut gathering = Gathering::of(&THREE, json!({"depth": 1}));
    let call = |gathering: &mut Gathering, at_ms: u64, who: &str, task: &str| {
        gathering.call_sub_team(at_ms, (who, task, 1), &["dan"], json!({"members": {"max": 2}}));
    };
    gathering.assign(20, "alice", "async", &[direct("bob"), direct("carol")]);
    call(&mut gathering, 21, "bob", "alice~job~t1");
    gathering.go_to("alice~job").confirm(22, 1, "bob");
    call(&mut gathering, 23, "carol", "alice~job~t1");
    call(&mut gathering, 24, "bob", "alice~job~t1");
    call(&mut gathering, 25, "bob", "alice~job~t1");
    gathering.say(26, "dan", Act::Join, json!({}));
    gathering.assign(27, "bob", "sync", &[direct("dan")]);
    gathering.confirm(28, 1, "dan");
    call(&mut gathering, 29, "dan", "alice~job~s1-1~t1");
    gathering.go_to("alice~job~s1-1").result(30, 1, "dan");
    gathering.say(31, "dan", Act::End, json!({}));
    call(&mut gathering, 32, "bob", "alice~job~t1");
    gathering.go_to("alice~job").result(33, 1, "bob");
    gathering.confirm(34, 2, "carol");
    gathering.in_task(35, 2, "alice", Act::Cancel, json!({}));
    call(&mut gathering, 36, "carol", "alice~job~t2");
    gathering.go_to("alice~job").in_task(37, 2, "carol", Act::Inform, json!({"kind": "cancelled"}));
    gathering.conclude(38, "alice");
    gathering
}

fn repeated(on_repeat: &str) -> Gathering {
    let mut gathering = Gathering::of(&THREE, json!({"on_repeat": on_repeat}));
    let texts =
        ["Who draws figure 1?", "I do, and write the survey.", "who DRAWS figure 1 ?", "図表 and übersicht", "!", "?"];
    let speakers = ["alice", "bob", "carol", "carol", "alice", "bob"];
    for (at_ms, (who, text)) in (20..).zip(speakers.into_iter().zip(texts)) {
        gathering.say(at_ms, who, Act::Say, json!({"text": text, "next": who}));
        gathering.say(at_ms, who, Act::Say, json!({"text": format!("{at_ms} was {who}")}));
    }
    let speaker = gathering.floor("alice").speaker.or(gathering.floor("bob").speaker).expect("a speaker");
    gathering.conclude(40, speaker.as_str());
    gathering.conclude(41, "alice");
    gathering.conclude(41, "bob");
    gathering.conclude(41, "carol");
    gathering
}
