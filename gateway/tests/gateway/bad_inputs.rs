//! Broken envelopes and documents, and replays, over the real gateway: stable codes, nothing logged as accepted.
//! Cases are numbered; the numbers are those of `schemas/tests/bad_inputs.rs`. What concerns HTTP itself is in `framing`.

use futures_util::SinkExt as _;
use schemas::subject;
use schemas::validate::BODY_BYTES_MAX;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::rig::{PATIENCE, Rig, agent, answer, code, offer, policy};
use crate::streams::{connect, frame};

/// A row: the case's number and name, the bytes, and the code; none where the bytes are to be accepted.
type Row = (&'static str, Vec<u8>, Option<&'static str>);

#[tokio::test]
async fn bodies_that_are_not_strict_json_are_refused() {
    let text = good();
    let nested = |depth: usize| deep(depth).into_bytes();
    let rows: Vec<Row> = vec![
        ("31 duplicate member", text.replacen(r#""act":"#, r#""act":"offer","act":"#, 1).into(), Some("duplicate_key")),
        (
            "31 duplicate member, escaped",
            text.replacen(r#""act":"#, r#""\u0061ct":"offer","act":"#, 1).into(),
            Some("duplicate_key"),
        ),
        ("32 trailing garbage", format!("{text}x").into(), Some("malformed_json")),
        ("32 two documents", format!("{text}{text}").into(), Some("malformed_json")),
        ("33 byte order mark", format!("\u{feff}{text}").into(), Some("malformed_json")),
        ("33 UTF-16", text.encode_utf16().flat_map(u16::to_le_bytes).collect(), Some("malformed_json")),
        ("34 invalid UTF-8", splice(&text, "move", b"\xff\xfe"), Some("malformed_json")),
        ("34 overlong", splice(&text, "move", b"\xc0\x80"), Some("malformed_json")),
        ("34 surrogate in UTF-8", splice(&text, "move", b"\xed\xa0\x80"), Some("malformed_json")),
        ("34 lone surrogate", splice(&text, "move", br"\ud800"), Some("malformed_json")),
        ("35 depth 33", nested(33), Some("too_deep")),
        ("35 depth 129", nested(129), Some("too_deep")),
        ("35 depth 30,000", nested(30_000), Some("too_deep")),
        ("empty", Vec::new(), Some("malformed_json")),
        ("a comment", format!("{text}//").into(), Some("malformed_json")),
        ("not a number", text.replace("500", "NaN").into(), Some("malformed_json")),
        ("43 1e400", text.replace("500", "1e400").into(), Some("malformed_json")),
    ];
    run(&rows).await;
}

#[tokio::test]
async fn ids_that_could_be_something_else_are_refused() {
    let bad = [
        ("37 NUL", "a\0b"),
        ("38 right-to-left override", "a\u{202e}b"),
        ("38 zero width", "a\u{200b}b"),
        ("38 homoglyph", "аlice"),
        ("39 dot", "a.b"),
        ("39 star", "a*"),
        ("39 greater", "a>"),
        ("39 space", "a b"),
        ("39 line break", "a\r\nb"),
        ("40 empty", ""),
        ("40 65 characters", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
    ];
    let mut rows: Vec<Row> = Vec::new();
    for (name, id) in bad {
        let expected = match id.len() {
            0 | 65 => &["bad_format", "out_of_range"][..],
            _ => &["bad_format"][..],
        };
        for field in ["msg_id", "from", "negotiation"] {
            let value = match field {
                "from" => format!("agent://{id}"),
                "negotiation" => format!("alice~{id}"),
                _ => id.to_owned(),
            };
            let bytes = with(|message| message["envelope"][field] = json!(value));
            rows.push((name, bytes, Some(if field == "msg_id" { expected[expected.len() - 1] } else { "bad_format" })));
        }
    }
    run_any(&rows, &["bad_format", "out_of_range"]).await;
}

#[tokio::test]
async fn documents_that_depart_from_the_schema_are_refused() {
    let rows: Vec<Row> = vec![
        ("41 unknown member", with(|m| m["extra"] = json!(1)), Some("unknown_field")),
        ("41 state", with(|m| m["payload"]["state"] = json!("awarded")), Some("unknown_field")),
        ("41 winner", with(|m| m["payload"]["winner"] = json!("bob")), Some("unknown_field")),
        ("41 role", with(|m| m["envelope"]["role"] = json!("admin")), Some("unknown_field")),
        ("41 prototype", with(|m| m["payload"]["__proto__"] = json!({})), Some("unknown_field")),
        ("42 text for a number", with(|m| m["envelope"]["seq"] = json!("1")), Some("wrong_type")),
        ("42 object for an id", with(|m| m["envelope"]["msg_id"] = json!({})), Some("wrong_type")),
        ("42 list for a document", b"[]".to_vec(), Some("wrong_type")),
        ("42 null payload", with(|m| m["payload"] = Value::Null), Some("wrong_type")),
        ("43 fraction of money", with(|m| m["payload"]["terms"]["price"] = json!(0.3)), Some("wrong_type")),
        ("43 0.1 + 0.2", with(|m| m["payload"]["terms"]["price"] = json!(0.1 + 0.2)), Some("wrong_type")),
        ("43 2^63", good().replace("500", "9223372036854775808").into(), Some("out_of_range")),
        (
            "43 2^53 + 1",
            with(|m| m["payload"]["terms"]["price"] = json!(9_007_199_254_740_993_i64)),
            Some("out_of_range"),
        ),
        ("44 wrong currency", with(|m| m["payload"]["currency"] = json!("euro")), Some("bad_format")),
        ("45 no zone", with(|m| m["envelope"]["ts"] = json!("2026-11-20T20:00:00")), Some("bad_format")),
        ("45 leap second", with(|m| m["envelope"]["ts"] = json!("2016-12-31T23:59:60Z")), Some("bad_format")),
        ("45 year 9999", with(|m| m["envelope"]["ts"] = json!("9999-12-31T23:59:59Z")), Some("bad_format")),
        ("45 before the epoch", with(|m| m["envelope"]["ts"] = json!("1969-12-31T23:59:59Z")), Some("bad_format")),
        ("46 msg_id a number", with(|m| m["envelope"]["msg_id"] = json!(7)), Some("wrong_type")),
        (
            "46 msg_id missing",
            with(|m| drop(m["envelope"].as_object_mut().unwrap().remove("msg_id"))),
            Some("missing_field"),
        ),
        ("act agents do not send", with(|m| m["payload"] = json!({ "act": "closed" })), Some("not_allowed")),
        ("74 award claimed by a client", with(|m| m["payload"] = json!({ "act": "reject" })), Some("not_allowed")),
    ];
    run_any(&rows, &["wrong_type", "out_of_range", "bad_format", "not_allowed", "unknown_field", "missing_field"])
        .await;
}

#[tokio::test]
async fn sizes_around_the_limit_are_accepted_accepted_and_refused() {
    let rows: Vec<Row> = vec![
        ("52 limit - 1", padded(BODY_BYTES_MAX - 1), None),
        ("52 limit", padded(BODY_BYTES_MAX), None),
        ("52 limit + 1", padded(BODY_BYTES_MAX + 1), Some("too_large")),
        ("36 a million items", format!("[{}1]", "1,".repeat(1_000_000)).into(), Some("too_large")),
        ("36 a text of 10 MB", format!("\"{}\"", "x".repeat(10_000_000)).into(), Some("too_large")),
        ("35 depth 100,000", deep(100_000).into(), Some("too_large")),
    ];
    run(&rows).await;
}

#[tokio::test]
async fn no_way_in_rounds_a_number_to_an_integer() {
    let rig = Rig::start().await;
    let mut socket = connect(&rig, &rig.token("bob")).await.unwrap();
    frame(&mut socket).await;
    let message =
        |written: &str, msg_id: &str| good().replace("500", written).replace("\"m1\"", &format!("\"{msg_id}\""));
    let policy = |written: &str| policy_text("mine@1").replace("\"hi\":1000", &format!("\"hi\":{written}"));
    for written in ["99999999.999999999999", "1e-400", "1.0000000000000000000001"] {
        let (status, body) = rig.post(&rig.token("bob"), message(written, "http")).await;
        assert_eq!((status, code(&body)), (422, "wrong_type"), "{written}");
        socket
            .send(Message::text(format!(r#"{{"type":"message","message":{}}}"#, message(written, "ws"))))
            .await
            .unwrap();
        assert_eq!(code(&frame(&mut socket).await["problem"]), "wrong_type", "{written}");
        assert_eq!(code(&on_the_bus(&rig, message(written, "nats")).await["refused"]), "wrong_type", "{written}");
        let (status, body) = put_policy(&rig, policy(written)).await;
        assert_eq!((status, code(&body)), (422, "wrong_type"), "{written}");
    }
    assert!(rig.logged().await.is_empty());
    for (written, msg_id) in [("85000000.0", "a"), ("8.5e7", "b")] {
        assert_eq!(rig.post(&rig.token("bob"), message(written, msg_id)).await.0, 202, "{written}");
        assert_eq!(on_the_bus(&rig, message(written, msg_id)).await["accepted"]["msg_id"], msg_id, "{written}");
        assert_eq!(put_policy(&rig, policy(written)).await.0 / 100, 2, "{written}");
    }
    for message in rig.logged().await {
        assert!(message.body.get().contains(r#""price":85000000}"#), "{}", message.body.get());
    }
}

#[tokio::test]
async fn a_negative_zero_is_zero_and_an_integer_may_be_written_with_a_point() {
    let rig = Rig::start().await;
    for (msg_id, written) in [("a", "-0"), ("b", "0"), ("c", "0.0")] {
        let text = good().replace("500", written).replace("\"m1\"", &format!("\"{msg_id}\""));
        assert_eq!(rig.post(&rig.token("bob"), text).await.0, 202, "{written}");
    }
    for message in rig.logged().await {
        assert!(message.body.get().contains(r#""price":0}"#), "{}", message.body.get());
    }
}

#[tokio::test]
async fn replays_are_kept_apart_by_sender_and_negotiation_and_never_overwrite() {
    let rig = Rig::start().await;
    let first = offer("bob", "m1", "alice~job");
    assert_eq!(rig.send("bob", &first).await.0, 202);
    assert_eq!(rig.send("bob", &first).await.0, 202, "87 the same message twice: the fold drops the second");
    let mut other = first.clone();
    other["payload"]["terms"]["price"] = json!(1);
    let (status, body) = rig.send("bob", &other).await;
    assert_eq!((status, code(&body)), (409, "conflict"), "88 same id, other body");
    assert_eq!(rig.send("carol", &offer("carol", "m1", "alice~job")).await.0, 202, "89 same id of another agent");
    let (status, body) = rig.send("carol", &first).await;
    assert_eq!((status, code(&body)), (403, "unauthorized"), "92 another's message under one's own token");
    assert_eq!(rig.send("bob", &offer("bob", "m1", "alice~other")).await.0, 202, "92 same id in another negotiation");
    for (seq, msg_id) in [(9, "n9"), (3, "n3")] {
        let mut message = offer("bob", msg_id, "alice~job");
        message["envelope"]["seq"] = json!(seq);
        assert_eq!(rig.send("bob", &message).await.0, 202, "93 order is the fold's to judge");
    }
    let logged = rig.logged().await;
    assert_eq!(logged.len(), 6);
    assert!(logged.iter().all(|message| !message.body.get().contains(r#""price":1}"#)), "the refused body is nowhere");
}

/// Posts every row as `bob` and compares codes; afterwards the log holds exactly what was accepted.
async fn run(rows: &[Row]) {
    let rig = Rig::start().await;
    let mut accepted = 0;
    for (name, bytes, expected) in rows {
        let (status, body) = rig.post(&rig.token("bob"), bytes.clone()).await;
        match expected {
            Some(expected) => assert_eq!(code(&body), *expected, "{name}: {body}"),
            None => {
                assert_eq!(status, 202, "{name}: {body}");
                accepted += 1;
            }
        }
    }
    assert_eq!(rig.logged().await.len(), accepted);
    assert_eq!(rig.call("GET", "/readyz", None, None).await.0, 200, "the gateway is still there");
}

/// As [`run`]; where a row's exact code is the schemas' business, any of `codes` will do, but a refusal it must be.
async fn run_any(rows: &[Row], codes: &[&str]) {
    let rig = Rig::start().await;
    for (name, bytes, expected) in rows {
        let (status, body) = rig.post(&rig.token("bob"), bytes.clone()).await;
        assert_eq!(status, 422, "{name}: {body}");
        assert!(codes.contains(&code(&body)), "{name}: {body}");
        assert_eq!(Some(code(&body)), *expected, "{name}: {body}");
    }
    assert!(rig.logged().await.is_empty());
}

/// Sends a message on the bus; the gateway's answer.
async fn on_the_bus(rig: &Rig, text: String) -> Value {
    let subject = subject::gateway_in(&agent("bob"));
    let reply = rig.bus.pub_sub.request(subject, Some(rig.token("bob")), text.into(), PATIENCE).await.unwrap();
    serde_json::from_slice(&reply).unwrap()
}

async fn put_policy(rig: &Rig, text: String) -> (u16, Value) {
    let request = rig.request("PUT", "/v1/policies/mine@1").bearer_auth(rig.admin_token());
    answer(request.header("content-type", "application/json").body(text)).await
}

fn policy_text(id: &str) -> String {
    serde_json::to_string(&policy(id)).unwrap()
}

fn good() -> String {
    let mut message = offer("bob", "m1", "alice~job");
    message["payload"]["conditions"] = json!("move it with care");
    message.to_string()
}

fn with(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut message = offer("bob", "m1", "alice~job");
    change(&mut message);
    message.to_string().into_bytes()
}

/// A message of exactly so many bytes: white space is no part of it.
fn padded(bytes: usize) -> Vec<u8> {
    let mut text = good().replace("\"m1\"", &format!("\"m{bytes}\""));
    text.push_str(&" ".repeat(bytes - text.len()));
    text.into_bytes()
}

fn deep(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

/// Replaces a word by raw bytes.
fn splice(text: &str, word: &str, bytes: &[u8]) -> Vec<u8> {
    let (before, after) = text.split_once(word).unwrap();
    [before.as_bytes(), bytes, after.as_bytes()].concat()
}
