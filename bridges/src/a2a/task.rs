//! What was told of a negotiation → a task of the Agent2Agent protocol. Pure.

use a2a::{Part, Task, TaskState};
use schemas::NegotiationId;
use serde_json::{Map, Value, json};

use crate::ToolFault;
use crate::tools::message::digits;

/// Characters of a task's id behind its context: a separator and a digest.
pub const TASK_TAG_CHARS: usize = 23;

/// Characters of a digest in the id of a status message: 64 bits, of one task.
const MESSAGE_CHARS: usize = 16;
/// Acts that ask something of who called.
const ASKS: [&str; 3] = ["accept", "turn", "floor"];

/// The task that an answer of the tools tells of.
///
/// # Errors
/// What cannot be read as one.
pub fn task(told: &Value) -> Result<Task, serde_json::Error> {
    let news: Vec<&Value> = told["news"].as_array().into_iter().flatten().collect();
    let closing = news.iter().rev().find(|item| item["act"] == "closed").map_or(&Value::Null, |item| &item["payload"]);
    let view = &told["view"];
    let kind = ["bargain", "team", "panel"].iter().map(|kind| &view[*kind]).find(|kind| !kind.is_null());
    let kind = kind.unwrap_or(&Value::Null);
    let either = |name: &str| [&closing[name], &kind[name]].into_iter().find(|value| !value.is_null()).cloned();
    let negotiation = told["negotiation"].as_str().unwrap_or_default();
    let is_silent = news.is_empty() && view.is_null();
    let state = match told["outcome"].as_str() {
        Some(outcome) => end(outcome, either("detail").as_ref().and_then(Value::as_str), negotiation),
        None if told["todo"][0].is_object() => TaskState::InputRequired,
        None if is_silent => TaskState::Submitted,
        None if view.is_null() && !news.iter().any(is_taken) => TaskState::Rejected,
        None => TaskState::Working,
    };
    let mut content = Map::new();
    for name in ["state", "outcome", "todo"] {
        content.extend(told.get(name).map(|value| (name.to_owned(), value.clone())));
    }
    content.extend(either("detail").map(|detail| ("detail".to_owned(), detail)));
    if state == TaskState::InputRequired {
        // What was not understood asks again for what was asked before.
        let asks = |act: &str, report: &Value| ASKS.contains(&act) || report["kind"] == "offers";
        let because = news.iter().filter(|item| item["n"] == told["todo"][0]["because"]);
        let asked = news.iter().rfind(|item| asks(item["act"].as_str().unwrap_or_default(), &item["payload"]));
        for item in because.chain(asked) {
            let name = if item["act"] == "inform" { "offers" } else { item["act"].as_str().unwrap_or_default() };
            content.insert(name.to_owned(), item["payload"].clone());
        }
    }
    let mut artifacts = awards(&news, view);
    for name in ["agreement", "conclusion"] {
        artifacts.extend(either(name).map(|value| artifact(name, name, Part::data(value))));
    }
    let findings = reports(&news).filter(|report| report["kind"] == "finding");
    artifacts.extend(findings.map(|finding| artifact("finding", "finding", Part::data(finding.clone()))));
    let mut status = json!({"state": state});
    let is_end = |item: &&&Value| item["act"] == "closed";
    if let Some(last) = news.iter().rfind(is_end).or_else(|| news.last()) {
        status["timestamp"] = last["ts"].clone();
    }
    if !is_silent {
        status["message"] = message(negotiation, content.into());
    }
    let mut task = json!({"id": negotiation, "contextId": context(negotiation), "status": status});
    if !artifacts.is_empty() {
        task["artifacts"] = Value::Array(artifacts);
    }
    serde_json::from_value(task)
}

/// The task of a call that the exchange does not follow: nothing comes of it.
///
/// # Errors
/// As [`task`].
pub fn rejected(negotiation: &NegotiationId, fault: &ToolFault) -> Result<Task, serde_json::Error> {
    let id = negotiation.as_str();
    let message = message(id, fault.to_value());
    let status = json!({"state": TaskState::Rejected, "message": message});
    serde_json::from_value(json!({"id": id, "contextId": context(id), "status": status}))
}

