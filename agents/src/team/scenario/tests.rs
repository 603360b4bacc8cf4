use serde_json::{Value, json};

use super::*;

#[test]
fn every_shipped_scenario_can_be_read() {
    assert_eq!(read("../domains/teams"), ["evening", "mission", "survey"]);
}

/// The names of the scenarios in a folder of this package.
fn read(folder: &str) -> Vec<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut read = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let scenario = Scenario::parse(&std::fs::read_to_string(&path).unwrap());
        read.push(scenario.unwrap_or_else(|fault| panic!("{}: {fault}", path.display())).name);
    }
    read.sort();
    read
}

#[test]
fn an_agent_finds_its_part_in_a_task_by_the_title() {
    let scenario = Scenario::parse(&document().to_string()).unwrap();
    let bob = scenario.agent(&AgentId::try_new("bob").unwrap()).unwrap();
    assert_eq!(bob.task("figures").unwrap().course, TaskBehaviour::Result("two figures".to_owned()));
    assert_eq!(bob.task("another").unwrap().course, TaskBehaviour::Failure("cannot".to_owned()));
    assert_eq!(scenario.team.reply_within_ms, REPLY_MS_DEFAULT);
    let say = TeamMove::Say { text: "Begin.".to_owned(), next: Some(AgentId::try_new("bob").unwrap()) };
    assert_eq!(scenario.team.members[&scenario.lead].moves[0], say);
}

