//! What was told of a negotiation → a task of the Agent2Agent protocol. Pure.

use a2a::{Part, Task, TaskState};
use schemas::NegotiationId;
use serde_json::{Map, Value, json};

use crate::ToolFault;

/// Characters of a task's id behind its context: a separator and a digest.
pub const TASK_TAG_CHARS: usize = 23;

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
        None => TaskState::Working,
    };
    let mut content = Map::new();
    for name in ["state", "outcome", "todo"] {
        content.extend(told.get(name).map(|value| (name.to_owned(), value.clone())));
    }
    content.extend(either("detail").map(|detail| ("detail".to_owned(), detail)));
    if let Some(item) = news.iter().find(|item| item["n"] == told["todo"][0]["because"]) {
        let name = if item["act"] == "inform" { "offers" } else { item["act"].as_str().unwrap_or_default() };
        content.insert(name.to_owned(), item["payload"].clone());
    }
    let mut artifacts = awards(&news, view);
    for name in ["agreement", "conclusion"] {
        artifacts.extend(either(name).map(|value| artifact(name, name, Part::data(value))));
    }
    let findings = reports(&news).filter(|report| report["kind"] == "finding");
    artifacts.extend(findings.map(|finding| artifact("finding", "finding", Part::data(finding.clone()))));
    let mut status = json!({"state": state});
    if let Some(last) = news.last() {
        status["timestamp"] = last["ts"].clone();
    }
    if !is_silent {
        let state = told.get("outcome").or_else(|| told.get("state")).and_then(Value::as_str).unwrap_or_default();
        let last = news.last().map_or_else(|| state.to_owned(), |item| item["n"].to_string());
        status["message"] = message(negotiation, &format!("{negotiation}-{last}"), content.into());
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
    let message = message(id, &format!("{id}-rejected"), fault.to_value());
    let status = json!({"state": TaskState::Rejected, "message": message});
    serde_json::from_value(json!({"id": id, "contextId": context(id), "status": status}))
}

/// The context a task is in.
#[must_use]
pub fn context(negotiation: &str) -> &str {
    let own = negotiation.split_once('~').map_or(negotiation, |(_, own)| own);
    let cut = own.len().saturating_sub(TASK_TAG_CHARS);
    if cut > 0 && own.as_bytes()[cut] == b'-' { &own[..cut] } else { own }
}

fn message(negotiation: &str, id: &str, content: Value) -> Value {
    json!({"messageId": id, "taskId": negotiation, "contextId": context(negotiation), "role": "ROLE_AGENT",
        "parts": [Part::data(content)]})
}

/// How a negotiation that ended so ends its task. No deal is a failure; what the client itself ended is not.
#[must_use]
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

/// Awards that were confirmed, and the results of their work. What was told is forgotten before the view is.
fn awards(news: &[&Value], view: &Value) -> Vec<Value> {
    let place = |report: &Value| (report["lot"].as_u64().unwrap_or(0), report["award_no"].as_u64().unwrap_or(0));
    let (mut artifacts, mut known) = (Vec::new(), Vec::new());
    let award = |(lot, no): (u64, u64), award| artifact(&format!("award-{lot}-{no}"), "award", Part::data(award));
    for awarded in reports(news).filter(|report| report["kind"] == "awarded") {
        let mut later = reports(news).filter(|report| report["kind"] != "awarded");
        if later.any(|report| place(report) == place(awarded)) {
            known.push(place(awarded));
            artifacts.push(award(place(awarded), awarded.clone()));
        }
    }
    for shown in view["awards"].as_array().into_iter().flatten() {
        if !known.contains(&place(shown)) && shown["state"] != "awarded" {
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
