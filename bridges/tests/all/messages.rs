//! Arguments → messages, and what was heard → what may be done.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bridges::mcp::strict;
use bridges::memory::{HELD_MAX, ITEMS_MAX, Memory, NEGOTIATIONS_MAX, NegotiationMemory, SHARE_BYTES, TOTAL_BYTES_MAX};
use bridges::tools::Tool;
use bridges::tools::message::{self, Limits, Message, pointer_into_arguments};
use schemas::delivery::{Delivery, Disposition};
use schemas::validate::check_message;
use schemas::{AgentId, Code, Digest, MsgId, NegotiationId};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

fn agent(id: &str) -> AgentId {
    AgentId::try_new(id).unwrap()
}

fn negotiation() -> NegotiationId {
    NegotiationId::try_new("alice~job").unwrap()
}

fn memory(of: &str, tag: &str) -> Memory {
    Memory::new(agent(of), tag.to_owned(), Arc::default())
}

fn members(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn opening(tool: &str, arguments: Value, limits: &Limits) -> Result<Message, schemas::Refusal> {
    Tool::named(tool).unwrap().check(&arguments).unwrap();
    message::opening(&agent("alice"), tool, members(arguments), limits)
}

/// A delivery to an agent; its id is made from `place`.
fn delivery(to: &str, place: u64, payload: Value) -> Delivery {
    let document = json!({"envelope": {"msg_id": format!("{place:032x}"), "ts": "2026-11-29T10:00:00Z",
        "from": "exchange://llmx", "to": [format!("agent://{to}")], "negotiation": "alice~job"}, "payload": payload});
    Delivery::decode(document.to_string().as_bytes()).unwrap()
}

fn cfp() -> Value {
    json!({"act": "cfp", "task": "carry", "round": 1, "reply_by": "2026-11-29T10:00:10Z", "ends_by": "2026-11-29T10:02:00Z",
        "policy": "high@1", "policy_digest": Digest::of_bytes(b"high").to_string(), "lots": 1})
}

fn accept(price: i64) -> Value {
    json!({"act": "accept", "offer_id": "o6-0", "lot": 0, "award_no": 1, "terms": {"price": price},
        "terms_digest": Digest::of_bytes(b"terms").to_string(), "confirm_by": "2026-11-29T10:00:20Z"})
}

fn closed() -> Value {
    json!({"act": "closed", "outcome": "completed", "digest": Digest::of_bytes(b"end").to_string()})
}

#[test]
fn a_tool_that_opens_makes_a_message_the_gateway_takes_with_times_for_models() {
    let table = [
        (
            "call_for_offers",
            json!({"id": "p-1", "task": "carry", "to": ["bob", "topic://courier"], "price_max": 90, "absent": true}),
            json!({"act": "cfp", "task": "carry", "reply_within_ms": 30_000,
                "gates": [{"attr": "price", "max": 90, "required": true}]}),
        ),
        (
            "call_for_offers",
            json!({"id": "p-1", "task": "carry", "to": ["bob"], "policy": "patient", "wait_ms": 0}),
            json!({"act": "cfp", "task": "carry", "policy": "patient"}),
        ),
        (
            "bargain",
            json!({"id": "b-1", "task": "rent", "with": ["bob"], "issues": [{"name": "price", "min": 1, "max": 9}],
                "mandate": {"limits": [{"attr": "price", "op": "le", "value": 5}]}}),
            json!({"act": "cfp", "task": "rent", "reply_within_ms": 60_000,
                "mandate": {"limits": [{"attr": "price", "op": "le", "value": 5}]},
                "bargain": {"issues": [{"name": "price", "min": 1, "max": 9}], "rounds": 20, "step_ms": 120_000}}),
        ),
        (
            "form_team",
            json!({"id": "t-1", "goal": "plan", "to": ["bob"], "members_max": 4, "vote": "majority"}),
            json!({"act": "cfp", "task": "plan", "reply_within_ms": 60_000, "team": {"speak_ms": 120_000,
                "ends_within_ms": 3_600_000, "members": {"max": 4}, "vote": {"of": "majority", "vote_ms": 60_000}}}),
        ),
        (
            "ask_panel",
            json!({"id": "q-1", "question": "when?", "to": ["topic://oracle"], "options": ["a", "b"]}),
            json!({"act": "cfp", "task": "when?",
                "panel": {"answer_ms": 60_000, "answer": {"kind": "choice", "options": ["a", "b"]}}}),
        ),
    ];
    for (tool, arguments, payload) in table {
        let message = opening(tool, arguments, &Limits::default()).unwrap();
        assert_eq!(message.document["payload"], payload, "{tool}");
        assert_eq!(message.document["envelope"]["ts"], "1970-01-01T00:00:00Z", "the same on every repeat");
        check_message(message.document.to_string().as_bytes()).unwrap();
    }
}

#[test]
fn an_act_makes_a_message_the_gateway_takes() {
    let table = [
        ("accept", json!({"offer_id": "o6-0"}), json!({"act": "accept", "offer_id": "o6-0"})),
        ("cancel", json!({"reason": "late"}), json!({"act": "cancel", "reason": "late"})),
        (
            "offer",
            json!({"terms": {"price": 5}, "confirm": "ask"}),
            json!({"act": "offer", "terms": {"price": 5}, "round": 1}),
        ),
        ("confirm", json!({"award_no": 1}), json!({"act": "confirm", "award_no": 1})),
        ("refuse", json!({}), json!({"act": "refuse"})),
        ("report", json!({"result": "done"}), json!({"act": "inform", "kind": "done", "result": "done"})),
        ("report", json!({"failed": "no_van"}), json!({"act": "failure", "phase": "perform", "code": "no_van"})),
        ("report", json!({"stopped": true}), json!({"act": "inform", "kind": "cancelled"})),
        ("withdraw", json!({}), json!({"act": "withdraw"})),
        ("leave", json!({}), json!({"act": "end"})),
        ("join", json!({}), json!({"act": "join"})),
        ("say", json!({"text": "hello"}), json!({"act": "say", "text": "hello"})),
        (
            "assign",
            json!({"tasks": [{"title": "a", "text": "b"}]}),
            json!({"act": "assign", "mode": "async", "tasks": [{"title": "a", "text": "b"}]}),
        ),
        ("pause", json!({"triggers": [1]}), json!({"act": "pause", "triggers": [1]})),
        ("conclude", json!({"text": "so"}), json!({"act": "conclude", "text": "so"})),
        ("answer", json!({"round": 1}), json!({"act": "answer", "round": 1, "answer": null})),
        (
            "answer",
            json!({"round": 1, "reviews": ["", "good"]}),
            json!({"act": "answer", "round": 1, "reviews": [null, "good"]}),
        ),
    ];
    let mut memory = memory("bob", "t");
    memory.hear(delivery("bob", 1, cfp()), Instant::now());
    for (tool, arguments, payload) in table {
        let mut arguments = members(arguments);
        arguments.insert("negotiation".to_owned(), json!("alice~job"));
        Tool::named(tool).unwrap().check(&json!(arguments)).unwrap();
        let known = memory.known(&negotiation());
        let message = message::act(&agent("bob"), tool, arguments, known, &Limits::default()).unwrap();
        assert_eq!(message.document["payload"], payload, "{tool}");
        check_message(message.document.to_string().as_bytes()).unwrap();
    }
}

#[test]
fn the_same_call_of_a_tool_is_the_same_message_and_another_is_another() {
    let act = |arguments: Value, known: Option<&NegotiationMemory>| -> MsgId {
        message::act(&agent("bob"), "offer", members(arguments), known, &Limits::default()).unwrap().id
    };
    let offer = || json!({"negotiation": "alice~job", "terms": {"price": 5}});
    let mut memory = memory("bob", "t");
    assert_eq!(act(offer(), None), act(offer(), None));
    assert_ne!(act(offer(), None), act(json!({"negotiation": "alice~job", "terms": {"price": 6}}), None));
    memory.hear(delivery("bob", 1, cfp()), Instant::now());
    let first = act(offer(), memory.known(&negotiation()));
    assert_ne!(first, act(offer(), None), "what it answers counts");
    memory.hear(delivery("bob", 2, accept(5)), Instant::now());
    assert_eq!(first, act(offer(), memory.known(&negotiation())), "what came since asks for another tool");
    memory.hear(delivery("bob", 3, cfp()), Instant::now());
    assert_ne!(first, act(offer(), memory.known(&negotiation())), "asked again it is another");
    let named = json!({"negotiation": "alice~job", "terms": {"price": 5}, "request_id": "mine"});
    assert_eq!(act(named, None), MsgId::try_new("mine").unwrap());
}

#[test]
fn an_act_that_is_made_after_another_is_a_new_one_and_the_last_made_again_is_that_one() {
    let ok = |message: &MsgId| json!({"act": "ack", "ack_of": message, "disposition": "ok"});
    let mut heard = memory("bob", "t");
    heard.hear(delivery("bob", 1, cfp()), Instant::now());
    let id = |heard: &Memory, tool: &str, price: i64| {
        let mut arguments = members(json!({"negotiation": "alice~job"}));
        if tool == "offer" {
            arguments.insert("terms".to_owned(), json!({ "price": price }));
        }
        message::act(&agent("bob"), tool, arguments, heard.known(&negotiation()), &Limits::default()).unwrap().id
    };
    let mut made: Vec<MsgId> = Vec::new();
    for (place, (tool, price)) in
        [("offer", 5), ("withdraw", 0), ("offer", 6), ("withdraw", 0), ("offer", 5)].into_iter().enumerate()
    {
        let message = id(&heard, tool, price);
        assert!(!made.contains(&message), "{tool} {price} is an act of its own");
        assert_eq!(id(&heard, tool, price), message, "asked for again before its receipt");
        heard.hear(delivery("bob", 10 + place as u64, ok(&message)), Instant::now());
        assert_eq!(id(&heard, tool, price), message, "and behind it");
        made.push(message);
    }
    let last = made.pop().unwrap();
    let committed = json!({"act": "ack", "ack_of": "c", "disposition": "committed", "award_no": 1});
    heard.hear(delivery("bob", 30, committed), Instant::now());
    assert_eq!(id(&heard, "offer", 5), last, "a confirmation in between makes no new offer of a repeat");
}

#[test]
fn limits_hold_whatever_a_model_was_told() {
    let limits = Limits { price_max: Some(80), requires_mandate: true, ..Limits::default() };
    let call = |max: Option<i64>| {
        let mut arguments = json!({"id": "p", "task": "t", "to": ["bob"]});
        max.into_iter().for_each(|max| arguments["price_max"] = json!(max));
        opening("call_for_offers", arguments, &limits)
    };
    assert_eq!(call(None).unwrap().document["payload"]["gates"][0]["max"], 80);
    assert_eq!(call(Some(70)).unwrap().document["payload"]["gates"][0]["max"], 70);
    let euros = Limits { currency: Some("EUR".to_owned()), ..limits.clone() };
    let named = |currency: &str| {
        let arguments = json!({"id": "p", "task": "t", "to": ["bob"], "currency": currency});
        opening("call_for_offers", arguments, &euros).map(|message| message.document["payload"]["currency"].clone())
    };
    assert_eq!(named("EUR").unwrap(), "EUR");
    assert_eq!(named("BTC").unwrap_err().code, Code::NotAllowed);
    let assign = members(json!({"negotiation": "alice~job", "tasks": [{"title": "a", "text": "b"}]}));
    let refused = message::act(&agent("alice"), "assign", assign, None, &limits);
    assert_eq!(refused.unwrap_err().pointer.as_deref(), Some("/tasks/0/owner"));
    let refusal = call(Some(90)).unwrap_err();
    assert_eq!((refusal.code, refusal.pointer.as_deref()), (Code::NotAllowed, Some("/price_max")));
    let issues = json!([{"name": "price", "min": 1, "max": 9}]);
    let refusal =
        opening("bargain", json!({"id": "b", "task": "t", "with": ["bob"], "issues": issues.clone()}), &limits)
            .unwrap_err();
    assert_eq!((refusal.code, refusal.pointer.as_deref()), (Code::NotAllowed, Some("/mandate")));
    let empty = json!({"id": "b", "task": "t", "with": ["bob"], "issues": issues, "mandate": {}});
    assert_eq!(opening("bargain", empty, &limits).unwrap_err().code, Code::NotAllowed, "it would bind nothing");
    let join = members(json!({"negotiation": "alice~job"}));
    let mut memory = memory("bob", "t");
    let refused = message::act(&agent("bob"), "join", join.clone(), memory.known(&negotiation()), &limits);
    assert_eq!(refused.unwrap_err().code, Code::NotAllowed);
    let mut team = cfp();
    team["team"] = json!({"lead": "alice", "rules": {}, "depth_left": 0});
    memory.hear(delivery("bob", 1, team), Instant::now());
    message::act(&agent("bob"), "join", join, memory.known(&negotiation()), &limits).unwrap();
}

#[test]
fn limits_hold_for_requests_of_other_protocols_too() {
    let limits = Limits { price_max: Some(80), requires_mandate: true, currency: Some("EUR".to_owned()) };
    let request = |payload: Value| {
        let ids = (negotiation(), MsgId::try_new("m-1").unwrap());
        message::request(&agent("alice"), ids, members(json!({"payload": payload})), None, &limits)
    };
    let call = |more: Value| {
        let mut payload = json!({"act": "cfp", "task": "t"});
        payload.as_object_mut().unwrap().extend(members(more));
        request(payload)
    };
    let own = json!({"attr": "price", "max": 500, "required": false});
    let limit = json!({"attr": "price", "max": 80, "required": true});
    let payload = call(json!({"gates": [own]})).unwrap().document["payload"].clone();
    assert_eq!((&payload["gates"], &payload["currency"]), (&json!([own, limit]), &json!("EUR")));
    assert_eq!(call(json!({})).unwrap().document["payload"]["gates"], json!([limit]));
    let table = [
        (call(json!({"currency": "BTC"})), "/payload/currency"),
        (call(json!({"bargain": {"issues": []}})), "/payload/mandate"),
        (request(json!({"act": "join", "mandate": {}})), "/payload/mandate"),
        (
            request(json!({"act": "assign", "tasks": [{"owner": "bob"}, {"title": "by award"}]})),
            "/payload/tasks/1/owner",
        ),
    ];
    for (message, pointer) in table {
        let refusal = message.unwrap_err();
        assert_eq!((refusal.code, refusal.pointer.as_deref()), (Code::NotAllowed, Some(pointer)));
    }
    assert!(request(json!({"act": "accept", "offer_id": "o1-0"})).is_ok());
}

#[test]
fn a_fault_of_a_message_is_shown_in_the_arguments_it_was_made_of() {
    let table = [
        ("offer", "/payload/terms/price", "/terms/price"),
        ("call_for_offers", "/envelope/to/0", "/to/0"),
        ("call_for_offers", "/payload/gates/0/max", "/price_max"),
        ("bargain", "/envelope/to/0", "/with/0"),
        ("bargain", "/payload/bargain/issues/0/min", "/issues/0/min"),
        ("bargain", "/payload/mandate/utility/linear/0/weight", "/mandate/utility/0/weight"),
        ("form_team", "/payload/task", "/goal"),
        ("ask_panel", "/payload/panel/answer/options/1", "/options/1"),
        ("say", "/elsewhere", "/elsewhere"),
    ];
    for (tool, pointer, argument) in table {
        assert_eq!(pointer_into_arguments(tool, pointer), argument);
    }
}

#[test]
fn a_message_is_read_strictly_before_the_library_sees_it() {
    let written = |text: &str| String::from_utf8(strict(text.as_bytes()).unwrap()).unwrap();
    assert_eq!(
        written(r#"{"params":{"arguments":{"price":85000000.0}}}"#),
        r#"{"params":{"arguments":{"price":85000000}}}"#
    );
    for text in ["99999999.999999999999", "8.5", "1e-400"] {
        let message = format!(r#"{{"params":{{"arguments":{{"terms":[{text}]}}}}}}"#);
        assert_eq!(written(&message), r#"{"params":{"arguments":{"terms":[{}]}}}"#, "{text}");
    }
    for (text, code) in
        [("nothing", "malformed_json"), (r#"{"id":1,"id":2}"#, "duplicate_key"), ("[1,", "malformed_json")]
    {
        let answer = strict(text.as_bytes()).unwrap_err();
        assert_eq!((&answer["error"]["code"], &answer["error"]["data"]["code"]), (&json!(-32700), &json!(code)));
    }
    for params in [r#"{"name":5}"#, r#"{"name":"follow","arguments":["x"]}"#, "{}"] {
        let message = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#);
        let answer = strict(message.as_bytes()).unwrap_err();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(-32602)), "{params}");
    }
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    assert_eq!(strict(deep.as_bytes()).unwrap_err()["error"]["data"]["code"], "too_deep");
}

#[test]
fn a_delivery_counts_once_and_is_acknowledged_each_time() {
    let (mut memory, now) = (memory("bob", "t"), Instant::now());
    for _ in 0..3 {
        assert!(memory.hear(delivery("bob", 1, cfp()), now).is_acknowledged);
    }
    assert_eq!(memory.news(&negotiation(), 0).count(), 1);
    assert_eq!(memory.asking(0).len(), 1);
    assert_eq!(memory.asking(1).len(), 0);
}

#[test]
fn an_award_of_the_terms_last_offered_is_confirmed_and_any_other_is_asked_about() {
    let terms = |price: i64| serde_json::from_value(json!({ "price": price })).unwrap();
    let hear = |offered, award: i64| {
        let mut memory = memory("bob", "t");
        memory.hear(delivery("bob", 1, cfp()), Instant::now());
        memory.offers(&negotiation(), offered);
        let heard = memory.hear(delivery("bob", 2, accept(award)), Instant::now());
        let asked = memory.known(&negotiation()).unwrap().asked_of_client().map(|todo| todo.tools.clone());
        (heard.award.is_some(), asked)
    };
    assert_eq!(hear(Some(terms(5)), 5), (true, None));
    assert_eq!(hear(Some(terms(5)), 6), (false, Some(vec!["confirm", "refuse"])));
    assert_eq!(hear(None, 5), (false, Some(vec!["confirm", "refuse"])));
}

#[test]
fn results_and_ends_of_ones_own_calls_are_acknowledged_once_they_were_handed_on() {
    let (mut memory, now) = (memory("alice", "t"), Instant::now());
    let done =
        json!({"act": "inform", "kind": "done", "contractor": "bob", "award_no": 1, "lot": 0, "result": "there"});
    assert!(!memory.hear(delivery("alice", 1, done.clone()), now).is_acknowledged);
    assert!(!memory.hear(delivery("alice", 1, done), now).is_acknowledged, "a repeat waits as well");
    assert!(!memory.hear(delivery("alice", 2, closed()), now).is_acknowledged);
    let after = |ms| now + Duration::from_millis(ms);
    assert_eq!(memory.due(after(44_000)).len(), 0);
    memory.handed(&negotiation(), 1, after(1000));
    assert_eq!(memory.due(after(1999)).len(), 0);
    assert_eq!(memory.due(after(2000)).len(), 1);
    assert_eq!(memory.due(after(45_000)).len(), 1, "what nobody asks for is given up");
    let mut memory = super::messages::memory("alice", "t");
    for place in 0..=HELD_MAX as u64 {
        memory.hear(delivery("alice", place, closed()), now);
    }
    assert_eq!(memory.due(now).len(), 1, "the oldest of too many goes");
}

#[test]
fn what_is_kept_is_bounded_and_what_is_lost_is_counted() {
    let (mut memory, now) = (memory("bob", "t"), Instant::now());
    for place in 0..ITEMS_MAX as u64 + 3 {
        let mut one = delivery("bob", place, cfp());
        one.envelope.negotiation = NegotiationId::try_new(&format!("alice~job{}", place % 2000)).unwrap();
        memory.hear(one, now);
    }
    assert_eq!(memory.lost(), 3);
    assert!(memory.asking(0).len() <= NEGOTIATIONS_MAX);
}

#[test]
fn whoever_keeps_little_keeps_it_while_others_have_taken_the_room_of_all() {
    let total = Arc::new(AtomicUsize::new(TOTAL_BYTES_MAX + 1));
    let mut heard = Memory::new(agent("bob"), "t".to_owned(), total.clone());
    for place in 0..1000 {
        heard.hear(delivery("bob", place, cfp()), Instant::now());
    }
    let kept = heard.news(&negotiation(), 0).count();
    let bytes = total.load(Ordering::Relaxed) - TOTAL_BYTES_MAX - 1;
    assert!(kept > 0 && heard.lost() == 1000 - kept as u64 && bytes <= SHARE_BYTES, "{kept} items, {bytes} bytes");
    drop(heard);
    assert_eq!(total.load(Ordering::Relaxed), TOTAL_BYTES_MAX + 1, "what is forgotten is given back");
}

#[test]
fn a_cursor_of_another_memory_is_answered_from_the_beginning() {
    let mut memory = memory("bob", "t1");
    memory.hear(delivery("bob", 1, cfp()), Instant::now());
    assert_eq!(memory.place(Some(&memory.cursor(1))), 1);
    for other in [None, Some("t2-1"), Some("t1-2"), Some("t1"), Some("t1-"), Some("t1--1"), Some("1"), Some("é")] {
        assert_eq!(memory.place(other), 0, "{other:?}");
    }
}

#[test]
fn what_is_asked_for_follows_what_was_told() {
    let not_understood = json!({"act": "not_understood", "reason": "stale", "expected": ["offer", "end"]});
    let turn = |party: &str| {
        json!({"act": "turn", "party": party, "round": 1, "step": 1, "act_by": "2026-11-29T10:00:10Z",
            "ends_by": "2026-11-29T10:02:00Z", "t_ppm": 0, "standing": {"offer_id": "o1-0", "by": "alice",
            "terms": {"price": 1}, "terms_digest": Digest::of_bytes(b"t").to_string()}})
    };
    let reject = |reason: &str| json!({"act": "reject", "reason": reason});
    let committed = json!({"act": "ack", "ack_of": "m", "disposition": "committed", "award_no": 1});
    let table: [(Vec<Value>, Option<&[&str]>); 9] = [
        (vec![cfp()], Some(&["offer", "refuse"])),
        (vec![cfp(), reject("policy")], Some(&["offer", "refuse"])),
        (vec![cfp(), reject("outscored")], None),
        (vec![turn("bob")], Some(&["offer", "accept", "leave"])),
        (vec![turn("bob"), turn("alice")], None),
        (vec![turn("bob"), not_understood], Some(&["offer", "leave"])),
        (vec![accept(5), committed], Some(&["report"])),
        (vec![accept(5), json!({"act": "cancel", "award_no": 1, "reason": "confirm_timeout"})], None),
        (vec![cfp(), closed()], None),
    ];
    for (told, tools) in table {
        let mut memory = memory("bob", "t");
        for (place, payload) in told.iter().enumerate() {
            memory.hear(delivery("bob", place as u64, payload.clone()), Instant::now());
        }
        let asked = memory.known(&negotiation()).unwrap().todo.as_ref().map(|todo| todo.tools.clone());
        assert_eq!(asked.as_deref(), tools, "{told:?}");
    }
}

#[test]
fn why_an_act_was_not_understood_is_kept_beside_its_receipt_in_either_order() {
    let why = json!({"act": "not_understood", "reason": "out_of_turn", "expected": []});
    let receipt = json!({"act": "ack", "ack_of": "m1", "disposition": "out_of_turn"});
    for order in [[0, 1], [1, 0]] {
        let mut memory = memory("bob", "t");
        for place in order {
            let mut one =
                delivery("bob", place, [why.clone(), receipt.clone()][usize::try_from(place).unwrap()].clone());
            one.envelope.in_reply_to = (place == 0).then(|| MsgId::try_new("m1").unwrap());
            memory.hear(one, Instant::now());
        }
        let (receipt, why) = memory.receipt(&negotiation(), &MsgId::try_new("m1").unwrap()).unwrap();
        assert_eq!(receipt.disposition, Disposition::OutOfTurn);
        assert_eq!(why.as_ref().unwrap().reason, "out_of_turn");
    }
}
