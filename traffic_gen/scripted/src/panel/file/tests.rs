use serde_json::{Value, json};

use super::*;

fn document() -> Value {
    json!({
        "name": "primes",
        "description": "four that debate",
        "task": "Which is prime?",
        "right": "B",
        "panel": {
            "domain": "mathematics",
            "answer": {"kind": "choice", "options": ["A", "B", "C", "D"]},
            "select": {"after_round": 2, "keep": 2, "ranker": {"kind": "agent", "agent": "carol"}},
            "review": {"by": ["rob"]},
        },
        "agents": [
            {"name": "seat", "count": 3, "profile": {"accuracy": {"mathematics": 0.7}, "answers": "debate"}},
            {"name": "liz", "profile": {"answers": "liar", "rates": "ring", "ring": "north"}},
            {"name": "carol", "profile": {"accuracy": {"mathematics": 0.5}, "discernment": 0.9}},
            {"name": "rob", "profile": {"accuracy": {"mathematics": 0.5}}},
            {"name": "ann", "profile": {"answers": "script", "script": [{"answer": "B", "ratings": {"C": 5}}, {"silent": true}]}},
        ],
    })
}

fn with(pointer: &str, value: &Value) -> Value {
    let mut document = document();
    let (parent, member) = pointer.rsplit_once('/').unwrap_or(("", ""));
    match document.pointer_mut(pointer) {
        Some(there) => *there = value.clone(),
        None => {
            document.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(member.to_owned(), value.clone());
        }
    }
    document
}

fn parse(document: &Value) -> Result<PanelFile, DocumentFault> {
    PanelFile::parse(&document.to_string())
}

#[test]
fn agents_have_the_parts_that_the_rules_give_them_and_the_rest_have_seats() {
    let file = parse(&document()).unwrap();
    let names = |agents: &[StubAgent]| agents.iter().map(|agent| agent.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&file.seats), ["ann", "liz", "seat-1", "seat-2", "seat-3"]);
    assert_eq!(file.ranker.as_ref().unwrap().name.as_str(), "carol");
    assert_eq!(names(&file.reviewers), ["rob"]);
    assert_eq!(file.asked().count(), 7);
    assert_eq!((file.initiator.as_str(), file.domain().as_str()), ("initiator", "mathematics"));
    let question = file.question.unwrap();
    assert_eq!((question.right.as_str(), question.wrong.join("")), ("B", "ACD".to_owned()));
}

#[test]
fn the_initiator_may_rank_but_has_no_seat() {
    let file = parse(&with("/initiator", &json!("carol"))).unwrap();
    assert_eq!(file.ranker.unwrap().name, file.initiator);
    assert_eq!(parse(&with("/initiator", &json!("liz"))).unwrap_err().pointer, "/agents/1/name");
}

#[test]
fn a_file_that_does_not_fit_is_refused_where_it_is_at_fault() {
    for (pointer, value, at) in [
        ("", json!(7), ""),
        ("/name", json!(""), "/name"),
        ("/name", json!("a\u{1b}[2J"), "/name"),
        ("/colour", json!("red"), "/colour"),
        ("/task", json!("x".repeat(4097)), "/task"),
        ("/task", json!(null), "/task"),
        ("/right", json!("E"), "/right"),
        ("/options", json!(["B"]), "/options"),
        ("/options", json!(["B", "A", "A"]), "/options"),
        ("/panel/rounds", json!(0), "/panel/rounds"),
        ("/panel/rounds", json!(9), "/panel/rounds"),
        ("/panel/rounds", json!("3"), "/panel/rounds"),
        ("/panel/answer_ms", json!(86_400_001), "/panel/answer_ms"),
        ("/panel/consensus_from", json!(4), "/panel/consensus_from"),
        ("/panel/min_seats", json!(6), "/panel/min_seats"),
        ("/panel/max_strikes", json!(0), "/panel/max_strikes"),
        ("/panel/select/after_round", json!(3), "/panel/select/after_round"),
        ("/panel/select/keep", json!(17), "/panel/select/keep"),
        ("/panel/select/if_more_than", json!(33), "/panel/select/if_more_than"),
        ("/panel/select/ranker/rank_ms", json!(0), "/panel/select/ranker/rank_ms"),
        ("/panel/select/ranker/agent", json!("nobody"), "/panel/select/ranker/agent"),
        ("/panel/review/by", json!([]), "/panel/review/by"),
        ("/panel/review/by", json!(["carol"]), "/panel/review/by/0"),
        ("/panel/review/review_ms", json!(0), "/panel/review/review_ms"),
        ("/panel/choose", json!({"keep": 1}), "/panel/choose"),
        ("/panel/answer", json!({"kind": "vote"}), "/panel/answer/kind"),
        ("/panel/colour", json!(7), "/panel/colour"),
        ("/initiator", json!("a b"), "/initiator"),
        ("/agents", json!([]), "/panel/select/ranker/agent"),
        ("/agents/0/count", json!(0), "/agents/0/count"),
        ("/agents/0/count", json!(31), "/agents"),
        ("/agents/0/name", json!("x".repeat(64)), "/agents/0/name"),
        ("/agents/1/name", json!("seat-2"), "/agents/1/name"),
        ("/agents/1/name", json!("a b"), "/agents/1/name"),
        ("/agents/0/profile/accuracy", json!({}), "/agents/0/profile/accuracy"),
        ("/agents/0/profile/accuracy/mathematics", json!(1.1), "/agents/0/profile/accuracy/mathematics"),
        ("/agents/0/profile/holds", json!(-0.1), "/agents/0/profile/holds"),
        ("/agents/0/profile/discernment", json!(2), "/agents/0/profile/discernment"),
        ("/agents/0/profile/silent", json!("often"), "/agents/0/profile/silent"),
        ("/agents/0/profile/answers", json!("oracle"), "/agents/0/profile/answers"),
        ("/agents/0/profile/rates", json!("ring"), "/agents/0/profile/ring"),
        ("/agents/0/profile/ring", json!("north"), "/agents/0/profile/ring"),
        ("/agents/0/profile/script", json!([{}]), "/agents/0/profile/script"),
        ("/agents/0/profile/mood", json!(1), "/agents/0/profile/mood"),
        ("/agents/4/profile/script", json!([]), "/agents/4/profile/script"),
        ("/agents/4/profile/script/0/ratings/C", json!(6), "/agents/4/profile/script/0/ratings/C"),
        ("/agents/4/profile/script/1/loud", json!(true), "/agents/4/profile/script/1/loud"),
    ] {
        let document = if pointer.is_empty() { value.clone() } else { with(pointer, &value) };
        let fault = parse(&document).expect_err(&format!("{pointer} = {value}"));
        assert_eq!(fault.pointer, at, "{pointer} = {value}: {fault}");
        assert!(!fault.detail.is_empty());
    }
    let mut without = document();
    without.as_object_mut().unwrap().remove("right");
    assert_eq!(parse(&without).unwrap_err().pointer, "/agents/0/profile/answers");
    let text = document().to_string() + "{}";
    assert_eq!(PanelFile::parse(&text).unwrap_err().pointer, "");
}

#[test]
fn the_shipped_panels_can_be_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../domains/panels");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file = PanelFile::parse(&std::fs::read_to_string(&path).unwrap());
        names.push(file.unwrap_or_else(|fault| panic!("{}: {fault}", path.display())).name);
    }
    assert!(names.len() >= 7, "{names:?}");
}
