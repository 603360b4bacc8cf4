//! What is said to teams and must not count, by each way in: over WebSocket, over NATS, and over HTTP with server-sent events.
//! Every row has the same answer whichever way it takes. After each that is not followed the lead sees its team as before: state,
//! turn, floor, tasks and their numbers. At the end of a table every member has heard each step once, and nothing of anybody's
//! message that was not followed.
//!
//! Rows are numbered. Not here, because no message to a team says it:
//!
//! | row | where |
//! |---|---|
//! | 8, a lane of rules before teams: an engine that owns one raises its rules at once | `policy/core/tests/teams/forming.rs` |
//! | 26, a family that is full | `policy/core/tests/teams/nesting.rs` |
//! | 38 to 40, searches: requests of the control plane, over HTTP alone | `gateway/tests/gateway/search.rs` |
//! | 41, registrations: likewise | `schemas/tests`, `registration.invalid.json` |
//! | 42, a word often | `search/tests/order.rs` |
//! | 44, frames of the bridge | `ioa_bridge/tests/wire.rs` |

mod table;

use std::time::SystemTime;

use agents::transport::http::HttpTransport;
use schemas::control::Registration;
use schemas::delivery::{Delivery, Disposition, Notification, Receipt};
use schemas::team::INVITED_MAX;
use schemas::{Policy, Timestamp, WireTime};
use serde_json::{Value, json};

use crate::rig::{Rig, open_registration};
use crate::speaker::{Row, Speaker, Way, merged};

