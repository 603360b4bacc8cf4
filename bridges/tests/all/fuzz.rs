//! Random arguments of tools, requests of A2A and answers of A2A agents: none panics or takes long, and what is read is read alike again.

use std::cell::Cell;
use std::sync::LazyLock;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};
use bridges::a2a::request::{self, Content};
use bridges::a2a_agent::A2aQuestion;
use bridges::a2a_agent::answer::{A2aReply, A2aStep};
use bridges::micro::prompt::tool_call;
use bridges::tools::message::{self, Limits};
use bridges::tools::{TOOLS, drop_fractions};
use bytes::Bytes;
use fuzzing::{JSON_WORDS, Mixture, feed};
use schemas::{AgentId, MsgId, NegotiationId};
use serde_json::{Value, json};

/// Inputs where no time is asked for.
const INPUTS: u64 = 300;
/// Longest arguments, bodies and answers, in bytes.
const BYTES_MAX: usize = 64 * 1024;
/// Tools that send no message of a negotiation.
const WITHOUT_MESSAGE: [&str; 9] = [
    "find_agents",
    "list_policies",
    "follow",
    "inbox",
    "register",
    "find_documents",
    "get_document",
    "put_document",
    "ask_agent",
];
const OPENING: [&str; 4] = ["call_for_offers", "bargain", "form_team", "ask_panel"];
/// The highest price of every call, in micro-units.
const PRICE_MAX: i64 = 90_000_000;

const AT: &str = "2026-11-29T12:00:30.000Z";
const WORDS: [&str; 24] = [
    "\u{202e}",
    "null",
    "true",
    "-1",
    "9007199254740993",
    "1e400",
    "0.5",
    "\"id\":",
    "\"negotiation\":",
    "\"alice~job\"",
    "\"to\":[\"bob\"]",
    "\"terms\":{\"price\":1}",
    "\"mandate\":",
    "\"gates\":",
    "\"tasks\":[{}]",
    "\"price_max\":",
    "\"payload\":{\"act\":\"cfp\"}",
    "\"parts\":[",
    "\"data\":{",
    "\"text\":\"t\"",
    "\"messageId\":\"m\"",
    "offer ",
    "é",
    "x",
];

fn agent() -> AgentId {
    AgentId::try_new("alice").unwrap()
}

fn limits() -> Limits {
    Limits { price_max: Some(PRICE_MAX), currency: Some("EUR".to_owned()), requires_mandate: true }
}

/// A tool's name and valid arguments.
static CALLS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let with_example = TOOLS.iter().filter_map(|tool| {
        let (_, example) = tool.listed["description"].as_str()?.split_once("Example: ")?;
        Some(format!("{} {}", tool.name, example.trim_end_matches('.')))
    });
    let others = [
        r#"offer {"negotiation":"alice~job","terms":{"price":8500000},"request_id":"r"}"#,
        r#"confirm {"negotiation":"alice~job","award_no":1}"#,
        r#"say {"negotiation":"alice~job","text":"t"}"#,
        r#"cancel {"negotiation":"alice~job","reason":"r"}"#,
        r#"report {"negotiation":"alice~job","result":"done"}"#,
    ];
    with_example.chain(others.map(str::to_owned)).collect()
});

fn fed(name: &'static str, valid: &[&str], target: impl Fn(&str)) {
    feed(name, INPUTS, Mixture { valid, words: &[&JSON_WORDS[..], &WORDS].concat(), bytes_max: BYTES_MAX }, target);
}

#[test]
fn no_arguments_of_a_tool_panic_take_long_or_pass_its_limits() {
    let valid: Vec<&str> = CALLS.iter().map(String::as_str).collect();
    let said = Cell::new(0_u64);
    fed("tool-arguments", &valid, |text| {
        let Some((name, arguments)) = text.split_once(' ') else { return };
        let Ok(mut arguments) = serde_json::from_str::<Value>(arguments) else { return };
        drop_fractions(&mut arguments);
        for tool in TOOLS.iter().filter(|tool| tool.name == name || tool.check(&arguments).is_ok()) {
            if tool.check(&arguments).is_err() || WITHOUT_MESSAGE.contains(&tool.name) {
                continue;
            }
            let Value::Object(arguments) = &arguments else { panic!("{name} takes {arguments}") };
            let say = || {
                if OPENING.contains(&tool.name) {
                    return message::opening(&agent(), tool.name, arguments.clone(), &limits());
                }
                message::act(&agent(), tool.name, arguments.clone(), None, &limits())
            };
            let Ok(message) = say() else { continue };
            said.set(said.get() + 1);
            assert_eq!(say().as_ref(), Ok(&message), "the same call is the same message");
            if tool.name == "call_for_offers" {
                let payload = &message.document["payload"];
                let gates = payload["gates"].as_array().map_or(&[][..], Vec::as_slice);
                assert!(gates.iter().any(|gate| gate["max"] == json!(PRICE_MAX)), "{payload}");
                assert_eq!(payload["currency"], json!("EUR"));
            }
        }
    });
    assert!(said.get() > INPUTS / 10, "{} were messages", said.get());
}