/// The context a task is in.
pub fn context(negotiation: &str) -> &str {
    let own = negotiation.split_once('~').map_or(negotiation, |(_, own)| own);
    let cut = own.len().saturating_sub(TASK_TAG_CHARS);
    let (context, tag) = own.split_at(cut);
    let is_tag = tag.strip_prefix('-').is_some_and(|tag| tag.bytes().all(|digit| digit.is_ascii_hexdigit()));
    if is_tag && !context.is_empty() { context } else { own }
}

/// Whether an item shows that the call is followed: all but receipts of another disposition than `ok`.
fn is_taken(item: &&Value) -> bool {
    let payload = &item["payload"];
    let disposition = if payload["first"].is_null() { &payload["disposition"] } else { &payload["first"] };
    item["act"] != "not_understood" && (item["act"] != "ack" || disposition == "ok")
}

/// What a status says. Its id follows from that, so the same at every process.
fn message(negotiation: &str, content: Value) -> Value {
    let id = format!("{negotiation}-{}", digits(&content, MESSAGE_CHARS));
    json!({"messageId": id, "taskId": negotiation, "contextId": context(negotiation), "role": "ROLE_AGENT",
        "parts": [Part::data(content)]})
}

/// How a negotiation that ended so ends its task. No deal is a failure; what the client itself ended is not.
pub fn end(outcome: &str, detail: Option<&str>, negotiation: &str) -> TaskState {
    let client = negotiation.split('~').next();
    match outcome {
        "completed" | "agreement" | "concluded" | "consensus" | "plurality" => TaskState::Completed,
        "cancelled" => TaskState::Canceled,
        "ended" if detail == client => TaskState::Canceled,
        _ => TaskState::Failed,
    }
}

fn reports<'a>(news: &'a [&'a Value]) -> impl Iterator<Item = &'a Value> {
    news.iter().filter(|item| item["act"] == "inform").map(|item| &item["payload"])
}

/// Awards that were confirmed, and the results of their work. What was told is forgotten before the view is, which names no lot
/// once the negotiation has ended: numbers of awards are unique in it.
fn awards(news: &[&Value], view: &Value) -> Vec<Value> {
    let place = |report: &Value| (report["lot"].as_u64().unwrap_or(0), report["award_no"].as_u64().unwrap_or(0));
    let (mut artifacts, mut known) = (Vec::new(), Vec::new());
    let award = |(lot, no): (u64, u64), award| artifact(&format!("award-{lot}-{no}"), "award", Part::data(award));
    for awarded in reports(news).filter(|report| report["kind"] == "awarded") {
        let mut later = reports(news).filter(|report| report["kind"] != "awarded");
        if later.any(|report| place(report) == place(awarded)) {
            known.push(place(awarded).1);
            artifacts.push(award(place(awarded), awarded.clone()));
        }
    }
    for shown in view["awards"].as_array().into_iter().flatten() {
        let is_bound = shown["state"] == "committed" || shown["state"] == "done";
        if is_bound && !known.contains(&place(shown).1) {
            let mut offers = view["offers"].as_array().into_iter().flatten();
            let mut shown = shown.clone();
            if let Some(offer) = offers.find(|offer| offer["contractor"] == shown["contractor"]) {
                shown["terms"] = offer["terms"].clone();
            }
            artifacts.push(award(place(&shown), shown));
        }
    }
    for report in reports(news).filter(|report| report["kind"] == "done" || report["kind"] == "result") {
        let (lot, no) = place(report);
        let text = report["result"].as_str();
        artifacts.extend(text.map(|text| artifact(&format!("result-{lot}-{no}"), "result", Part::text(text))));
    }
    artifacts
}

fn artifact(id: &str, name: &str, part: Part) -> Value {
    json!({"artifactId": id, "name": name, "parts": [part]})
}