#[test]
#[allow(clippy::too_many_lines, reason = "a row for each thing that does not fit")]
fn a_file_that_does_not_fit_is_refused_with_its_place() {
    let long = "x".repeat(TEXT_LEN_MAX + 1);
    let agent = |name: &str| json!({"name": name});
    let task = |task: Value| json!([task]);
    let alice = "/team/members/alice/moves";
    for (pointer, value, place) in [
        ("/name", json!(""), "/name"),
        ("/name", json!("a\u{1b}[2J"), "/name"),
        ("/extra", json!(1), "/extra"),
        ("/agents", json!([agent("alice")]), "/agents"),
        ("/agents", json!([agent("alice"), agent("alice")]), "/agents/1/name"),
        ("/agents/0/name", json!("a b"), "/agents/0/name"),
        ("/agents/1/capabilities", json!(["a b"]), "/agents/1/capabilities/0"),
        ("/agents/1/tasks", task(json!({"title": "t"})), "/agents/1/tasks/0"),
        ("/agents/1/tasks", task(json!({"title": "t", "result": "", "failure": "f"})), "/agents/1/tasks/0"),
        ("/agents/1/tasks", task(json!({"title": "", "result": ""})), "/agents/1/tasks/0/title"),
        ("/agents/1/tasks", task(json!({"title": "t", "result": long})), "/agents/1/tasks/0/result"),
        ("/agents/1/tasks", task(json!({"title": "t", "failure": ""})), "/agents/1/tasks/0/failure"),
        ("/agents/1/tasks", task(json!({"title": "t", "refuses": long})), "/agents/1/tasks/0/refuses"),
        (
            "/agents/1/tasks",
            task(json!({"title": "t", "result": "", "after_ms": 3_600_001})),
            "/agents/1/tasks/0/after_ms",
        ),
        (
            "/agents/1/tasks",
            task(json!({"title": "t", "team": {"goal": "", "invites": ["alice"]}})),
            "/agents/1/tasks/0/team/goal",
        ),
        (
            "/agents/1/tasks",
            task(json!({"title": "t", "team": {"lead": "bob", "goal": "g", "invites": ["alice"]}})),
            "/agents/1/tasks/0/team/lead",
        ),
        ("/team/lead", json!("mallory"), "/team/lead"),
        ("/team/lead", json!(null), "/team"),
        ("/team/goal", json!(long), "/team/goal"),
        ("/team/rules", json!({"turns": 0}), "/team/rules/turns"),
        ("/team/rules", json!({"turns": "many"}), "/team/rules"),
        ("/team/rules", json!({"rounds": 3}), "/team/rules"),
        ("/team/rules", json!({"members": {"min": 1}}), "/team/rules/members/min"),
        ("/team/rules", json!({"members": {"min": 3, "max": 2}}), "/team/rules/members/max"),
        ("/team/rules", json!({"members": {"min": 3, "max": 3}}), "/team/rules/members/min"),
        ("/team/rules", json!({"speak_ms": 99}), "/team/rules/speak_ms"),
        ("/team/rules", json!({"depth": 5}), "/team/rules/depth"),
        ("/team/rules", json!({"tasks": 65}), "/team/rules/tasks"),
        ("/team/rules", json!({"vote": {"of": "all", "attempts": 6}}), "/team/rules/vote/attempts"),
        ("/team/rules", json!({"ends_within_ms": 124_999}), "/team/rules/ends_within_ms"),
        ("/team/rules", json!({}), "/agents/1/tasks/2/team"),
        ("/team/invites", json!([]), "/team/invites"),
        ("/team/invites", json!(["alice"]), "/team/invites/0"),
        ("/team/invites", json!(["bob", "bob"]), "/team/invites/1"),
        ("/team/invites", json!(["mallory"]), "/team/invites/0"),
        ("/team/search", json!([""]), "/team/search/0"),
        ("/team/search", json!(["q", "q", "q", "q", "q", "q", "q", "q", "q"]), "/team/search"),
        ("/team/members/mallory", json!({}), "/team/members/mallory"),
        ("/team/members/alice/conclusion", json!(""), "/team/members/alice/conclusion"),
        ("/team/members/alice/votes", json!(["maybe"]), "/team/members/alice/votes/0"),
        ("/team/members/alice/votes", json!(["no", "no", "no", "no", "no", "no"]), "/team/members/alice/votes"),
        (alice, json!([{"act": "say", "text": ""}]), "/team/members/alice/moves/0/text"),
        (alice, json!([{"act": "say", "text": "x", "next": "mallory"}]), "/team/members/alice/moves/0/next"),
        (alice, json!([{"act": "say", "text": "x", "to": "bob"}]), "/team/members/alice/moves/0"),
        (alice, json!([{"act": "offer"}]), "/team/members/alice/moves/0/act"),
        (alice, json!([{"act": "pause", "triggers": []}]), "/team/members/alice/moves/0/triggers"),
        (alice, json!([{"act": "pause", "triggers": [1, 1]}]), "/team/members/alice/moves/0/triggers"),
        (alice, json!([{"act": "pause", "triggers": [65]}]), "/team/members/alice/moves/0/triggers"),
        (alice, json!([{"act": "assign", "mode": "sync", "tasks": []}]), "/team/members/alice/moves/0/tasks"),
        (alice, json!([{"act": "assign", "mode": "later", "tasks": []}]), "/team/members/alice/moves/0"),
        (
            alice,
            json!([{"act": "assign", "mode": "sync", "tasks": [{"title": "t", "text": "x", "owner": "mallory"}]}]),
            "/team/members/alice/moves/0/tasks/0/owner",
        ),
        (
            alice,
            json!([{"act": "assign", "mode": "sync", "tasks": [{"title": "t", "text": "x", "owner": "bob", "requires": ["y"]}]}]),
            "/team/members/alice/moves/0/tasks/0/requires",
        ),
    ] {
        let fault = Scenario::parse(&with(pointer, &value).to_string()).expect_err(pointer);
        assert_eq!(fault.pointer, place, "{value}: {fault}");
    }
    for text in ["", "{", "[]", "{} {}"] {
        Scenario::parse(text).unwrap_err();
    }
}

fn document() -> Value {
    json!({
        "name": "greeting",
        "agents": [
            {"name": "alice", "description": "leads"},
            {"name": "bob", "capabilities": ["drawing"], "tasks": [
                {"title": "figures", "result": "two figures", "after_ms": 20, "offer": {"fit": 900_000}},
                {"title": "*", "failure": "cannot"},
                {"title": "deep", "team": {"goal": "below", "invites": ["alice"]}}
            ]}
        ],
        "team": {
            "goal": "welcome the new colleague",
            "lead": "alice",
            "invites": ["bob"],
            "rules": {"depth": 1},
            "members": {"alice": {"moves": [{"act": "say", "text": "Begin.", "next": "bob"}], "votes": ["yes"]}}
        }
    })
}

/// The document with another value at a pointer.
fn with(pointer: &str, value: &Value) -> Value {
    let mut document = document();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = document.pointer_mut(parent).unwrap();
    match (parent, name.parse::<usize>()) {
        (Value::Array(list), Ok(index)) => list[index] = value.clone(),
        (Value::Object(map), _) => {
            map.insert(name.to_owned(), value.clone());
        }
        _ => panic!("no such place: {pointer}"),
    }
    document
}