#[test]
fn no_request_of_a2a_panics_or_takes_long() {
    let data = r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"to":["agent://bob"],"payload":{"act":"cfp","task":"carry"}}}]}}}"#;
    let text = r#"{"jsonrpc":"2.0","id":"a","method":"SendStreamingMessage","params":{"message":{"messageId":"m2","contextId":"c","taskId":"alice~job","role":"ROLE_USER","parts":[{"text":"t"}]},"configuration":{"historyLength":1}}}"#;
    let headers: HeaderMap = [("content-type", "application/json"), ("a2a-version", "1.0")]
        .into_iter()
        .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
        .collect();
    assert!(request::read(&headers, data.as_bytes()).is_ok() && request::read(&headers, text.as_bytes()).is_ok());
    let negotiation = NegotiationId::try_new("alice~job").unwrap();
    let id = MsgId::try_new("m").unwrap();
    let taken = Cell::new(0_u64);
    fed("a2a-requests", &[data, text], |body| {
        let Ok(read) = request::read(&headers, body.as_bytes()) else { return };
        let Ok(sent) = request::decode(read.params) else { return };
        let Ok(incoming) = request::incoming(sent, &["bob".to_owned()]) else { return };
        taken.set(taken.get() + 1);
        if let Content::Act(act) = incoming.content {
            drop(message::request(&agent(), (negotiation.clone(), id.clone()), act, None, &limits()));
        }
    });
    assert!(taken.get() > INPUTS / 20, "{} were taken", taken.get());
}

#[test]
fn no_prompt_panics_or_takes_long() {
    let text = r#"{"tool":"call_for_offers","arguments":{"id":"a","task":"t","to":["bob"]}}"#;
    let wrapped = json!({"prompt": text, "attachments": []}).to_string();
    let taken = Cell::new(0_u64);
    fed("prompts", &[text, &wrapped], |body| {
        let bytes = Bytes::from(body.to_owned());
        let read = tool_call(&bytes);
        taken.set(taken.get() + u64::from(read.is_ok()));
        assert_eq!(read, tool_call(&bytes));
    });
    assert!(taken.get() > INPUTS / 20, "{} were taken", taken.get());
}

#[test]
fn no_answer_of_an_a2a_agent_panics_or_takes_long() {
    let task = r#"{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING","message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"{\"act\":\"offer\",\"terms\":{\"price\":1}}"}]}},"artifacts":[{"artifactId":"a","parts":[{"data":{"act":"offer","terms":{"price":8500000}}}]}]}}}"#;
    let message = r#"{"jsonrpc":"2.0","id":1,"result":{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"done"}]}}}"#;
    assert!(A2aReply::read(task.as_bytes(), 0).is_ok() && A2aReply::read(message.as_bytes(), 0).is_ok());
    let turn = json!({"act": "turn", "party": "bob", "round": 1, "step": 0, "act_by": AT, "ends_by": AT, "t_ppm": 0});
    let ask = json!({"act": "ask", "round": 1, "answer_by": AT, "ends_by": AT});
    let envelope = json!({"msg_id": "0".repeat(32), "ts": AT, "from": "exchange://llmx", "to": ["agent://bob"], "negotiation": "alice~job"});
    let question = |told: &Value, step| A2aQuestion {
        delivery: serde_json::from_value(json!({"envelope": envelope, "payload": told})).unwrap(),
        about: serde_json::from_value(told.clone()).unwrap(),
        before: Vec::new(),
        step,
        tools: vec!["offer", "answer"],
        task: None,
        offered: None,
        within: Duration::ZERO,
    };
    let steps = [A2aStep::Act, A2aStep::Perform, A2aStep::Stop];
    let questions = [turn, ask].iter().flat_map(|told| steps.map(|step| question(told, step))).collect::<Vec<_>>();
    fed("a2a-answers", &[task, message], |body| {
        let Ok(reply) = A2aReply::read(body.as_bytes(), 0) else { return };
        for question in &questions {
            assert_eq!(reply.payload(question), reply.payload(question));
        }
    });
}