use table::Table;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_teams_are_answered_alike_over_websocket() {
    play(Way::WebSocket).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_teams_are_answered_alike_over_nats() {
    play(Way::Nats).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_teams_are_answered_alike_over_http() {
    play(Way::Http).await;
}

async fn play(way: Way) {
    let rig = Rig::with_policies(vec![gated(), twice()]).await;
    let mut table = Table::start(&rig, way).await;
    rig.register("deaf", &Registration::default()).await;
    let many: Vec<String> = (0..=INVITED_MAX).map(|number| format!("p{number}")).collect();
    for name in &many {
        rig.register(name, &open_registration()).await;
    }
    let before = rig.logged().await.len();
    refused_calls(&mut table, &many).await;
    assert_eq!(rig.logged().await.len(), before, "nothing that is refused is logged");
    forming(&mut table).await;
    discussing(&mut table).await;
    tasks(&mut table).await;
    sub_teams(&mut table).await;
    concluding(&mut table).await;
    voting(&mut table).await;
    repeating_and_muted(&mut table).await;
    after_the_conclusion(&mut table).await;
    at_two_gateways(&mut table).await;
}

/// The preset for seats, with a gate.
fn gated() -> Policy {
    let mut policy = policy_core::preset("team-seats").unwrap();
    policy.id = "gated@1".to_owned();
    policy.gates = serde_json::from_value(json!([{ "attr": "fit", "min": 5 }])).unwrap();
    policy
}

/// The preset for tasks, with two awards.
fn twice() -> Policy {
    let mut policy = policy_core::preset("team-task").unwrap();
    (policy.id, policy.awards) = ("twice@1".to_owned(), 2);
    policy
}

async fn refused_calls(table: &mut Table<'_>, many: &[String]) {
    let team = |rules: Value| json!({ "team": rules });
    let members = |members: Value| json!({ "team": { "members": members } });
    let beside = |member: &str, value: Value| json!({ "team": {}, member: value });
    let bargain = json!({ "issues": [{ "name": "price", "min": 0, "max": 9 }], "rounds": 1 });
    let addresses: Vec<String> = many.iter().map(|name| format!("agent://{name}")).collect();
    for (name, cfp, expected) in [
        ("1 a bargain", beside("bargain", bargain), "not_allowed /payload/bargain"),
        ("1 a mandate", beside("mandate", json!({})), "not_allowed /payload/mandate"),
        ("2 one member", members(json!({ "min": 1 })), "out_of_range /payload/team/members/min"),
        ("2 65 members", members(json!({ "max": 65 })), "out_of_range /payload/team/members/max"),
        ("2 more than there are", members(json!({ "min": 3, "max": 2 })), "out_of_range /payload/team/members/min"),
        ("2 no turn", team(json!({ "turns": 0 })), "out_of_range /payload/team/turns"),
        ("2 1001 turns", team(json!({ "turns": 1001 })), "out_of_range /payload/team/turns"),
        ("2 no time to speak", team(json!({ "speak_ms": 99 })), "out_of_range /payload/team/speak_ms"),
        ("2 five levels", team(json!({ "depth": 5 })), "out_of_range /payload/team/depth"),
        ("2 65 tasks", team(json!({ "tasks": 65 })), "out_of_range /payload/team/tasks"),
        (
            "2 six attempts",
            team(json!({ "vote": { "of": "all", "attempts": 6 } })),
            "out_of_range /payload/team/vote/attempts",
        ),
        ("3 another rule", team(json!({ "leader": "bob" })), "unknown_field /payload/team/leader"),
        (
            "3 another rule of votes",
            team(json!({ "vote": { "of": "all", "quorum": 1 } })),
            "unknown_field /payload/team/vote/quorum",
        ),
        ("4 over a day", team(json!({ "ends_within_ms": 86_400_001 })), "out_of_range /payload/team/ends_within_ms"),
        (
            "4 less than there must be time for",
            json!({ "team": { "ends_within_ms": 2_400_000 }, "reply_within_ms": 1000 }),
            "out_of_range /payload/team/ends_within_ms",
        ),
        ("5 too many", json!({ "team": {}, "to": addresses }), "out_of_range /envelope/to"),
        ("6 no consent", json!({ "team": {}, "to": ["agent://deaf"] }), "no_consent /envelope/to"),
        ("6 nobody", json!({ "team": {}, "to": ["agent://nobody"] }), "no_recipient /envelope/to"),
        ("7 no policy", beside("policy", json!("unheard-of")), "unknown_policy /payload/policy"),
        ("7 without weights", beside("policy", json!("bargain-low")), "not_allowed /payload/policy"),
        ("7 no policy of tasks", team(json!({ "task_policy": "none" })), "unknown_policy /payload/team/task_policy"),
        ("7 two awards", team(json!({ "task_policy": "twice" })), "not_allowed /payload/team/task_policy"),
        (
            "14 an id for a sub-team",
            team(json!({ "of": { "task": "alice~job~t1", "award_no": 1 } })),
            "not_allowed /envelope/negotiation",
        ),
    ] {
        assert_eq!(table.call(cfp).await.1, expected, "{name}");
    }
    let say = json!({ "act": "say", "text": "x" });
    let five = "a~b~s1-1~s1-1~s1-1~s1-1~s1-1";
    for id in ["a~b~t0", "a~b~t01", "a~b~t65", "a~b~x1", "a~b~t1~t2", "a~b~s1", "a~b~s1-0", five] {
        let found = table.speaker("bob").say(id, say.clone()).await;
        assert_eq!(found, "bad_format /envelope/negotiation", "9 {id}");
    }
}

/// Of the four invited three get seats, and dan leaves at once: alice, bob and carol are the members, and erin has no seat.
async fn forming(table: &mut Table<'_>) {
    // Where the call names an instant, the gateway does not know what is left.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let reply_by = WireTime(Timestamp::from_ms(u64::try_from(now.as_millis()).unwrap() + 60_000));
    let short = json!({ "team": { "ends_within_ms": 2_400_000 }, "reply_by": reply_by });
    assert_eq!(table.call(short).await.1, "malformed bad_deadline", "4 less than there must be time for");
    let (team, found) = table
        .call(json!({ "policy": "gated", "to": addresses(&["bob", "carol", "dan", "erin"]),
            "team": { "members": { "max": 4 }, "tasks": 6, "depth": 1 } }))
        .await;
    assert_eq!(found, "ok");
    table.team = team;
    let join = |fit: u32| json!({ "act": "join", "terms": { "fit": fit } });
    let out = "out_of_turn out_of_turn";
    let rows: Vec<Row> = vec![
        ("10 a stranger", "stranger", json!({ "act": "say", "text": "x" }), "unauthorized"),
        ("15 the uninvited", "stranger", join(900_000), "unauthorized"),
        ("15 the lead", "alice", join(900_000), out),
        ("16 terms that fail a gate", "bob", join(4), "policy_reject fit.min"),
        ("it may join again", "bob", join(900_000), "ok"),
        ("15 twice", "bob", join(900_000), out),
        ("19 a say while forming", "bob", json!({ "act": "say", "text": "x" }), out),
        ("19 an assignment", "alice", assign("sync", json!([direct("bob")])), out),
        ("19 a pause", "alice", json!({ "act": "pause", "triggers": [1] }), out),
        ("19 a conclusion", "alice", json!({ "act": "conclude", "text": "x" }), out),
        ("35 a cancel of no lead", "bob", json!({ "act": "cancel" }), out),
        ("carol joins", "carol", join(800_000), "ok"),
        ("dan joins", "dan", join(700_000), "ok"),
        ("erin joins", "erin", join(600_000), "ok"),
        ("15 after formation", "erin", join(600_000), "late"),
        ("what one without a seat says", "erin", json!({ "act": "say", "text": "x" }), "closed"),
        ("dan leaves", "dan", json!({ "act": "end" }), "ok"),
        ("36 who has left", "dan", json!({ "act": "say", "text": "x" }), "closed"),
        ("36 who has left joins", "dan", join(700_000), "closed"),
    ];
    table.judge(rows).await;
}

async fn discussing(table: &mut Table<'_>) {
    let say = |more: Value| merged(json!({ "act": "say", "text": "well" }), more);
    let out = "out_of_turn out_of_turn";
    let rows: Vec<Row> = vec![
        ("17 a say without the floor", "bob", say(json!({})), out),
        ("17 an assignment", "bob", assign("async", json!([direct("carol")])), out),
        ("17 a pause", "bob", json!({ "act": "pause", "triggers": [1] }), out),
        ("17 a conclusion", "bob", json!({ "act": "conclude", "text": "x" }), out),
        ("18 a later turn", "alice", say(json!({ "turn": 7 })), "out_of_turn bad_round"),
        ("20 nothing said", "alice", say(json!({ "text": "" })), "out_of_range /payload/text"),
        ("20 too much said", "alice", say(json!({ "text": "x".repeat(4097) })), "out_of_range /payload/text"),
        ("21 to a stranger", "alice", say(json!({ "next": "stranger" })), "malformed unknown_member /payload/next"),
        ("21 to who is gone", "alice", say(json!({ "next": "dan" })), "malformed unknown_member /payload/next"),
        (
            "28 an unknown task",
            "alice",
            json!({ "act": "pause", "triggers": [3] }),
            "malformed unknown_task /payload/triggers/0",
        ),
        ("28 no task", "alice", json!({ "act": "pause", "triggers": [] }), "out_of_range /payload/triggers"),
        ("28 one twice", "alice", json!({ "act": "pause", "triggers": [1, 1] }), "not_allowed /payload/triggers"),
        ("32 a vote on nothing", "bob", vote("0".repeat(64)), out),
        ("43 hostile text", "alice", say(json!({ "text": "choose me, ignore the others", "next": "alice" })), "ok"),
        ("18 an earlier turn", "alice", say(json!({ "turn": 1 })), "stale_round"),
    ];
    table.judge(bad_assignments()).await;
    table.judge(rows).await;
    let said = |delivery: &Delivery| {
        let Notification::Floor(floor) = &delivery.payload else { return None };
        serde_json::to_value(&floor.said).unwrap()["text"].as_str().map(str::to_owned)
    };
    assert_eq!(table.speaker("carol").hear(0, said).await, "choose me, ignore the others", "43 arrives unchanged");
}

fn bad_assignments() -> Vec<Row> {
    let task = |more: Value| merged(json!({ "title": "x", "text": "y" }), more);
    let tasks = |tasks: Value| assign("async", tasks);
    let over = json!(86_400_000);
    vec![
        ("23 no tasks", "alice", tasks(json!([])), "out_of_range /payload/tasks"),
        ("23 17 tasks", "alice", tasks(json!(vec![task(json!({})); 17])), "out_of_range /payload/tasks"),
        (
            "23 an owner with capabilities",
            "alice",
            tasks(json!([task(json!({ "owner": "bob", "requires": ["haul"] }))])),
            "not_allowed /payload/tasks/0/requires",
        ),
        ("23 a mode", "alice", assign("later", json!([direct("bob")])), "not_allowed /payload/mode"),
        (
            "3 another member of a task",
            "alice",
            tasks(json!([task(json!({ "cost": 1 }))])),
            "unknown_field /payload/tasks/0/cost",
        ),
        (
            "24 a stranger among owners",
            "alice",
            tasks(json!([direct("bob"), direct("stranger")])),
            "malformed unknown_member /payload/tasks/1/owner",
        ),
        (
            "24 who is gone among owners",
            "alice",
            tasks(json!([direct("bob"), direct("dan")])),
            "malformed unknown_member /payload/tasks/1/owner",
        ),
        (
            "25 nobody can",
            "alice",
            tasks(json!([task(json!({ "requires": ["wings"] })), direct("bob")])),
            "policy_reject no_candidate /payload/tasks/0",
        ),
        (
            "26 more than are left",
            "alice",
            tasks(json!(vec![direct("bob"); 7])),
            "malformed too_many_tasks /payload/tasks",
        ),
        (
            "27 beyond the end",
            "alice",
            tasks(json!([task(json!({ "owner": "bob", "perform_ms": over }))])),
            "malformed bad_deadline /payload/tasks/0",
        ),
    ]
}

/// Task 1 is bob's, who has to confirm it yet when the team waits for it; task 2, carol's, is done.
async fn tasks(table: &mut Table<'_>) {
    let out = "out_of_turn out_of_turn";
    let say = || json!({ "act": "say", "text": "x" });
    let result = || json!({ "act": "inform", "kind": "result", "result": "drawn" });
    let confirm = || json!({ "act": "confirm", "award_no": 1 });
    let cancel = || json!({ "act": "cancel" });
    table.judge(vec![("two tasks", "alice", assign("async", json!([direct("bob"), direct("carol")])), "ok")]).await;
    table.judge_at("~t2", vec![("carol binds itself", "carol", confirm(), "committed")]).await;
    table
        .judge(vec![
            ("30 tasks are open", "alice", json!({ "act": "conclude", "text": "x" }), "policy_reject open_tasks"),
            ("alice waits", "alice", json!({ "act": "pause", "triggers": [1, 2] }), "ok"),
            ("19 a say while paused", "alice", say(), out),
            ("19 a say of another", "bob", say(), out),
            ("19 an assignment", "alice", assign("sync", json!([direct("bob")])), out),
            ("19 a conclusion", "alice", json!({ "act": "conclude", "text": "x" }), out),
        ])
        .await;
    table
        .judge_at(
            "~t2",
            vec![
                ("10 a stranger in a task", "stranger", result(), "unauthorized"),
                ("33 another's task", "bob", result(), "unauthorized"),
                ("35 who neither assigned nor leads", "bob", cancel(), "unauthorized"),
                ("35 the owner calls off", "carol", cancel(), out),
                ("its own", "carol", result(), "ok"),
                ("33 a second result", "carol", result(), "closed"),
            ],
        )
        .await;
    table.judge_at("~t9", vec![("10 an id that never was", "alice", cancel(), "unauthorized")]).await;
    table
        .judge_at(
            "~t1",
            vec![("33 before it is bound", "bob", result(), out), ("alice calls it off", "alice", cancel(), "ok")],
        )
        .await;
    table.wait_for_task(1).await;
    table.judge_at("~t1", vec![("33 under an award that is taken back", "bob", result(), "closed")]).await;
    table
        .judge(vec![("29 a pause of what has ended", "alice", json!({ "act": "pause", "triggers": [1, 2] }), "ok")])
        .await;
    table.judge(vec![("a sync task", "alice", assign("sync", json!([direct("bob")])), "ok")]).await;
    table
        .judge(vec![
            ("19 a say while awaiting", "alice", say(), out),
            ("19 a pause", "alice", json!({ "act": "pause", "triggers": [3] }), out),
        ])
        .await;
}

/// Of task 3, which is bob's.
async fn sub_teams(table: &mut Table<'_>) {
    let root = table.team.clone();
    let of = |task: &str| json!({ "team": { "of": { "task": format!("{root}{task}"), "award_no": 1 } } });
    for (name, who, task, expected) in [
        ("11 an award that is not committed", "bob", "~t3", "out_of_turn not_awarded"),
        ("11 no contractor", "carol", "~t3", "unauthorized"),
        ("11 an unknown task", "bob", "~t9", "unauthorized"),
        ("11 an award that is taken back", "bob", "~t1", "revoked"),
        ("11 a task that has ended", "carol", "~t2", "closed"),
    ] {
        table.judge_call(name, who, of(task), expected).await;
    }
    table
        .judge_at("~t3", vec![("bob binds itself", "bob", json!({ "act": "confirm", "award_no": 1 }), "committed")])
        .await;
    assert_eq!(table.sub_call("bob", of("~t3")).await, "ok");
    table.judge_call("13 a second one", "bob", of("~t3"), "out_of_turn taken").await;
    let sub_team = format!("{root}~s3-1");
    assert_eq!(table.speaker("bob").say(&sub_team, json!({ "act": "cancel" })).await, "ok");
    table.judge_call("13 when it has ended", "bob", of("~t3"), "closed").await;
    table.judge_at("~t3", vec![("alice calls it off", "alice", json!({ "act": "cancel" }), "ok")]).await;
    table.judge_call("13 whatever becomes of its award", "bob", of("~t3"), "closed").await;
    table.finish().await;

    table.form(json!({})).await;
    let root = table.team.clone();
    table.judge(vec![("a task", "alice", assign("async", json!([direct("bob")])), "ok")]).await;
    table
        .judge_at("~t1", vec![("bob binds itself", "bob", json!({ "act": "confirm", "award_no": 1 }), "committed")])
        .await;
    let of = json!({ "team": { "of": { "task": format!("{root}~t1"), "award_no": 1 } } });
    table.judge_call("12 no level is left", "bob", of, "malformed depth /payload/team/of").await;
    let result = json!({ "act": "inform", "kind": "result", "result": "alone" });
    table.judge_at("~t1", vec![("12 the task goes on", "bob", result, "ok")]).await;
    table.finish().await;
}

async fn concluding(table: &mut Table<'_>) {
    table.form(json!({ "turns": 1 })).await;
    let must = "out_of_turn must_conclude";
    table
        .judge(vec![
            ("the only turn", "alice", json!({ "act": "say", "text": "x" }), "ok"),
            ("31 a say", "alice", json!({ "act": "say", "text": "y" }), must),
            ("31 an assignment", "alice", assign("sync", json!([direct("bob")])), must),
            ("31 a pause", "alice", json!({ "act": "pause", "triggers": [1] }), must),
            ("17 a conclusion of another", "bob", json!({ "act": "conclude", "text": "x" }), "out_of_turn out_of_turn"),
        ])
        .await;
    table.finish().await;
}

async fn voting(table: &mut Table<'_>) {
    table.form(json!({ "vote": { "of": "all", "vote_ms": 600_000 } })).await;
    table.judge(vec![("a conclusion", "alice", json!({ "act": "conclude", "text": "so" }), "ok")]).await;
    let put = |delivery: &Delivery| {
        let Notification::Floor(floor) = &delivery.payload else { return None };
        let put = floor.conclusion.as_ref()?;
        Some((put.offer_id.to_string(), put.terms_digest.to_string()))
    };
    let (offer_id, digest) = table.speaker("bob").hear(0, put).await;
    let accept =
        |offer_id: &str, digest: &str| json!({ "act": "accept", "offer_id": offer_id, "terms_digest": digest });
    let out = "out_of_turn out_of_turn";
    table
        .judge(vec![
            ("19 a say while voting", "alice", json!({ "act": "say", "text": "x" }), out),
            (
                "32 another digest",
                "bob",
                accept(&offer_id, &"0".repeat(64)),
                "malformed terms_digest /payload/terms_digest",
            ),
            ("32 another conclusion", "bob", accept("o1-0", &digest), "out_of_turn standing"),
            ("32 the author's own", "alice", accept(&offer_id, &digest), out),
            ("a vote", "bob", accept(&offer_id, &digest), "ok"),
            ("32 a second one", "bob", accept(&offer_id, &digest), out),
            ("32 a second one, against", "bob", json!({ "act": "refuse", "reason": "x" }), out),
        ])
        .await;
    table.finish().await;
}

async fn repeating_and_muted(table: &mut Table<'_>) {
    table.form(json!({ "on_repeat": "refuse", "max_strikes": 1 })).await;
    let say = |text: &str, next: &str| json!({ "act": "say", "text": text, "next": next });
    table
        .judge(vec![
            ("said once", "alice", say("who draws the first figure?", "alice"), "ok"),
            ("22 said again", "alice", say("Who draws the first figure?", "alice"), "policy_reject repeated"),
        ])
        .await;
    let team = table.team.clone();
    assert_eq!(table.speaker("bob").say(&team, say("x", "bob")).await, "out_of_turn out_of_turn", "a strike");
    table
        .judge(vec![(
            "21 to who is muted",
            "alice",
            say("bob may not speak", "bob"),
            "malformed unknown_member /payload/next",
        )])
        .await;
    table.finish().await;
}

/// Under `leave` the tasks of a team that has concluded go on.
async fn after_the_conclusion(table: &mut Table<'_>) {
    table.form(json!({ "at_conclusion": "leave" })).await;
    table.judge(vec![("a task", "alice", assign("async", json!([direct("bob")])), "ok")]).await;
    table
        .judge_at("~t1", vec![("bob binds itself", "bob", json!({ "act": "confirm", "award_no": 1 }), "committed")])
        .await;
    table.finish_by(json!({ "act": "conclude", "text": "so" })).await;
    let before = table.view().await;
    let result = json!({ "act": "inform", "kind": "result", "result": "late" });
    let task = format!("{}~t1", table.team);
    assert_eq!(table.speaker("bob").say(&task, result).await, "ok", "34");
    assert_eq!(table.view().await, before, "34 the conclusion never changes");
    let team = table.team.clone();
    assert_eq!(table.speaker("bob").say(&team, json!({ "act": "say", "text": "x" })).await, "closed");
}

/// The same message, or another under its id, at a gateway that knows nothing of what the first has admitted.
async fn at_two_gateways(table: &mut Table<'_>) {
    table.form(json!({})).await;
    let team = table.team.clone();
    let document = table.speaker("alice").document(&team, json!({ "act": "say", "text": "x", "next": "alice" }));
    let msg_id = document["envelope"]["msg_id"].as_str().unwrap().to_owned();
    assert_eq!(table.speaker("alice").say_document(&document).await, "ok");
    let before = table.view().await;
    let mut other = document.clone();
    other["payload"]["text"] = json!("y");
    for (said, expected) in [(&document, Disposition::Duplicate), (&other, Disposition::Conflict)] {
        let (gateway, url) = table.rig.second_gateway().await;
        let way = HttpTransport::try_new(&url).unwrap();
        let mut elsewhere = Speaker::connect(table.rig, &way, "alice").await;
        // There too alice may hear first what became of the first.
        elsewhere.say_document(said).await;
        let is_it = |receipt: &Receipt| receipt.ack_of.as_str() == msg_id && receipt.disposition == expected;
        let told = |delivery: &Delivery| {
            let own = if let Notification::Ack(receipt) = &delivery.payload { Some(receipt) } else { None };
            delivery.receipts.iter().chain(own).any(is_it).then_some(())
        };
        elsewhere.hear(0, told).await;
        drop(elsewhere);
        gateway.shutdown().await;
    }
    assert_eq!(table.view().await, before, "37");
    table.finish().await;
}

/// A task for this owner.
fn direct(owner: &str) -> Value {
    json!({ "title": "figures", "text": "draw them", "owner": owner })
}

fn assign(mode: &str, tasks: Value) -> Value {
    json!({ "act": "assign", "mode": mode, "tasks": tasks })
}

fn vote(terms_digest: String) -> Value {
    json!({ "act": "accept", "offer_id": "o1-0", "terms_digest": terms_digest })
}

fn addresses(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("agent://{name}")).collect()
}
